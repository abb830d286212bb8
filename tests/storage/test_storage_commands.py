"""`weighbridge storage list|retry|drop`, at the command line."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import Command
from tests.cli.conftest import environment as environment
from tests.cli.conftest import main as main
from tests.conftest import Clock
from tests.storage.test_deferred_files import CSV, Query
from weighbridge.app import open_app
from weighbridge.observe.logs import configure
from weighbridge.settings import read
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive


def sent(url: str, home: Path, workspace: UUID, *contents: bytes) -> list[Received]:
    configure("critical")  # log lines are not part of the output

    async def send() -> list[Received]:
        async with open_app(read(home=home, DATABASE_URL=url)) as app:
            found = []
            for content in contents:
                file = home / "export.csv"
                file.write_bytes(content)
                found.append(await receive(app.ctx, Request(workspace, platform="meta"), file))
            return found

    return asyncio.run(send())


def break_store(home: Path) -> None:
    (home / "blobs").write_text("not a folder")


def test_waiting_files_are_listed_without_their_paths(
    main: Command, database_url: str, home: Path, workspace: UUID
) -> None:
    assert main("storage", "list").out == "No files wait for the store.\n"
    break_store(home)
    [received] = sent(database_url, home, workspace, CSV)
    shown = main("storage", "list")
    assert str(received.queue_id) in shown.out
    assert "0 of 5" in shown.out
    [told] = main("storage", "list", "--json").json
    assert (told["queue_id"], told["upload_id"], told["storage_status"], told["retry_count"]) == (
        str(received.queue_id),
        str(received.upload_id),
        "pending_retry",
        0,
    )
    assert set(told) == {
        "queue_id", "upload_id", "workspace_id", "user_id", "bucket", "object_path", "content_hash", "byte_size",
        "retry_count", "max_retries", "storage_status", "next_retry_at", "error_message", "created_at", "metadata",
        "spool_id", "here",
    }  # fmt: skip
    for each in (shown.out, str(told)):
        assert str(home) not in each
    assert main("storage", "list", "--failed", "--json").json == []
    other = main("storage", "list", "--workspace", UUID(int=7), "--json")
    assert other.json == []


def test_all_files_are_retried_except_those_sent_again_since(
    main: Command, database_url: str, home: Path, workspace: UUID, query: Query, clock: Clock
) -> None:
    break_store(home)
    given_up, waits = sent(database_url, home, workspace, CSV, CSV.replace(b"1.50", b"2.50"))
    query(
        "UPDATE data_uploads SET status = 'failed', storage_status = 'retry_failed' WHERE id = %s",
        (given_up.upload_id,),
    )
    query("UPDATE upload_queue SET retry_count = 5 WHERE id = %s", (given_up.queue_id,))
    [told] = main("storage", "list", "--failed", "--json").json
    assert (told["storage_status"], told["next_retry_at"]) == ("retry_failed", None)
    (home / "blobs").unlink()
    sent(database_url, home, workspace, CSV)
    done = main("storage", "retry", "--all", "--json")
    assert done.code == 1
    assert {each["queue_id"]: each.get("error") for each in done.json} == {
        str(given_up.queue_id): "superseded",
        str(waits.queue_id): None,
    }
    assert "has been uploaded again since" in done.err
    assert query(
        "SELECT next_retry_at <= weighbridge.now() FROM upload_queue WHERE id = %s", (waits.queue_id,)
    ) == [(True,)]
    assert main("storage", "retry").code == 2
    assert main("storage", "retry", "nonsense").code == 1


def test_a_file_is_dropped_after_a_confirmation(
    main: Command,
    database_url: str,
    home: Path,
    workspace: UUID,
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_store(home)
    [received] = sent(database_url, home, workspace, CSV)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = main("storage", "drop", received.queue_id)
    assert asked.code == 1  # not confirmed
    assert query("SELECT count(*) FROM upload_queue") == [(1,)]
    done = main("storage", "drop", received.queue_id, "--yes", "--json")
    assert done.json == [{"queue_id": str(received.queue_id), "dropped": True}]
    assert query("SELECT status, error_code FROM data_uploads") == [("failed", "STORAGE_DROPPED")]
    assert query("SELECT 1 FROM weighbridge.alerts") == []  # the operator who dropped it knows
    assert list(home.glob(f"queue/*/{received.queue_id}")) == []
    again = main("storage", "drop", received.queue_id, "--yes")
    assert (again.code, "There is no waiting file" in again.err) == (1, True)
