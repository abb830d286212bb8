"""The worker itself: errors do not stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg

from tests.engine.conftest import Put, meta_file
from tests.engine.steps import claim
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.retry import ANNOUNCEMENT
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import queue
from weighbridge.worker import Worker, run_with_progress

OPTIONS = WorkerOptions(poll=timedelta(seconds=0.05), lease=timedelta(seconds=3))


async def test_a_worker_continues_after_a_lock_timeout(
    ctx: Context, put: Put, query: Any, database_url: str, eventually: Any
) -> None:
    """Its claim, its sweep and its announcer all wait for the lock."""
    impatient = Database(f"{database_url}&options=-c%20lock_timeout%3D50ms")
    name = database_url.split("/")[3].split("?")[0]
    query(f"ALTER DATABASE {name} SET lock_timeout = '50ms'")
    await impatient.open()
    object.__setattr__(ctx, "db", impatient)
    stop = asyncio.Event()
    upload_id = await put(meta_file())
    with psycopg.connect(database_url) as blocker:
        blocker.execute("LOCK TABLE data_uploads, weighbridge.attempts, weighbridge.event_deliveries")
        running = asyncio.create_task(Worker(ctx, OPTIONS).run(stop))
        await asyncio.wait({running}, timeout=1.5)
        assert not running.done()
    await eventually(
        lambda: query("SELECT 1 FROM data_uploads WHERE id = %s AND status = 'completed'", (upload_id,))
    )
    await eventually(
        lambda: not query("SELECT 1 FROM weighbridge.event_deliveries WHERE delivered_at IS NULL")
    )
    stop.set()
    await asyncio.wait_for(running, 10)
    await impatient.close()


async def test_a_worker_stops_even_if_a_library_swallows_the_cancellation(ctx: Context) -> None:
    began = asyncio.Event()

    class Stubborn(Worker):
        async def _watch(self) -> None:
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    stop = asyncio.Event()
    running = asyncio.create_task(Stubborn(ctx, WorkerOptions()).run(stop))
    await began.wait()
    stop.set()
    await asyncio.wait_for(running, 10)


async def test_a_hanging_hook_does_not_block_other_deliveries(
    ctx: Context, put: Put, query: Any, eventually: Any
) -> None:
    from weighbridge.engine.announce import consumers

    release = asyncio.Event()

    async def hang(event: dict[str, Any]) -> None:
        await release.wait()

    object.__setattr__(ctx, "consumers", consumers(hang))
    for ads in (1, 2, 3):
        await put(meta_file(days=1, ads=ads))
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(ctx, WorkerOptions(poll=timedelta(seconds=0.05))).run(stop))
    done = "SELECT count(*) FROM weighbridge.event_deliveries WHERE delivered_at IS NOT NULL"
    await eventually(lambda: query(done) == [(6,)])
    release.set()
    await eventually(lambda: query(done) == [(9,)])
    stop.set()
    await running


async def test_a_delivery_that_crashes_its_worker_is_given_up_after_the_last_attempt(
    query: Any, clock: Any, workspace: Any
) -> None:
    [(event,)] = query(
        "INSERT INTO weighbridge.events (workspace_id, upload_id, type, payload)"
        " VALUES (%s, gen_random_uuid(), 'x', '{}') RETURNING id",
        (workspace,),
    )
    query(
        "INSERT INTO weighbridge.event_deliveries (event_id, workspace_id, consumer) VALUES (%s, %s, 'x')",
        (event, workspace),
    )
    tries = ANNOUNCEMENT.tries
    assert tries is not None
    for _ in range(tries + 2):
        query("SELECT weighbridge.claim_event_deliveries('w', '{x}', '60 seconds', 10)")
        clock.forward(seconds=61)
        query("SELECT weighbridge.recover(5)")
    found = query("SELECT failures, gave_up_at IS NOT NULL FROM weighbridge.event_deliveries")
    assert found == [(tries + 1, True)]  # the number in SQL is that of the policy


async def test_waiting_for_an_upload_reports_the_worker_that_has_it(
    ctx: Context, put: Put, clock: Any
) -> None:
    upload_id = await put(meta_file())
    abandoned = await claim(ctx)
    heard: list[queue.Holder] = []
    async with contextlib.aclosing(run_with_progress(ctx, OPTIONS, [upload_id])) as steps:
        async for step in steps:
            heard += step.leased_by_others
            if step.leased_by_others:
                clock.forward(minutes=2)  # past its lease
    [upload] = step.uploads
    assert upload.status == Status.COMPLETED
    assert (heard[0].upload_id, heard[0].worker) == (upload_id, "test")
    assert abandoned.upload.id == upload_id


LISTENS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'weighbridge listen'"
    " AND query LIKE 'LISTEN%'"
)
COMPLETED = "SELECT 1 FROM data_uploads WHERE status = 'completed'"


@contextlib.asynccontextmanager
async def waiting(ctx: Context, poll: timedelta, eventually: Any, query: Any) -> AsyncIterator[None]:
    """A worker that is idle and listens."""
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(ctx, replace(OPTIONS, poll=poll)).run(stop))
    try:
        await eventually(lambda: query(LISTENS))
        yield
    finally:
        stop.set()
        await running


async def test_a_notification_wakes_a_worker(ctx: Context, put: Put, query: Any, eventually: Any) -> None:
    async with waiting(ctx, timedelta(hours=1), eventually, query):
        await put(meta_file())
        await eventually(lambda: query(COMPLETED))


async def test_an_upload_without_a_notification_is_found_by_polling(
    ctx: Context, put: Put, query: Any, eventually: Any
) -> None:
    await put(meta_file())
    query("UPDATE data_uploads SET run_after = weighbridge.now() + interval '1 day'")  # not yet
    async with waiting(ctx, timedelta(seconds=0.05), eventually, query):
        query("UPDATE data_uploads SET run_after = '-infinity'")  # and nobody is notified
        await eventually(lambda: query(COMPLETED))
