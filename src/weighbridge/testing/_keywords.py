"""Keywords as tools for search export them: each in its own layout, the same keyword in several spellings."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weighbridge.testing._text import BOMS

KeywordLayout = Literal[
    "ahrefs", "semrush", "semrush_semicolon", "keyword_planner", "search_console", "plain"
]
WORDS = (
    "best", "blue", "box", "boxes", "cheap", "children", "coffee", "for", "how", "house", "houses", "in", "jeans",
    "kids", "lens", "machine", "men's", "near", "of", "online", "red", "running", "shoe", "shoes", "size", "the", "to",
    "used", "vs", "watch", "watches", "women's",
)  # fmt: skip


@dataclass(frozen=True)
class _ToolFormat:
    """How one tool writes a file. A column is its header and a cell, over the figures of a keyword."""

    columns: dict[str, str]
    delimiter: str = ","
    encoding: str = "utf-8"
    quoting: int = csv.QUOTE_MINIMAL
    preamble: tuple[str, ...] = ()
    totals: int = 0  # records of figures without a keyword, right after the header
    header: bool = True


_SEMRUSH = {
    "Keyword": "{keyword}",
    "Intent": "Informational, Commercial",
    "Volume": "{volume}",
    "Trend": "0.82,1.00,0.67",
    "Keyword Difficulty": "{difficulty}.00",
    "CPC (USD)": "{cpc}",
    "SERP Features": "Sitelinks, Reviews",
}
_TOOL_FORMATS: dict[KeywordLayout, _ToolFormat] = {
    "ahrefs": _ToolFormat(
        {
            "#": "{number}",
            "Keyword": "{keyword}",
            "Country": "us",
            "Difficulty": "{difficulty}",
            "Volume": "{volume}",
            "CPC": "{cpc}",
            "CPS": "",
            "Parent Keyword": "shoes",
            "Last Update": "2025-07-01 04:05:06",
            "SERP Features": "Sitelinks, Thumbnail",
            "Global volume": "{impressions}",
            "Traffic potential": "{clicks}",
        },
        delimiter="\t",
        encoding="utf-16",
        quoting=csv.QUOTE_ALL,
    ),
    "semrush": _ToolFormat(_SEMRUSH),
    "semrush_semicolon": _ToolFormat(
        _SEMRUSH
        | {"Trend": "0,82,1,00,0,67", "Keyword Difficulty": "{difficulty},00", "CPC (USD)": "{cpc_comma}"},
        delimiter=";",
    ),
    "keyword_planner": _ToolFormat(
        {
            "Keyword": "{keyword}",
            "Currency": "USD",
            "Avg. monthly searches": "{rough}",
            "Three month change": "∞",
            "YoY change": "0%",
            "Competition": "High",
            "Top of page bid (low range)": "{cpc}",
            "Top of page bid (high range)": "9.99",
        },
        delimiter="\t",
        encoding="utf-16",
        preamble=("Keyword Stats 2025-07-31 at 12_30_00", "July 1, 2024 - June 30, 2025"),
        totals=2,
    ),
    "search_console": _ToolFormat(
        {
            "Top queries": "{keyword}",
            "Clicks": "{clicks}",
            "Impressions": "{impressions}",
            "CTR": "1.5%",
            "Position": "7.25",
        }
    ),
    "plain": _ToolFormat({"Keyword": "{keyword}"}, header=False),
}


@dataclass(frozen=True)
class WrittenKeywords:
    """The content of a generated file, as counts of records."""

    path: Path
    preamble: int
    header: int
    totals: int
    rows: int
    keywords: int  # different ones, with any spelling


def write_keywords(
    path: Path, rows: int, layout: KeywordLayout = "ahrefs", seed: int = 1, words: Sequence[str] = WORDS
) -> WrittenKeywords:
    """One keyword per row, of two to five of the `words`; some are repeated with another spelling and other figures."""
    chance, tool = random.Random(seed), _TOOL_FORMATS[layout]
    seen: set[str] = set()
    with path.open("w", encoding=tool.encoding.replace("16", "16-le"), newline="") as file:
        file.write("\ufeff" if tool.encoding in BOMS else "")
        file.writelines(f"{line}\n" for line in tool.preamble)
        writer = csv.writer(file, delimiter=tool.delimiter, quoting=tool.quoting, lineterminator="\n")  # type: ignore[arg-type]
        if tool.header:
            writer.writerow(tool.columns)
        for number in range(tool.totals + rows):
            keyword = ""
            if number >= tool.totals:
                keyword = " ".join(chance.choices(words, k=chance.randint(2, 5)))
                seen.add(keyword)
            writer.writerow(_cells(tool, number, _spelt(keyword, chance), chance))
    return WrittenKeywords(path, len(tool.preamble), int(tool.header), tool.totals, rows, len(seen))


def _cells(tool: _ToolFormat, number: int, keyword: str, chance: random.Random) -> list[str]:
    impressions = chance.randrange(100_000)
    cents = chance.randrange(2_000)
    figures = {
        "number": number + 1,
        "keyword": keyword,
        "volume": chance.randrange(100_000),
        "rough": chance.choice(("10 – 100", "100 – 1K", "1K – 10K", "1M – 10M")),
        "difficulty": chance.randrange(101),
        "cpc": f"{cents // 100}.{cents % 100:02}",
        "cpc_comma": f"{cents // 100},{cents % 100:02}",
        "clicks": impressions // 50,
        "impressions": impressions,
    }
    return [cell.format_map(figures) for cell in tool.columns.values()]


def _spelt(keyword: str, chance: random.Random) -> str:
    return chance.choice((keyword, keyword.upper(), keyword.title(), keyword.replace(" ", "  ")))
