"""Rejects at the command line: the open rows, all rows, the spreadsheet-safe form, and the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import Command

from .conftest import changed, table

CASES = "Case Number,Plaintiff,Amount,Code\n=CV-1,A,many,a\nCV-2,B,2,b\nCV-3,C,few,c\n"


def test_rejects_are_fixed_at_the_command_line(main: Command, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(CASES)
    options = ("--pipeline", "judgments", "--json", "--force-partial")
    first = main("load", "cases.csv", *options).json["upload_id"]
    written = main("uploads", "rejects", first, "--out", "rejects.csv", "--spreadsheet-safe")
    assert (written.code, written.err) == (0, "Written to rejects.csv.\n")
    rejects = (tmp_path / "rejects.csv").read_bytes().decode()
    assert [row["Case Number"] for row in table(rejects)] == ["'=CV-1", "CV-3"]
    fixed = changed(rejects, lambda row: {**row, "Amount": "5"} if row["Code"] == "a" else row)
    (tmp_path / "fixed.csv").write_text(fixed)
    second = main("load", "fixed.csv", *options).json["upload_id"]

    assert [row["Case Number"] for row in table(main("uploads", "rejects", first).out)] == ["CV-3"]
    every = table(main("uploads", "rejects", first, "--all").out)
    assert [row["Case Number"] for row in every] == ["=CV-1", "CV-3"]
    shown = main("uploads", "show", first, "--json").json
    assert (shown["open_rejects"], shown["fixed_rows"], shown["fixes"]) == (1, 1, [])
    assert shown["fixed_by"] == [{"upload_id": second, "filename": "fixed.csv", "rows": 1}]
    assert f"fixed_by         1 row: upload {second}\n" in main("uploads", "show", first).out
    assert f"fixes            1 row: upload {first}\n" in main("uploads", "show", second).out


def test_rejected_rows_whose_retention_period_is_over_are_reported_as_deleted(
    main: Command, tmp_path: Path, query: Any
) -> None:
    (tmp_path / "cases.csv").write_text(CASES)
    options = ("--pipeline", "judgments", "--json", "--force-partial")
    upload = main("load", "cases.csv", *options).json["upload_id"]
    assert "deleted" not in main("uploads", "rejects", upload).err
    query("DELETE FROM upload_rejections")
    written = main("uploads", "rejects", upload)
    assert (written.code, table(written.out)) == (0, [])
    assert written.err == (
        "The rejected rows were deleted: the retention period (setting rejection_days) is over.\n"
    )


def test_how_a_file_was_read_is_shown_in_words(main: Command, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("Case Number;Plaintiff;Amount;Date\nCV-1;A;12,50;13/4/2025\n")
    first = main("load", "cases.csv", "--pipeline", "judgments", "--sum-breakdowns", "--json").json[
        "upload_id"
    ]
    [shown] = [line for line in main("uploads", "show", first).out.splitlines() if line.startswith("read_as")]
    assert shown.split(maxsplit=1)[1] == (
        "decimal mark: comma, date order: dmy, delimiter: semicolon, breakdowns added up"
    )
