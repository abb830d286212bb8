"""An upload that waits for another transaction's lock goes back to its queue; it does not fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.engine.conftest import Put, Run, meta_file
from tests.engine.steps import Query
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.retry import POLICIES
from weighbridge.postgres.errors import LOCK_HELD
from weighbridge.postgres.transactions import Database
from weighbridge.worker import Worker

WAITS = (
    "SELECT count(*) FROM weighbridge.attempts WHERE outcome = 'released' AND error LIKE 'Another transaction%%'"
    " AND subject = %s"
)


@pytest.fixture
async def impatient(ctx: Context, database_url: str) -> AsyncIterator[Context]:
    """Statements may take 0.3 seconds."""
    db = Database(database_url, statement_timeout_ms=300)
    await db.open()
    yield replace(ctx, db=db)
    await db.close()


@pytest.fixture
async def working(impatient: Context) -> AsyncIterator[None]:
    stop = asyncio.Event()
    options = WorkerOptions(poll=timedelta(seconds=0.02), lease=timedelta(hours=10))
    running = asyncio.create_task(Worker(impatient, options).run(stop))
    yield
    stop.set()
    await running


@pytest.fixture
async def changed(put: Put, run: Run) -> UUID:
    """An upload that changes rows of production."""
    await run(await put(meta_file()))
    return await put(meta_file().replace(b",100,", b",200,"))


async def test_a_lock_of_any_length_delays_an_upload_and_does_not_fail_it(
    changed: UUID, database_url: str, clock: Any, query: Query, eventually: Any, working: None
) -> None:
    with psycopg.connect(database_url) as other:
        other.execute("DELETE FROM daily_metrics WHERE metric_date = '2026-01-02'")
        for waits in range(1, 6):
            await eventually(lambda: query(WAITS, (changed,)) == [(waits,)])  # noqa: B023
            clock.forward(seconds=30)
        other.rollback()
    clock.forward(seconds=60)
    await eventually(
        lambda: query("SELECT 1 FROM data_uploads WHERE status = 'completed' AND id = %s", (changed,))
    )
    assert query("SELECT row_count, failed_rows, failures FROM data_uploads WHERE id = %s", (changed,)) == [
        (12, 0, 0)
    ]
    assert query("SELECT count(*), sum(impressions) FROM daily_metrics") == [(12, 2400)]


async def test_after_the_last_wait_the_upload_fails_and_a_retry_counts_anew(
    changed: UUID, database_url: str, workspace: UUID, query: Query, eventually: Any, impatient: Context
) -> None:
    tries = POLICIES["lock"].tries
    query(
        "INSERT INTO weighbridge.attempts"
        " (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until, closed_at, outcome, error)"
        " SELECT 'uploads', %s, %s, 'x', now(), now(), now(), now(), 'released',"
        " %s FROM generate_series(1, %s)",
        (changed, workspace, LOCK_HELD, tries),
    )
    worker = Worker(impatient, WorkerOptions())
    found = "SELECT status, error_code FROM data_uploads WHERE id = %s"
    with psycopg.connect(database_url) as other:
        other.execute("DELETE FROM daily_metrics WHERE metric_date = '2026-01-02'")
        assert await worker.run_once()
        assert query(found, (changed,)) == [("failed", "lock")]
        query("SELECT weighbridge.retry_upload(%s, false, 'test')", (changed,))
        assert await Worker(impatient, WorkerOptions()).run_once()
        assert query(found, (changed,)) == [("staging_complete", None)]
