"""A run processes a project's files in order of arrival, groups once, then releases the project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import WAITING
from tests.projects.conftest import QUICK, Send, Work, keyword_file, numbered
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.projects import queue
from weighbridge.projects.create import retry_failed
from weighbridge.worker import Worker, run_until


@asynccontextmanager
async def worker(ctx: Context, options: WorkerOptions) -> AsyncIterator[None]:
    """A worker in this process, as long as the block lasts."""
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(ctx, options).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def test_files_of_a_project_are_imported_and_grouped(
    send: Any, work: Any, standing: Any, groups: Any
) -> None:
    first = await send(keyword_file([("blue shoes", 10), ("Shoes Blue", 90), ("red hat", 5)]), "a.csv")
    second = await send(keyword_file([("the blue shoe", 20), ("RED  HATS", 50)]), "b.csv")
    await work(first, second)
    now = await standing()
    assert [(f.filename, f.status, f.inserted, f.duplicate) for f in now.files] == [
        ("a.csv", "succeeded", 3, 0),
        ("b.csv", "succeeded", 2, 0),
    ]
    assert (now.locked, now.status, now.groupings) == (False, "complete", 1)
    assert await groups() == {
        "shoes blue": ("blue shoes", "Shoes Blue", "the blue shoe"),
        "red hats": ("red hat", "RED HATS"),
    }


async def test_a_postponed_job_lets_the_next_one_go_first_and_grouping_waits_for_it(
    send: Send, work: Work, standing: Any, query: Any, clock: Any, ctx: Context
) -> None:
    late, early = await send(numbered(0, 3), "late.csv"), await send(numbered(10, 3), "early.csv")
    query(
        "UPDATE data_uploads SET run_after = weighbridge.now() + interval '1 hour' WHERE id = %s",
        (late.upload_id,),
    )
    await work(early)  # and does not wait for an hour
    now = await standing()
    assert [file.status for file in now.files] == ["queued", "succeeded"]
    assert (now.locked, now.status, now.groupings) == (True, "queued", 0)
    clock.forward(hours=2)
    await work(late)
    now = await standing()
    assert (now.locked, now.status, now.groupings) == (False, "complete", 1)


async def test_the_same_file_again_is_shown_as_a_duplicate_and_counted_once(
    send: Send, work: Work, standing: Any
) -> None:
    first = await send(numbered(0, 3), "a.csv")
    again = [await send(numbered(0, 3), name) for name in ("a.csv", "copy of a.csv", "copy of a.csv")]
    elsewhere = await send(numbered(0, 3), "a.csv", project=2)
    assert [each.upload_id for each in again] == [first.upload_id] * 3
    assert elsewhere.upload_id != first.upload_id
    await work(first, elsewhere)
    now = (await standing()).as_dict()
    assert (now["uploadedFileCount"], now["processedFileCount"], now["succeeded_jobs"]) == (1, 1, 1)
    assert now["duplicateFiles"] == [
        {"filename": "a.csv", "duplicate_of": first.upload_id, "times": 1},
        {"filename": "copy of a.csv", "duplicate_of": first.upload_id, "times": 2},
    ]


async def test_a_failed_file_counts_as_processed_and_has_its_reason(
    send: Send, work: Work, standing: Any
) -> None:
    good, bad = await send(numbered(0, 3), "good.csv"), await send(b"Keyword,Volume\nx,-1\n", "bad.csv")
    await work(good, bad)
    now = (await standing()).as_dict()
    assert now["processedFiles"] == ["good.csv", "bad.csv"]
    assert (now["failed_jobs"], now["processedFileCount"], now["uploadedFileCount"]) == (1, 2, 2)
    [error] = now["fileErrors"]
    assert (error["filename"], error["error"]) == ("bad.csv", "no_valid_rows")
    assert "The only row is not valid." in error["message"]


async def test_row_counts_grow_while_a_file_is_processed(
    send: Send, standing: Any, ctx: Context, workspace: UUID
) -> None:
    received = await send(numbered(0, 60), "a.csv")
    small = replace(ctx, limits=replace(ctx.limits, batch_rows=10))
    told: list[tuple[int, int]] = []

    async def look() -> None:
        while True:
            now = (await standing()).as_dict()
            if now["running_jobs"]:
                told.append((now["progress"]["rows_total"], now["progress"]["rows_processed"]))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await run_until(small, QUICK, [received.upload_id])
    looking.cancel()
    processed = [done for total, done in told if total]
    assert processed == sorted(processed)
    assert len(set(processed)) > 2
    assert (await standing()).as_dict()["progress"] == {"rows_total": 60, "rows_processed": 60}


async def test_a_failed_grouping_is_retried_later(
    send: Send, standing: Any, query: Any, clock: Any, ctx: Context, groups: Any, eventually: Any
) -> None:
    await send(numbered(0, 3))
    query("ALTER TABLE token_merges RENAME TO hidden")
    async with worker(ctx, QUICK):
        await eventually(lambda: query("SELECT failures > 0 FROM projects") == [(True,)])
        now = await standing()
        assert (now.status, now.files[0].status) == ("grouping", "succeeded")
        assert not now.locked
        query("ALTER TABLE hidden RENAME TO token_merges")
        clock.forward(minutes=2)
        await eventually(groups)
    assert query("SELECT failures, groupings FROM projects") == [(0, 1)]


async def test_a_worker_for_one_step_does_not_run_projects(
    send: Send, ctx: Context, query: Any, eventually: Any
) -> None:
    await send(numbered(0, 3))
    other = await send(numbered(0, 3), project=2)
    for one_step in (replace(QUICK, promotes=False), replace(QUICK, parses=False)):
        assert not await Worker(ctx, one_step).run_once()
    assert query("SELECT DISTINCT status FROM data_uploads") == [("pending",)]
    await run_until(ctx, QUICK, [other.upload_id])


async def test_a_sender_waits_only_a_limited_time_for_an_edit(
    send: Send, work: Work, ctx: Context, workspace: UUID
) -> None:
    await work(await send(numbered(0, 3)))
    async with ctx.db.tx("weighbridge_group", workspace) as tx:
        await queue.lock(tx, 1, "test", "project.regroup")
        with pytest.raises(RetryLater, match="try again"):
            await send(numbered(10, 3), "b.csv")
    await work(await send(numbered(10, 3), "b.csv"))


async def test_a_file_of_a_project_has_no_client(send: Send) -> None:
    with pytest.raises(RequestRefused, match="belong to a project; leave client_id out"):
        await send(numbered(0, 3), client_id=UUID(int=1))


async def test_a_failed_file_that_is_sent_again_is_one_file(
    send: Send, work: Work, standing: Any, ctx: Context, workspace: UUID
) -> None:
    bad = b"Keyword,Volume\nx,-1\n"
    tries = [await send(bad, "bad.csv")]
    await work(tries[0])
    tries.append(await send(bad, "bad again.csv"))
    await work(tries[1])
    now = (await standing()).as_dict()
    assert (now["uploadedFiles"], now["failed_jobs"]) == (["bad again.csv"], 1)
    async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
        project = await queue.get_project(tx, workspace, 1)
    assert project is not None
    retried = await retry_failed(ctx.db, project, force_partial=False, actor="test")
    assert retried.retried == (tries[1].upload_id,)
    assert [(each.job_id, each.error) for each in retried.skipped] == [(tries[0].upload_id, "superseded")]


async def test_a_worker_that_stops_does_not_wait_for_its_grouping(
    send: Send, query: Any, ctx: Context, eventually: Any, database_url: str, work: Work
) -> None:
    received = await send(numbered(0, 3))
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE token_merges")  # the grouping waits for it
        async with worker(ctx, QUICK):
            await eventually(lambda: query(WAITING))
        assert query("SELECT outcome FROM weighbridge.attempts WHERE queue = 'projects'") == [("done",)]
        assert query("SELECT ungrouped, groupings, failures FROM projects") == [(True, 0, 0)]
    await work(received)
    assert query("SELECT ungrouped, groupings FROM projects") == [(False, 1)]


async def test_a_run_whose_next_file_is_locked_waits_longer_each_time(
    ctx: Context, send: Send, database_url: str, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant pause of 50 ms made 55 transactions per second."""
    received = await send(numbered(0, 3))
    releases: list[float] = []
    release = queue.release

    async def timed(*args: Any, **options: Any) -> bool:
        releases.append(monotonic())
        return await release(*args, **options)

    monkeypatch.setattr(queue, "release", timed)
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("SELECT FROM data_uploads WHERE id = %s FOR UPDATE", (received.upload_id,))
        async with worker(ctx, QUICK):
            await eventually(lambda: len(releases) == 4)
        assert releases[3] - releases[0] > 0.05 + 0.1 + 0.2
        assert monotonic() - releases[3] < 0.4  # a stop does not wait for the pause
