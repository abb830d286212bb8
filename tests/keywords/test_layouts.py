"""Every layout is read exactly, known by its header alone, and its bins add up to the file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest

from weighbridge.formats import sniff
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins
from weighbridge.testing.exports import KeywordLayout, write_keywords

from .checking import check, check_bytes, rows

FIGURES = ("keyword", "volume", "difficulty", "cpc", "clicks", "impressions")


def test_ahrefs(tmp_path: Path) -> None:
    header = [
        "#",
        "Keyword",
        "Country",
        "Difficulty",
        "Volume",
        "CPC",
        "CPS",
        "Parent Keyword",
        "Last Update",
    ]
    records = [
        [*header, "SERP Features", "Global volume", "Traffic potential"],
        ["1", "blue shoes", "us", "12", "1300", "0.65", "", "shoes", "2025-07-01 04:05:06", "Ads", "99999", "7"],
        ["2", "red shoes", "us", "", "0", "", "", "red", "2025-07-01 04:05:06", "", "5", "8"],
    ]  # fmt: skip
    text = "".join("\t".join(f'"{cell}"' for cell in record) + "\r\n" for record in records)
    outcome = check_bytes(tmp_path, b"\xff\xfe" + text.encode("utf-16-le"))
    assert outcome.bins == Bins(header=1, accepted=2)
    assert rows(outcome, *FIGURES) == [
        ("blue shoes", 1300, 12, Decimal("0.65"), None, None),
        ("red shoes", 0, None, None, None, None),
    ]


def test_semrush() -> None:
    header = "Keyword,Intent,Volume,Trend,Keyword Difficulty,CPC (USD),SERP Features"
    outcome = check(f'{header}\nblue shoes,"Commercial, Local",74000,"0.82,1.00",45.50,1.23,"Ads, Maps"\n')
    assert rows(outcome, *FIGURES) == [("blue shoes", 74000, Decimal("45.5"), Decimal("1.23"), None, None)]


def test_semrush_with_semicolons_and_decimal_commas() -> None:
    header = "Keyword;Intent;Volume;Trend;Keyword Difficulty;CPC (EUR);SERP Features"
    outcome = check(
        f"{header}\nblaue schuhe;Local;74.000;0,82,1,00;45,50;1,23;Ads, Maps\nschuhe;Local;90;;n/a;0,5;\n"
    )
    assert rows(outcome, *FIGURES) == [
        ("blaue schuhe", 74000, Decimal("45.5"), Decimal("1.23"), None, None),
        ("schuhe", 90, None, Decimal("0.5"), None, None),
    ]


def test_keyword_planner(tmp_path: Path) -> None:
    text = (
        "Keyword Stats 2025-07-31 at 12_30_00\nJuly 1, 2024 - June 30, 2025\n"
        "Keyword\tCurrency\tAvg. monthly searches\tThree month change\tYoY change\tCompetition\t"
        "Top of page bid (low range)\n"
        "\tUSD\t111000\t∞\t0%\t\t1.10\n\tUSD\t5\t\t\t\t\n"
        "blue shoes\tUSD\t1K – 10K\t∞\t-90%\tHigh\t0.70\nred shoes\tUSD\t--\t∞\t\tLow\t\n"
    )
    outcome = check_bytes(tmp_path, b"\xff\xfe" + text.encode("utf-16-le"))
    assert outcome.bins == Bins(preamble=2, header=1, totals=2, accepted=2)
    assert rows(outcome, *FIGURES) == [
        ("blue shoes", 1000, None, None, None, None),
        ("red shoes", None, None, None, None, None),
    ]


def test_search_console() -> None:
    outcome = check('Top queries,Clicks,Impressions,CTR,Position\nblue shoes,12,"1,234",0.97%,7.1\n')
    assert rows(outcome, *FIGURES) == [("blue shoes", None, None, None, 12, 1234)]


@pytest.mark.parametrize("layout", get_args(KeywordLayout))
def test_a_generated_export_of_any_layout_is_read_to_its_last_record(
    tmp_path: Path, layout: KeywordLayout
) -> None:
    written = write_keywords(tmp_path / "keywords", 11_000, layout)
    assert sniff(written.path.read_bytes()[:65536], "keywords.txt") == "csv"
    outcome = check_bytes(tmp_path, written.path.read_bytes())
    assert outcome.bins == Bins(
        preamble=written.preamble,
        header=written.header,
        totals=written.totals,
        accepted=written.keywords,
        duplicate=written.rows - written.keywords,
    )


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second, third = (
        write_keywords(tmp_path / "file", 50, "semrush", seed).path.read_bytes() for seed in (3, 3, 4)
    )
    assert first == second != third


def test_keywords_are_made_of_the_words_that_were_given(tmp_path: Path) -> None:
    path = write_keywords(tmp_path / "file", 20, "plain", words=["one"]).path
    assert set(path.read_text().lower().split()) == {"one"}


@pytest.mark.parametrize(
    "header", ["Parent Keyword", "Global volume", "Keyword Intent", "Volume Trend", "Bid"]
)
def test_columns_with_like_names_are_left_alone(header: str) -> None:
    outcome = check(f"{header},Keyword,Volume\n7,blue shoes,5\n")
    assert rows(outcome, "keyword", "volume") == [("blue shoes", 5)]


@pytest.mark.parametrize(
    ("header", "field", "meant"),
    [
        ("Search Volume", "volume", 9), ("Monthly searches", "volume", 9), ("KD", "difficulty", 9),
        ("KD %", "difficulty", 9), ("Cost per click", "cpc", 9), ("CPC (GBP)", "cpc", 9), ("Impr.", "impressions", 9),
        ("Top of page bid (low range)", "cpc", None),
    ],
)  # fmt: skip
def test_other_names_of_the_figures_are_known(header: str, field: str, meant: int | None) -> None:
    for keyword in ("Query", "Search term", "keywords"):
        assert rows(check(f"{keyword},{header}\nblue shoes,9\n"), "keyword", field) == [("blue shoes", meant)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("74000", 74000), ("74,000", 74000), ("1.2K", 1200), ("10K", 10_000), ("10 k", 10_000), ("1M", 1_000_000),
        ("2.25M", 2_250_000), ("1K – 10K", 1000), ("1K-10K", 1000), ("10-100", 10), ("10 — 100", 10),
        ("1,000 - 10,000", 1000), ("0", 0), ("-", None), ("--", None), ("N/A", None), ("n/a", None), ("∞", None),
        ("", None),
    ],
)  # fmt: skip
def test_volumes_are_read_as_they_are_shown(written: str, meant: int | None) -> None:
    outcome = check(f'Keyword,Volume\nblue shoes,"{written}"\n')
    assert rows(outcome, "volume") == [(meant,)]


# What is wrong with a record ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written", ["many", "1.2.3K", "K", "10-", "2025-07-01", "1e5", "9999999999999K", "1.5", "-5", "-1K"]
)
def test_what_is_no_volume_is_rejected(written: str) -> None:
    outcome = check(f"Keyword,Volume\nblue shoes,5\nred shoes,{written}\n")
    assert outcome.bins == Bins(header=1, accepted=1, rejected=1)
    [rejection] = outcome.rejections
    assert rejection["column_name"] == "Volume"
    assert rejection["message"].startswith("volume: expected ")


@pytest.mark.parametrize("nothing", ["", "  ", "-", "N/A", "\u3000", "\u00a0"])
def test_a_record_without_a_keyword_has_one_rejection_which_names_its_column(nothing: str) -> None:
    outcome = check(f"Top queries,Clicks\nblue shoes,1\n{nothing},2\n")
    assert outcome.bins == Bins(header=1, accepted=1, rejected=1)
    [rejection] = outcome.rejections
    got: dict[str, Any] = {name: rejection[name] for name in ("line", "column_name", "code", "more")}
    assert got == {"line": 3, "column_name": "Top queries", "code": "missing_value", "more": []}
    assert rejection["message"].startswith("keyword: expected a ")


def test_a_keyword_of_more_than_500_characters_is_rejected_once() -> None:
    outcome = check(f"Keyword\n{'x' * 500}\n{'y' * 501}\n")
    [rejection] = outcome.rejections
    assert (rejection["line"], rejection["code"], rejection["more"]) == (3, "too_long", [])
    assert rejection["message"].startswith("keyword: expected at most 500 characters, got 'yyy")


def test_two_keyword_columns_that_disagree_are_one_fault() -> None:
    outcome = check("Keyword,Keyword\nblue shoes,red shoes\nboots,boots\n")
    [rejection] = outcome.rejections
    assert (rejection["code"], rejection["more"]) == ("columns_disagree", [])
    assert rejection["message"].startswith("keyword: ")


@pytest.mark.parametrize("field", ["Volume", "KD", "CPC", "Clicks", "Impressions"])
def test_no_figure_is_negative(field: str) -> None:
    assert check(f"Keyword,{field}\nboots,1\nshoes,-1\n").codes == ["too_small"]


def test_a_record_without_a_keyword_is_an_aggregate_only_before_all_that_have_one() -> None:
    outcome = check("Keyword,Volume\n\n,500\nblue shoes,5\n,7\n")
    assert outcome.bins == Bins(header=1, blank=1, totals=1, accepted=1, rejected=1)
    assert [rejection["line"] for rejection in outcome.rejections] == [5]


def test_only_the_first_records_can_be_aggregates_and_only_with_a_figure() -> None:
    many = check("Keyword,Volume\n" + ",5\n" * 6 + "blue shoes,5\n")
    assert (many.bins.totals, many.bins.rejected) == (5, 1)
    none = check("Keyword,Intent,Volume\n,Local,\nblue shoes,Local,5\n")
    assert (none.bins.totals, none.bins.rejected) == (0, 1)


def test_a_file_of_aggregates_alone_has_no_data() -> None:
    with pytest.raises(FileRefused) as refused:
        check("Keyword,Volume\n,500\n")
    assert refused.value.code == "no_data"


def test_figures_without_a_keyword_column_are_refused_by_its_name() -> None:
    with pytest.raises(FileRefused) as refused:
        check("Suchbegriff,Volume,CPC\nschuhe,5,1\n")
    assert refused.value.code == "missing_column"
    assert refused.value.message.startswith("keyword: expected a column 'Keyword'")


@pytest.mark.parametrize(
    "garbage", [bytes(range(256)) * 20, b"\x00" * 500, b"\xd0\xcf\x11\xe0" + b"\x81" * 200]
)
def test_binary_garbage_is_no_list_of_keywords(tmp_path: Path, garbage: bytes) -> None:
    assert sniff(garbage, "keywords.txt") is None
    if b"\x00" in garbage:
        with pytest.raises(FileRefused):
            check_bytes(tmp_path, garbage)


def test_a_keyword_with_a_control_character_is_rejected() -> None:
    outcome = check("blue shoes\nred\x07shoes\nboots\x1b[0m\n")
    assert (outcome.bins.accepted, outcome.codes) == (1, ["bad_keyword"] * 2)
