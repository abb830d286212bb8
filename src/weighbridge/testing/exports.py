"""Export files as the platforms write them, for the demo, the tests and the bench.

    written = write_export(path, ExportSpec("google", level="campaign", days=30, encoding="utf-16"))

    written = write_judgments(path, rows=1000, family="court")

    written = write_keywords(path, rows=1000, layout="semrush")

The same spec gives the same bytes. `Written` describes the content of the file, so that a test need not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.testing import _text as text
from weighbridge.testing._facts import Facts, make_facts
from weighbridge.testing._judgments import Family, WrittenJudgments, write_judgments
from weighbridge.testing._keywords import KeywordLayout, WrittenKeywords, write_keywords
from weighbridge.testing._layouts import Column, Role, layout
from weighbridge.testing._spec import Defect, Encoding, ExportSpec, Level, Platform

__all__ = [
    "Defect",
    "Encoding",
    "ExportSpec",
    "Family",
    "KeywordLayout",
    "Level",
    "Platform",
    "Written",
    "WrittenJudgments",
    "WrittenKeywords",
    "bench_meta_export",
    "write_demo_exports",
    "write_export",
    "write_judgments",
    "write_keywords",
    "write_samples",
]

_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Written:
    """The content of a generated file, as counts of records."""

    path: Path
    preamble: int
    header: int
    totals: int
    blank: int
    rows: int  # data records, including bad and repeated ones
    defects: dict[int, Defect] = field(default_factory=dict)  # by line, counted from 1
    campaigns: int = 0
    ad_sets: int = 0
    ads: int = 0
    impressions: int = 0  # sums over all rows, as in the totals row
    spend: Decimal = Decimal(0)

    @property
    def records(self) -> int:
        return self.preamble + self.header + self.totals + self.blank + self.rows


def write_export(path: Path, spec: ExportSpec) -> Written:
    """Write the file that `spec` describes."""
    columns, facts = layout(spec), _facts(spec)
    preamble, header = _preamble(spec), [column.header for column in columns]
    totals = _totals(spec, columns, facts) if spec.totals and len(facts) else []
    above, below = (
        ([*preamble, header, *totals], []) if spec.platform == "meta" else ([*preamble, header], totals)
    )
    if spec.empty and spec.platform == "meta":
        above.append(["No data available."])
    below = [*below, *[[""]] * spec.blank_lines]

    spoiled = _spoiled_rows(spec, len(facts))
    heights = [np.zeros(0, np.int64)]  # lines that each row takes: more than one where a name has line breaks
    with path.open("wb") as file:
        file.write(text.BOMS.get(spec.encoding, b""))
        file.write(_few(above, spec))
        for first in range(0, len(facts), _ROWS_AT_ONCE):
            cells = [column.cells(facts.take(slice(first, first + _ROWS_AT_ONCE))) for column in columns]
            records = text.joined(_spoil(cells, columns, spoiled, first), spec.separator, spec.line_end)
            heights.append(pc.count_substring(records, "\n").to_numpy())
            file.write(text.encoded(records, spec.encoding))
        file.write(_few(below, spec))

    line = 1 + len(above) + np.concatenate([[0], np.cumsum(np.concatenate(heights))])
    return Written(
        path=path,
        preamble=len(preamble),
        header=1,
        totals=len(totals),
        blank=spec.blank_lines,
        rows=len(facts) if not spec.empty else len(above) - len(preamble) - 1,
        defects={int(line[row]): defect for row, defect in spoiled.items()},
        campaigns=len(np.unique(facts.campaign)),
        ad_sets=len(np.unique(facts.ad_set)) if spec.level != "campaign" else 0,
        ads=len(np.unique(facts.ad)) if spec.level == "ad" else 0,
        impressions=int(facts.impressions.sum()),
        spend=Decimal(int(facts.spend.sum())) / 100,
    )


def write_demo_exports(folder: Path) -> list[Written]:
    """Three files, one per platform, a few thousand rows each, with a handful of bad rows in each."""
    bad: tuple[Defect, ...] = (
        "negative_impressions", "text_in_money", "missing_date", "equal_repeat", "conflicting_repeat",
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_export(folder / name, spec)
        for name, spec in {
            "meta-ads-daily.csv": ExportSpec(
                "meta", "ad", campaigns=4, ad_sets=3, ads=4, days=90, defects=("mangled_id", *bad)
            ),
            "google-campaigns-daily.csv": ExportSpec(
                "google", "campaign", campaigns=24, days=90, defects=("mangled_id", *bad), encoding="utf-16"
            ),
            "tiktok-ads-daily.csv": ExportSpec(
                "tiktok", "ad", campaigns=3, ad_sets=3, ads=3, days=90, defects=bad
            ),
        }.items()
    ]


def write_samples(folder: Path) -> list[Path]:
    """A file of each kind: the three exports of the demo, court judgments, and two keyword lists."""
    paths = [written.path for written in write_demo_exports(folder)]
    judgments = write_judgments(folder / "court-judgments.csv", rows=200, family="court")
    months = {"january": 1, "february": 2}
    lists = [
        write_keywords(folder / f"keywords-{month}.csv", rows=300, layout="semrush", seed=seed)
        for month, seed in months.items()
    ]
    return [*paths, judgments.path, *(each.path for each in lists)]


def bench_meta_export(path: Path, rows: int = 380_000) -> Written:
    """An ad-level daily Meta export of a year: 180 bytes a row, so that 380,000 rows are 68 MB."""
    days, ad_sets, ads = 365, 4, 4
    campaigns = math.ceil(rows / (days * ad_sets * ads))
    columns = (
        "Day", "Campaign name", "Campaign ID", "Ad set name", "Ad set ID", "Ad name", "Ad ID",
        "Reach", "Impressions", "Link clicks", "Amount spent (USD)",
        "Purchases", "Purchases conversion value",
    )  # fmt: skip
    spec = ExportSpec(
        "meta", "ad", campaigns, ad_sets, ads, days, start=date(2024, 7, 1), rows=rows, columns=columns
    )
    return write_export(path, spec)


def _facts(spec: ExportSpec) -> Facts:
    """The rows of the export, repeats included."""
    facts = make_facts(spec.entities, 1 if spec.aggregate else spec.days, spec.seed)
    facts = facts.take(slice(0, 0 if spec.empty else spec.rows))
    return facts.with_repeats(spec.defects.count("equal_repeat"), spec.defects.count("conflicting_repeat"))


def _preamble(spec: ExportSpec) -> list[list[str]]:
    """Google's title and range; old files have the title alone."""
    last = spec.start + timedelta(days=spec.days - 1)
    title = {"campaign": "Campaign report", "ad_set": "Ad group report", "ad": "Ad report"}[spec.level]
    lines = [
        [title],
        [f"{spec.start:%B} {spec.start.day}, {spec.start.year} - {last:%B} {last.day}, {last.year}"],
    ]
    return lines[: (2 if spec.platform == "google" else 0) if spec.preamble is None else spec.preamble]


def _totals(spec: ExportSpec, columns: Sequence[Column], facts: Facts) -> list[list[str]]:
    """The sums, as the platform prints them."""
    sums = facts.total()
    nothing = {"meta": "", "google": " --", "tiktok": "-"}[spec.platform]
    metrics = ("metric", "impressions", "spend")
    row = [column.cells(sums)[0].as_py() if column.role in metrics else nothing for column in columns]
    match spec.platform:
        case "meta":
            days = [spec.start, spec.start + timedelta(days=spec.days - 1)]
            for index, column in enumerate(columns[:2]):
                row[index] = (
                    days[index].isoformat() if column.role == "day" and column.header != "Day" else ""
                )
            return [row]
        case "google":
            labels = ["Total: Campaigns", "Total: Account"]
            at = spec.totals_column
            return [[*row[:at], label, *row[at + 1 :]] for label in labels]
        case "tiktok":
            return [[f"Total of {len(facts)} results", *row[1:]]]


def _spoiled_rows(spec: ExportSpec, rows: int) -> dict[int, Defect]:
    """The defects by row: repeats are at the end, the others are spread over the file."""
    in_place = [defect for defect in spec.defects if not defect.endswith("_repeat")]
    repeats = sorted((defect for defect in spec.defects if defect.endswith("_repeat")), reverse=True)
    original = rows - len(repeats)
    spread = {
        original * (number + 1) // (len(in_place) + 1): defect for number, defect in enumerate(in_place)
    }
    return spread | {original + number: defect for number, defect in enumerate(repeats)}


def _spoil(
    cells: list[pa.StringArray], columns: Sequence[Column], spoiled: dict[int, Defect], first: int
) -> list[pa.StringArray]:
    """Write the bad values over the good ones, in the rows of this part of the file."""
    for row, defect in spoiled.items():
        if defect not in _BAD_VALUES or not first <= row < first + len(cells[0]):
            continue
        role, value = _BAD_VALUES[defect]
        for index, column in enumerate(columns):
            if column.role == role:
                at = row - first
                cells[index] = pa.concat_arrays(
                    [cells[index][:at], pa.array([value], pa.string()), cells[index][at + 1 :]]
                )
    return cells


_BAD_VALUES: dict[Defect, tuple[Role, str]] = {
    "mangled_id": ("id", "1.20253E+17"),
    "negative_impressions": ("impressions", "-5"),
    "text_in_money": ("spend", "see invoice"),
    "missing_date": ("day", ""),
    "impossible_date": ("day", "2025-02-30"),
    "missing_name": ("name", ""),
    "formula": ("name", "=1+1"),
}


def _few(records: Sequence[Sequence[str]], spec: ExportSpec) -> bytes:
    """The bytes of records that are not rows: title, header, totals, blank lines."""
    lines = [text.joined([[cell] for cell in record], spec.separator, spec.line_end) for record in records]
    return b"".join(text.encoded(line, spec.encoding) for line in lines)
