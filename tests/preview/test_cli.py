"""Previews at the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command
from tests.engine.conftest import HEADER, meta_file, meta_line

OF = ("--platform", "meta")


def test_a_preview_at_the_command_line(main: Command, tmp_path: Path) -> None:
    file = tmp_path / "meta.csv"
    file.write_bytes(meta_file(days=1))
    held = main("load", file, *OF, "--preview", "--json")
    assert (held.code, held.err, held.json["status"]) == (0, "", "staging_complete")
    assert held.json["preview"]["entities"]["daily_metric"] == {"inserted": 4, "updated": 0, "unchanged": 0}
    upload_id = held.json["upload_id"]
    promoted = main("uploads", "promote", upload_id)
    assert (promoted.code, promoted.out) == (
        0,
        f"{upload_id} is queued for promotion. It counts as arrived now.\n",
    )
    again = main("uploads", "promote", upload_id)
    assert (again.code, again.err) == (
        1,
        "weighbridge: Only a preview that is on hold can be promoted; "
        "this upload is in progress: staging_complete.\n",
    )
    assert (
        main("load", file, *OF, "--json").json["status"] == "completed"
    )  # waits for the one that is on its way

    file.write_text("\n".join([HEADER, meta_line("2026-01-01", 1, impressions=7)]))
    told = main("load", file, *OF, "--preview")
    assert told.code == 0
    assert "on hold" in told.out
    upload_id = told.out.split("uploads promote ")[1].split()[0]
    assert f"weighbridge uploads preview {upload_id} --rows updated" in told.out
    assert f"weighbridge uploads discard {upload_id}" in told.out
    rows = main("uploads", "preview", upload_id, "--rows", "updated").out
    assert rows.splitlines()[1:] == ["    impressions: 100 → 7"]
    wrong = main("uploads", "preview", upload_id, "--rows", "updatd")
    assert (wrong.code, wrong.err) == (
        1,
        "weighbridge: kind: expected one of inserted, updated, unchanged, got 'updatd'; did you mean 'updated'?\n",
    )
    assert main("uploads", "list").out.count("on hold") == 1
    assert main("uploads", "discard", upload_id, "--json").json["error_code"] == "discarded"
    gone = main("uploads", "preview", upload_id, "--json")
    assert (gone.code, gone.err) == (
        1,
        "weighbridge: Only a preview that is on hold can be compared; this upload was discarded.\n",
    )
    assert main("load", file, *OF, "--json").json["updated"] == 1
