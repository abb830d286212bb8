"""Keywords: lists of search terms and their figures, exported by search tools or typed by people.

Files of Ahrefs, Semrush, Google's Keyword Planner and Search Console are recognised by their headers; a text file
without a header is a list of keywords. Keywords that differ only in case, width or spacing are the same. A keyword
keeps the greatest of its figures, so the order of files does not matter.

tokens       the identity of a keyword, and the tokens that it is grouped by
"""

from __future__ import annotations

from decimal import Decimal

from weighbridge.model import upsert
from weighbridge.model.pipeline import Entity, Field, Pipeline
from weighbridge.model.rule import Normaliser, Validator
from weighbridge.pipelines.keywords.tokens import TOKENS, identity
from weighbridge.rules import n, v

KEYWORD = [
    *("Keyword", "Keywords", "Top queries", "Query", "Queries", "Search term", "Search terms"),
    *("Search query", "Search queries", "Search keyword", "Keyphrase", "Key phrase"),
]
VOLUME = [
    *("Volume", "Search volume", "Avg. monthly searches", "Average monthly searches", "Monthly searches"),
    *("Monthly search volume", "Monthly volume", "Avg. monthly search volume", "Searches"),
]
DIFFICULTY = [
    *("Keyword Difficulty", "Difficulty", "KD", "KD %", "KD%", "KD (%)", "Keyword Difficulty %"),
    *("Keyword Difficulty (%)", "Keyword Difficulty Index", "SEO Difficulty"),
]
CPC = ["CPC", "Cost per click", "Avg. CPC", "Average CPC"]

_SPACE = r"[\s\x{A0}\x{202F}]*"
_ROUGHLY = rf"[0-9][0-9.,]*(?:{_SPACE}[kKmM])?"
_DASHES = r"\x{2013}\x{2014}"
# Google shows only such ranges to most accounts.
lower_end = Normaliser(
    "lower_end",  # 1K – 10K is 1K
    rf"regexp_replace({{x}}, '^({_ROUGHLY}){_SPACE}[-{_DASHES}]{_SPACE}{_ROUGHLY}$', '\1')",
    # Volumes are not negative.
    reduces="(contains({x}, '-') OR contains({x}, '\u2013') OR contains({x}, '\u2014'))",
)
in_full = Normaliser(
    "in_full",  # 1.2K is 1200; 1.2345K is not a whole number and will be rejected
    rf"""CASE WHEN regexp_full_match({{x}}, '[0-9]+(?:{{mark}}[0-9]{{1,3}}0*)?{_SPACE}[kK]')
            OR regexp_full_match({{x}}, '[0-9]+(?:{{mark}}[0-9]{{1,6}}0*)?{_SPACE}[mM]') THEN coalesce(
        CAST(CAST(TRY_CAST(replace(regexp_extract({{x}}, '^[0-9.,]+'), ',', '.') AS DECIMAL(18,6))
            * CASE WHEN lower({{x}}[-1]) = 'k' THEN 1000 ELSE 1000000 END AS BIGINT) AS VARCHAR), {{x}})
        ELSE {{x}} END""",
)
PRINTABLE = Validator(
    "printable",
    r"NOT regexp_matches({x}, '\p{Cc}')",
    "bad_keyword",
    "a keyword without control characters",
    "Export the file again as plain text.",
)

keyword = Entity(
    table="keywords",
    scope=["project_id"],
    key=["keyword_normalized"],
    fields=[
        Field(
            "keyword_normalized",
            header=KEYWORD,
            normalise=[identity],
            validate=[v.max_length(500), PRINTABLE],
            label="keyword",
        ),
        Field("keyword", header=KEYWORD, normalise=[n.nfkc, n.fold_space]),
        Field("tokens", header=KEYWORD, normalise=TOKENS),
        Field(
            "volume", int, header=VOLUME, normalise=[lower_end, in_full, n.integer], validate=[v.at_least(0)]
        ),
        Field("difficulty", Decimal, header=DIFFICULTY, normalise=[n.percent], validate=[v.at_least(0)]),
        Field("cpc", Decimal, header=CPC, normalise=[n.money], validate=[v.at_least(0)]),
        Field("clicks", int, header=["Clicks"], normalise=[n.integer], validate=[v.at_least(0)]),
        Field(
            "impressions",
            int,
            header=["Impressions", "Impr."],
            normalise=[n.integer],
            validate=[v.at_least(0)],
        ),
    ],
    upsert=upsert.keep_greatest,
)
pipeline = Pipeline(
    name="keywords",
    entities=[keyword],
    min_valid=0,  # a share would make the result depend on how rows are split into files
    nulls=["-", "--", "\u2013", "\u2014", "N/A", "n/a", "\u221e"],
    decimal=".",
    expects=["keyword.keyword", "keyword.volume"],
    # Search Console has no volume.
    instead={"keyword.volume": ["keyword.clicks", "keyword.impressions"]},
    headerless="keyword",
    leading_totals=5,  # Keyword Planner's sums of all keywords
)
