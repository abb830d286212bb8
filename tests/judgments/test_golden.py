"""The golden path: its four cases by their names, through intake and worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.steps import claim
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status

from .conftest import ROW, Lines, Load, Query, Send, case, judgments

BATCH = "golden_path_test_1"
RUN = "SELECT status::text, record_count FROM ingest.import_runs WHERE source_batch_id = %s"


async def test_fresh_batch_ingestion_completes_with_one_record(load: Load, query: Query) -> None:
    upload = await load(judgments(ROW), batch=BATCH)
    assert query(RUN, (BATCH,)) == [("completed", 1)]
    assert query("SELECT case_number, upload_id FROM judgments") == [("CV-2024-001", upload.id)]


async def test_duplicate_batch_rejection_updates_nothing_and_is_logged(
    load: Load, send: Send, query: Query, logged: Lines
) -> None:
    upload = await load(judgments(ROW), batch=BATCH)
    everything = [
        f"SELECT to_jsonb(t) FROM {table} t" for table in ("data_uploads", "judgments", "plaintiffs")
    ] + ["SELECT to_jsonb(t) FROM weighbridge.attempts t ORDER BY opened_at, lease_token"]
    before = [query(statement) for statement in everything]
    again = await send(judgments(ROW), batch=BATCH)
    assert (again.upload_id, again.status, again.duplicate) == (upload.id, Status.COMPLETED, True)
    assert again.reason == "duplicate_completed"
    assert [query(statement) for statement in everything] == before
    [line] = [line for line in logged if line["event"] == "Duplicate skipped"]
    assert (line["log_level"], line["source_batch_id"]) == ("info", BATCH)
    assert line["reason"] == "duplicate_completed"


async def test_stale_takeover_resets_to_pending_and_processes_again(
    ctx: Context,
    send: Send,
    run: Callable[..., Any],
    query: Query,
    clock: Any,
    moves: Callable[[], list[str]],
) -> None:
    received = await send(judgments(ROW), batch=BATCH)
    await claim(ctx)  # by a worker that is never heard of again
    clock.forward(hours=1, seconds=1)
    assert query("SELECT source_batch_id FROM ingest.v_stale_runs") == [(BATCH,)]
    await run(received.upload_id)
    assert moves()[:3] == ["processing", "pending", "processing"]
    assert query(RUN, (BATCH,)) == [("completed", 1)]
    assert query("SELECT count(*) FROM ingest.v_stale_runs") == [(0,)]
    assert query("SELECT case_number FROM judgments") == [("CV-2024-001",)]


async def test_unique_constraint_violation_updates_and_is_no_error(load: Load, query: Query) -> None:
    await load(judgments(ROW), batch=BATCH)
    upload = await load(judgments(case("CV-2024-001", county="Queens")), batch="golden_path_test_2")
    assert (upload.status, upload.failed_rows, upload.error_text) == (Status.COMPLETED, 0, None)
    assert (upload.promoted["judgment"]["inserted"], upload.promoted["judgment"]["updated"]) == (0, 1)
    assert query("SELECT case_number, county FROM judgments") == [("CV-2024-001", "Queens")]
