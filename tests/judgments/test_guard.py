"""The guard of import runs: it refuses an illegal move even in psql.

Everything here runs as the database's owner: no role and no right is in the way, only the guard.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.conftest import WAITING
from tests.engine.steps import claim, parse_by_hand
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.uploads import queue

from .conftest import BATCH, ROW, InState, Load, Query, Send, judgments, run_of

STATUSES = ("pending", "processing", "completed", "failed")
RESET = """
    UPDATE ingest.import_runs
    SET status = 'pending'
    WHERE source_batch_id = %s
      AND status = 'processing'
      AND started_at < NOW() - INTERVAL '1 hour'"""  # as the specification prints it


def move(query: Query, status: str) -> None:
    query("UPDATE ingest.import_runs SET status = %s WHERE source_batch_id = %s", (status, BATCH))


def refusal(query: Query, status: str) -> str:
    """What psql prints when a run is moved there."""
    with pytest.raises(psycopg.Error) as caught:
        move(query, status)
    assert caught.value.sqlstate == "WB002"
    return str(caught.value.diag.message_primary)


# The transitions, row by row ----------------------------------------------------------------------------------


async def test_a_stale_run_is_reset_by_the_printed_update_and_then_goes_on(
    ctx: Context, send: Send, load: Load, query: Query, clock: Any
) -> None:
    await send(judgments(ROW), batch=BATCH)
    await claim(ctx)
    # NOW() in the printed statement is Postgres's own, which tests do not move.
    query("UPDATE data_uploads SET started_at = started_at - INTERVAL '2 hours'")
    clock.forward(minutes=2)
    query(RESET, (BATCH,))
    assert run_of(query) == "pending"
    assert query("SELECT outcome FROM weighbridge.attempts") == [("expired",)]
    await load(judgments(ROW), batch=BATCH)
    assert run_of(query) == "completed"


def test_a_run_that_nobody_works_on_can_be_given_up(query: Query, in_state: InState) -> None:
    in_state("processing")
    move(query, "failed")
    assert run_of(query) == "failed"
    assert query("SELECT error_code FROM data_uploads") == [("given_up",)]


@pytest.mark.parametrize("state", ["completed", "partial", "failed"])
@pytest.mark.parametrize("status", STATUSES)
def test_what_has_ended_cannot_be_changed(query: Query, in_state: InState, state: str, status: str) -> None:
    in_state(state)
    shown = run_of(query)
    if status == shown:
        move(query, status)
    else:
        assert refusal(query, status) == f"Cannot transition from terminal status: {shown}"
    assert run_of(query) == shown


@pytest.mark.parametrize("status", ["processing", "completed", "failed"])
def test_a_pending_run_is_moved_by_a_worker_only(query: Query, in_state: InState, status: str) -> None:
    in_state("pending")
    assert refusal(query, status) == f"Invalid transition: pending -> {status}"
    assert run_of(query) == "pending"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ingest.import_runs",
        "INSERT INTO ingest.import_runs (source_batch_id, status) VALUES ('x', 'pending')",
    ],
)
def test_runs_are_neither_deleted_nor_made_by_hand(query: Query, in_state: InState, statement: str) -> None:
    in_state("completed")
    with pytest.raises(psycopg.Error, match="Import runs cannot be inserted or deleted through this view"):
        query(statement)
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


@pytest.mark.parametrize("state", ["processing", "staging_complete", "promoting"])
def test_a_run_is_completed_by_a_worker_only(query: Query, in_state: InState, state: str) -> None:
    in_state(state)
    assert refusal(query, "completed") == "Invalid transition: processing -> completed"
    assert query("SELECT status FROM data_uploads") == [(state,)]


@pytest.mark.parametrize("status", ["pending", "failed"])
async def test_a_live_run_cannot_be_reset_however_long_ago_it_began(
    ctx: Context, send: Send, query: Query, status: str
) -> None:
    await send(judgments(ROW), batch=BATCH)
    await claim(ctx)
    query("UPDATE data_uploads SET started_at = started_at - INTERVAL '2 hours'")
    before = query("SELECT to_jsonb(d), to_jsonb(a) FROM data_uploads d, weighbridge.attempts a")
    assert refusal(query, status) == f"Invalid transition: a worker is processing {BATCH}"
    assert query("SELECT to_jsonb(d), to_jsonb(a) FROM data_uploads d, weighbridge.attempts a") == before
    assert query("SELECT count(*) FROM ingest.v_stale_runs") == [(0,)]


async def test_a_reset_that_meets_a_takeover_does_not_touch_the_run_that_is_live_now(
    ctx: Context, send: Send, query: Query, clock: Any, database_url: str, eventually: Any
) -> None:
    await send(judgments(ROW), batch=BATCH)
    await claim(ctx)
    query("UPDATE data_uploads SET started_at = started_at - INTERVAL '2 hours'")
    clock.forward(minutes=2)
    take_up = "SELECT * FROM weighbridge.claim_upload('late', '{pending}', '{judgments}', '60 s', 3, 5)"
    connect = psycopg.AsyncConnection.connect
    async with await connect(database_url) as operator, await connect(database_url) as worker:
        await worker.execute(take_up)
        resetting = asyncio.create_task(operator.execute(RESET, (BATCH,)))
        await eventually(lambda: query(WAITING))
        await worker.commit()
        with pytest.raises(psycopg.Error, match="a worker is processing"):
            await resetting
    assert run_of(query) == "processing"
    assert query("SELECT crashes FROM data_uploads") == [(1,)]


# What else stands in the way --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("source_batch_id", "'other'"), ("record_count", "7"), ("file_hash", "'00'"),
        ("workspace_id", "gen_random_uuid()"), ("id", "gen_random_uuid()"),
        ("started_at", "NOW()"), ("completed_at", "NOW()"), ("error_message", "'none'"), ("pipeline", "'ads'"),
    ],
)  # fmt: skip
def test_nothing_but_the_status_can_be_changed(
    query: Query, in_state: InState, column: str, value: str
) -> None:
    in_state("processing")
    before = query("SELECT * FROM ingest.import_runs")
    with pytest.raises(psycopg.Error, match="Only the status of an import run can be changed"):
        query(f"UPDATE ingest.import_runs SET {column} = {value}")
    assert query("SELECT * FROM ingest.import_runs") == before


@pytest.mark.parametrize("state", ["processing", "staging_complete", "promoting"])
def test_a_run_that_was_reset_is_pending(query: Query, in_state: InState, state: str) -> None:
    in_state(state)
    move(query, "pending")
    assert run_of(query) == "pending"


async def test_a_promotion_that_was_reset_by_hand_begins_again_and_completes(
    ctx: Context, send: Send, load: Load, query: Query, clock: Any
) -> None:
    await send(judgments(ROW), batch=BATCH)
    attempt = await parse_by_hand(ctx)
    async with ctx.db.tx() as tx:
        await queue.begin_promotion(tx, attempt.lease, patient=False)
    clock.forward(minutes=2)
    move(query, "pending")
    upload = await load(judgments(ROW), batch=BATCH)
    assert (upload.status, upload.promoted_rows, upload.crashes) == (Status.COMPLETED, 1, 1)
    assert query("SELECT count(*) FROM judgments") == [(1,)]
    assert query("SELECT count(*) FROM intake.simplicity_validated_rows") == [(1,)]


@pytest.mark.parametrize(
    ("before", "after"),
    [("completed", "pending"), ("failed", "processing"), ("failed", "pending"), ("pending", "completed")],
)
def test_the_table_behind_it_refuses_the_same(
    query: Query, in_state: InState, before: str, after: str
) -> None:
    in_state(before)
    with pytest.raises(psycopg.Error, match=f"{before} → {after} is not an allowed transition"):
        query("UPDATE data_uploads SET status = %s", (after,))


def test_a_tenant_sees_its_own_runs_and_can_move_none(
    query: Query, in_state: InState, database_url: str
) -> None:
    in_state("processing")
    with psycopg.connect(database_url, autocommit=True) as tenant:
        tenant.execute("SET ROLE weighbridge_tenant")
        assert tenant.execute("SELECT count(*) FROM ingest.import_runs").fetchall() == [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tenant.execute("UPDATE ingest.import_runs SET status = 'pending'")
