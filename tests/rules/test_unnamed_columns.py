"""Empty names at the end of a header: their cells must be empty, or the record has a cell too many."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rules.checking import check_text, meta
from weighbridge import Entity, Field, Pipeline
from weighbridge.formats import open_sheet, without_added_columns
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins
from weighbridge.pipelines import judgments

OWN = Pipeline(
    "own",
    [
        Entity(
            "own",
            ["key"],
            [
                Field("key", str, header=["Key"], required=True),
                Field("amount", Decimal, header=["Amount"]),
            ],
            name="one",
        )
    ],
    min_valid=0,
)
META = "Campaign name,Campaign ID,Day,Impressions,Amount spent (USD)"


@pytest.mark.parametrize("end", [",", ",,,"])
def test_a_cell_under_an_empty_name_at_the_end_rejects_its_record(end: str) -> None:
    text = meta(
        f"A,1201,2025-01-01,10,1234.50{end}", f"B,1202,2025-01-01,20,1,234.50{end[1:]}", header=META + end
    )
    outcome = check_text(text)
    assert [row["spend"] for row in outcome.metrics] == [Decimal("1234.5")]
    [rejection] = outcome.rejections
    assert (rejection["code"], rejection["line"]) == ("unnamed_cell", 3)
    assert "check its quotes and separators" in rejection["message"]
    assert rejection["raw"][:6] == ["B", "1202", "2025-01-01", "20", "1", "234.50"]


def test_a_comma_in_a_name_does_not_shift_a_judgment() -> None:
    outcome = check_text(
        "Case Number,Filing Date,Judgment Amount,Plaintiff,Defendant,\n"
        "24-1,2025-01-02,500,Ann Lee,Bob Ray,\n24-2,2025-01-03,700,Smith, John,Jane Roe\n",
        None,
        pipeline=judgments.pipeline,
    )
    assert (outcome.bins.accepted, outcome.codes) == (1, ["unnamed_cell"])


@pytest.mark.parametrize("end", [",", ",,", ", "])
def test_most_records_with_a_cell_under_an_empty_name_refuse_the_file(end: str) -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(f"Key,Amount{end}\nA,1,50\nB,2,75\nC,3,00\n", None, pipeline=OWN)
    assert refused.value.code in ("header_too_short", "header_width")


def test_empty_cells_under_an_empty_name_do_no_harm() -> None:
    outcome = check_text("Key,Amount,\nA,1,\nB,2,\n\nC,3,\n", None, pipeline=OWN)
    assert (outcome.bins, outcome.warnings) == (Bins(header=1, blank=1, accepted=3), {})


def test_records_of_several_widths_are_checked_too() -> None:
    text = "Key,Amount,\nA,1\nB,2\nC,3,50\nD,4,\nE,5,6,7\n"
    outcome = check_text(text, None, pipeline=OWN)
    assert [row["key"] for row in outcome.rows["one"]] == ["D"]


def test_a_rejects_file_has_the_same_rule(tmp_path: Path) -> None:
    path = tmp_path / "rejects.csv"
    path.write_text("Key,Amount,,weighbridge_upload,weighbridge_row\nA,1,,,\nB,2,75,,\n")
    sheet: Any = without_added_columns(
        open_sheet(path, "csv", count_fields=lambda cells: "Key" in cells, scratch=tmp_path)
    )
    assert [fault for batch in sheet.batches() for fault in batch.column("fault").to_pylist()] == [
        None,
        "unnamed_cell",
    ]
