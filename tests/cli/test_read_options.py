"""Read options, columns and warnings at the command line: `load`, `watch`, `uploads show`, `uploads retry`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from .conftest import Command

Query = Callable[..., list[tuple[Any, ...]]]
CSV = "Day,Campaign name,Impressions,Amount spent,Campaign ID\n2025-01-01,Spring,7,1.5,11\n"
SAID = (
    "--encoding", "UTF8", "--delimiter", "comma", "--decimal", "point", "--date-order", "ymd", "--sum-breakdowns",
)  # fmt: skip
STORED = {"encoding": "utf-8", "delimiter": ",", "decimal": ".", "date_order": "ymd", "sum_breakdowns": True}
REPORT = {
    "columns": [
        {"header": "Day", "use": "mapped", "fields": ["daily_metric.date"], "note": ""},
        {"header": "Currency", "use": "kept", "fields": [], "note": "the currency of all amounts"},
        {"header": "Reach", "use": "unused", "fields": [], "note": ""},
    ],
    "missing": [{"field": "daily_metric.spend", "header": "Amount spent", "guess": "Spent"}],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(CSV)
    return tmp_path / "a.csv"


def test_load_takes_each_option_and_stores_it(main: Command, file: Path, query: Query) -> None:
    loaded = main("load", file, "--platform", "meta", *SAID, "--json").json
    assert (loaded["status"], loaded["reading"]) == ("completed", STORED)
    assert query("SELECT reading FROM data_uploads") == [(STORED,)]
    again = main("load", file, "--platform", "meta", *SAID, "--json").json
    assert (again["upload_id"], again["duplicate"]) == (loaded["upload_id"], True)
    plain = main("load", file, "--platform", "meta", "--json").json
    assert (plain["duplicate"], plain["reading"]) == (False, {})
    assert plain["upload_id"] != loaded["upload_id"]


def test_load_refuses_an_invalid_option_with_a_hint(main: Command, file: Path, query: Query) -> None:
    refused = main("load", file, "--platform", "meta", "--delimiter", "semicolom", "--json")
    assert (refused.code, refused.json["error"]) == (1, "invalid_field")
    assert refused.json["message"].endswith("got 'semicolom'; did you mean 'semicolon'?")
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]


def test_load_prints_columns_missing_fields_and_warnings(main: Command, file: Path, query: Query) -> None:
    loaded = main("load", file, "--platform", "meta", "--json").json
    [warned] = main("uploads", "warnings", loaded["upload_id"], "--json").json
    names = ("code", "message", "line", "row_index")
    assert loaded["warnings"] == [{name: warned[name] for name in names}]
    assert loaded["warnings_total"] == 1
    query("UPDATE data_uploads SET column_report = %s", (Jsonb(REPORT),))
    again = main("load", file, "--platform", "meta", "--json").json
    assert (again["columns"], again["missing_fields"]) == (REPORT["columns"], REPORT["missing"])


def test_people_read_the_first_five_warnings_and_where_the_rest_is(
    main: Command, file: Path, query: Query
) -> None:
    loaded = main("load", file, "--platform", "meta", "--json").json
    query(
        "INSERT INTO upload_warnings (upload_id, workspace_id, row_index, line, code, message)"
        " SELECT id, workspace_id, n, n + 2, 'parent_not_found', 'No campaign ' || n || '.' FROM data_uploads,"
        " generate_series(1, 120) n"
    )
    query("UPDATE data_uploads SET warnings = 121")
    said = main("load", file, "--platform", "meta").out
    told = [line for line in said.splitlines() if line.startswith("Warning (")]
    assert len(told) == 5
    assert told[0].startswith("Warning (currency_not_named): ")
    assert told[1] == "Warning (parent_not_found): line 3: No campaign 1."
    assert f"And 116 more warnings about a.csv: weighbridge uploads warnings {loaded['upload_id']}" in said
    again = main("load", file, "--platform", "meta", "--json").json
    assert (len(again["warnings"]), again["warnings_total"]) == (100, 121)
    (file.parent / "b.csv").write_text(CSV.replace("Spring", "Autumn"))
    both = main("load", file, file.parent / "b.csv", "--platform", "meta").out
    assert "b.csv: Warning (currency_not_named): " in both


def test_show_has_the_same_keys_and_sentences(main: Command, file: Path, query: Query) -> None:
    loaded = main("load", file, "--platform", "meta", *SAID, "--json").json
    query("UPDATE data_uploads SET column_report = %s", (Jsonb(REPORT),))
    shown = main("uploads", "show", loaded["upload_id"], "--json").json
    assert (shown["columns"], shown["missing_fields"]) == (REPORT["columns"], REPORT["missing"])
    for name in ("warnings", "warnings_total", "reading"):
        assert shown[name] == loaded[name]
    assert "column_report" not in shown
    said = main("uploads", "show", loaded["upload_id"]).out
    for line in (
        "reading          encoding utf-8, delimiter comma, decimal ., date_order ymd, sum_breakdowns yes",
        "columns          Day: mapped to daily_metric.date",
        "Currency: kept (the currency of all amounts)",
        "Reach: unused",
        "missing_fields   daily_metric.spend (usual header: Amount spent; nearest column: Spent)",
        "warnings         Warning (currency_not_named): ",
        f"warnings_total   1: weighbridge uploads warnings {loaded['upload_id']}",
    ):
        assert line in said


def test_a_failed_upload_counts_its_warnings(main: Command, tmp_path: Path, query: Query) -> None:
    rows = "".join(f"2025-01-0{day},Spring,7,see invoice,11\n" for day in range(1, 6))
    (tmp_path / "poor.csv").write_text(CSV.partition("\n")[0] + "\n" + rows)
    done = main("load", tmp_path / "poor.csv", "--platform", "meta", "--json")
    assert (done.code, done.json["status"]) == (1, "failed")
    [(count, listed)] = query(
        "SELECT d.warnings, (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = d.id) FROM data_uploads d"
    )
    assert count == listed == done.json["warnings_total"] == len(done.json["warnings"]) == 1


def test_a_held_upload_counts_its_warnings(main: Command, file: Path, query: Query) -> None:
    held = main("load", file, "--platform", "meta", "--preview", "--json").json
    assert (held["status"], held["warnings_total"]) == ("staging_complete", 1)
    assert query("SELECT warnings FROM data_uploads") == [(1,)]


def test_retry_takes_the_options_and_reads_the_file_again(
    main: Command, tmp_path: Path, query: Query
) -> None:
    rows = "".join(f"2025-01-0{day},Spring,7,see invoice,11\n" for day in range(1, 6))
    (tmp_path / "poor.csv").write_text(CSV.partition("\n")[0] + "\n" + rows)
    said = ("--platform", "meta", "--json", "--date-order", "mdy", "--sum-breakdowns")
    failed = main("load", tmp_path / "poor.csv", *said).json
    refused = main("uploads", "retry", failed["upload_id"], "--decimal", "x")
    assert (refused.code, "decimal: expected a point" in refused.err) == (1, True)
    options = ("--date-order", "dmy", "--decimal", "comma", "--no-sum-breakdowns")
    opened = main("uploads", "retry", failed["upload_id"], *options, "--json").json
    assert opened["status"] == "pending"
    stored = {"date_order": "dmy", "decimal": ","}
    [row] = query("SELECT reading, staged, bins, staged_digest IS NOT NULL FROM data_uploads")
    assert row == (stored, {}, None, True)
    [(detail,)] = query("SELECT detail FROM weighbridge.audit_log WHERE action = 'upload.retry'")
    assert (detail["reading"], detail["reading_before"]) == (
        stored,
        {"date_order": "mdy", "sum_breakdowns": True},
    )
    shown = main("uploads", "show", failed["upload_id"], "--json").json
    assert (shown["warnings"], shown["warnings_total"], shown["columns"]) == ([], 0, [])


def test_a_file_that_is_not_detected_is_loaded_by_a_retry_with_its_delimiter(
    main: Command, tmp_path: Path, query: Query
) -> None:
    (tmp_path / "a.csv").write_text(CSV.replace(",", "^").replace("Spring", "Spring, early"))
    failed = main("load", tmp_path / "a.csv", "--platform", "meta", "--json").json
    assert failed["status"] == "failed"
    assert main("uploads", "retry", failed["upload_id"], "--delimiter", "^", "--encoding", "ansi").code == 0
    options = ("--delimiter", "^", "--encoding", "windows-1252", "--json")
    again = main("load", tmp_path / "a.csv", "--platform", "meta", *options).json
    assert (again["upload_id"], again["duplicate"]) == (failed["upload_id"], True)
    assert (again["status"], again["promoted_rows"]) == ("completed", 1)
    assert query("SELECT name FROM campaigns") == [("Spring, early",)]
    assert {each["header"]: each["use"] for each in again["columns"]}["Campaign name"] == "mapped"


def test_an_ambiguous_file_is_loaded_by_a_retry_with_its_date_order(
    main: Command, tmp_path: Path, query: Query
) -> None:
    header = "Day,Campaign name,Impressions,Amount spent (USD),Unique link clicks\n"
    (tmp_path / "a.csv").write_text(f"{header}03/04/2025,Spring,7,1.50,9\n05/04/2025,Spring,8,2.50,9\n")
    failed = main("load", tmp_path / "a.csv", "--platform", "meta", "--json").json
    assert (failed["status"], query("SELECT error_code FROM data_uploads")) == (
        "failed",
        [("ambiguous_dates",)],
    )
    assert main("uploads", "retry", failed["upload_id"], "--date-order", "dmy").code == 0
    again = main("load", tmp_path / "a.csv", "--platform", "meta", "--date-order", "dmy", "--json").json
    assert (again["upload_id"], again["duplicate"]) == (failed["upload_id"], True)
    assert (again["status"], again["affected_dates"]) == ("completed", ["2025-04-03", "2025-04-05"])
    uses = {each["header"]: each["use"] for each in again["columns"]}
    assert uses["Campaign name"] == "mapped"
    assert uses["Unique link clicks"] == "unused"
    assert "unused_columns" in {each["code"] for each in again["warnings"]}


def test_watch_gives_its_options_to_every_file(main: Command, tmp_path: Path, query: Query) -> None:
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "a.csv").write_text(CSV)
    options = ("--platform", "meta", "--once", "--settle", "0", "--json")
    done = main("watch", tmp_path / "drop", *options, *SAID)
    assert done.code == 0, done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [each["event"] for each in told] == ["received", "completed"]
    assert told[-1]["warnings"] == 1
    assert query("SELECT reading FROM data_uploads") == [(STORED,)]
    refused = main("watch", tmp_path / "drop", "--platform", "meta", "--date-order", "dym", "--json")
    assert refused.code == 1
    assert "date_order: expected dmy" in refused.err
