"""`weighbridge load`, `uploads` and `watch`: from a file to rows, and the commands that show the result."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests import prefork
from weighbridge.model.rejects_layout import ADDED
from weighbridge.testing.exports import ExportSpec, Written, write_export

from .conftest import Command

WORKSPACE = str(uuid4())
NAMES = [
    "upload_id", "status", "duplicate", "total_rows", "promoted_rows", "failed_rows", "inserted", "updated",
    "unchanged", "superseded", "bins", "campaigns_upserted", "ad_sets_upserted", "ads_upserted",
    "daily_metrics_upserted", "affected_dates", "error_code", "error_text", "columns",
    "missing_fields", "warnings", "warnings_total", "reading",
]  # fmt: skip


@pytest.fixture
def export(tmp_path: Path) -> Written:
    """30 good rows, a bad one, and a repeat."""
    defects = ("text_in_money", "equal_repeat")
    return write_export(
        tmp_path / "export.csv",
        ExportSpec("meta", "ad", campaigns=1, ad_sets=1, ads=3, days=10, defects=defects),
    )


def test_the_life_of_an_upload_at_the_command_line(
    weighbridge: Command, main: Command, export: Written, query: Callable[..., Any]
) -> None:
    options = ("--pipeline", "ads", "--platform", "meta", "--workspace", WORKSPACE, "--json")
    loaded = weighbridge("load", export.path, *options)
    assert (loaded.code, loaded.err) == (0, "")
    first = loaded.json
    assert list(first) == NAMES
    assert (first["status"], first["duplicate"], first["error_text"]) == ("completed", False, None)
    assert (first["total_rows"], first["promoted_rows"], first["failed_rows"]) == (31, 29, 1)
    assert (first["inserted"], first["updated"], first["unchanged"]) == (29, 0, 0)
    assert sum(first["bins"].values()) == export.records
    assert list(first["bins"]) == [
        "preamble",
        "header",
        "blank",
        "totals",
        "accepted",
        "duplicate",
        "rejected",
    ]
    assert (first["campaigns_upserted"], first["ads_upserted"], first["daily_metrics_upserted"]) == (1, 3, 29)
    assert len(first["affected_dates"]) == 10
    assert query("SELECT count(*) FROM daily_metrics") == [(29,)]

    again = main("load", export.path, *options)
    assert again.code == 0
    assert again.json == {**first, "duplicate": True}

    forced = main("load", export.path, *options, "--force").json
    assert forced["upload_id"] != first["upload_id"]
    assert (forced["duplicate"], forced["inserted"], forced["unchanged"]) == (False, 0, 29)
    assert forced["daily_metrics_upserted"] == 0

    listed = main("uploads", "list", "--workspace", WORKSPACE, "--json").json
    assert [each["upload_id"] for each in listed] == [forced["upload_id"], first["upload_id"]]
    shown = main("uploads", "show", first["upload_id"], "--json").json
    assert (shown["filename"], shown["bins"]) == ("export.csv", first["bins"])
    assert [reason["rows"] for reason in shown["reasons"]] == [1]

    rejects = list(csv.reader(io.StringIO(main("uploads", "rejects", first["upload_id"]).out)))
    (line,) = [number for number, defect in export.defects.items() if defect == "text_in_money"]
    assert len(rejects) == 2
    assert rejects[0][-6:] == list(ADDED)
    assert rejects[1][-6:-3] == [first["upload_id"], str(line - 1), str(line)]
    assert "see invoice" in rejects[1]

    traced = [moment["what"] for moment in main("uploads", "trace", first["upload_id"], "--json").json]
    states = ["received", "attempt opened", "processing", "staging_complete", "promoting", "completed"]
    assert [what for what in traced if what in states] == states
    assert {"attempt done", "IngestionCompleteEvent", "delivered"} <= set(traced)

    retried = main("uploads", "retry", first["upload_id"])
    assert (retried.code, retried.out) == (1, "")
    assert retried.err == (
        "weighbridge: Only a failed or partial upload can be retried; this one is completed.\n"
    )


def test_several_files_are_a_list_with_the_error_of_a_refused_file(
    main: Command, export: Written, tmp_path: Path, query: Callable[..., Any]
) -> None:
    picture = tmp_path / "picture.csv"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    done = main("load", export.path, picture, "--platform", "meta", "--json")
    assert done.code == 1
    good, bad = done.json
    assert good["status"] == "completed"
    assert bad == {
        "file": str(picture),
        "error": "unsupported_format",
        "message": "file ('picture.csv'): expected CSV or JSON, got a PNG picture. Export the figures as CSV.",
    }
    assert done.err == f"weighbridge: picture.csv: {bad['message']}\n"
    assert query("SELECT workspace_id::text FROM data_uploads") == [("00000000-0000-4000-8000-000000000001",)]


def test_warnings_about_a_file_are_listed(main: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "Day,Campaign name,Campaign ID,Impressions,Amount spent\n2025-01-01,Spring,11,7,1.5\n"
    )
    shown = main("load", tmp_path / "a.csv", "--platform", "meta").out
    loaded = main("load", tmp_path / "a.csv", "--platform", "meta", "--json").json
    assert f"Warnings about a.csv: weighbridge uploads warnings {loaded['upload_id']}" in shown
    assert main("uploads", "show", loaded["upload_id"], "--json").json["warnings_total"] == 1
    [warned] = main("uploads", "warnings", loaded["upload_id"], "--json").json
    assert (warned["row_index"], warned["line"], warned["code"]) == (-1, 1, "currency_not_named")
    told = main("uploads", "warnings", loaded["upload_id"]).out
    assert told == f"line 1  currency_not_named  {warned['message']}\n"


def test_a_poor_file_fails_unless_it_is_forced(main: Command, tmp_path: Path) -> None:
    export = write_export(
        tmp_path / "poor.csv",
        ExportSpec(
            "meta", "campaign", campaigns=1, days=4, defects=("text_in_money", "negative_impressions")
        ),
    )
    failed = main("load", export.path, "--platform", "meta", "--json")
    assert (failed.code, failed.json["status"]) == (1, "failed")
    assert failed.err == f"weighbridge: poor.csv: {failed.json['error_text']}\n"
    partial = main("load", export.path, "--platform", "meta", "--json", "--force-partial")
    assert (partial.code, partial.json["status"], partial.json["promoted_rows"]) == (0, "partial", 2)


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (
            ["--platform", "mta"],
            1,
            "platform: expected one of meta, google, tiktok, got 'mta'; did you mean 'meta'?",
        ),
        (["--platform", "meta", "--workspace", "12"], 1, "workspace_id: expected a UUID such as"),
        (
            ["--platform", "meta", "--pipeline", "adz"],
            1,
            "expected one of ads, conversions, judgments, keywords, got 'adz'; did you mean 'ads'?",
        ),
        (["--plattform", "meta"], 2, "No such option: --plattform"),
    ],
)
def test_a_wrong_option_is_said_in_a_sentence(
    main: Command, export: Written, options: list[str], code: int, sentence: str
) -> None:
    done = main("load", export.path, *options, "--json")
    assert done.code == code
    assert sentence in done.err


def test_watch_takes_what_is_dropped_into_a_folder(
    environment: dict[str, str], tmp_path: Path, weighbridge: Command
) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    spec = ExportSpec("meta", "campaign", campaigns=2, days=3)
    write_export(folder / "early.csv", spec)
    process = subprocess.Popen(
        [prefork.command(), "watch", folder, "--platform", "meta", "--settle", "0.1",
         "--move", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        said: list[dict[str, Any]] = []

        def until(event: str) -> dict[str, Any]:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(json.loads(line))
                if said[-1]["event"] == event:
                    return said[-1]
            raise AssertionError(f"ended after {said}: {process.communicate()[1]}")

        assert until("completed")["promoted_rows"] == 6
        write_export(folder / "late.csv.part", ExportSpec("meta", "campaign", campaigns=3, days=3, seed=9))
        (folder / "late.csv.part").rename(folder / "late.csv")
        assert (until("completed")["file"], said[-1]["promoted_rows"]) == ("late.csv", 9)
        write_export(folder / "early.csv", spec)  # the same content again
        assert until("duplicate")["upload_id"] == said[0]["upload_id"]
        (folder / "notes.txt").write_bytes(b"\x00\x01")
        assert until("refused")["error"] == "unsupported_format"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        logged = [json.loads(line)["event"] for line in errors.splitlines()]  # nobody may be watching
        assert (logged.count("Job completed"), logged.count("Duplicate skipped")) == (2, 1)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert kept == ["received/early.1.csv", "received/early.csv", "received/late.csv", "refused/notes.txt"]

    once = weighbridge(
        "watch", folder / "received", "--platform", "meta", "--once", "--settle", "0", "--json"
    )
    assert once.code == 0
    assert [json.loads(line)["event"] for line in once.out.splitlines()] == ["duplicate"] * 3
