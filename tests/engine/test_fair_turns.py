"""Workspaces take turns in every queue, and the last slot of a worker is kept for the next workspace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.engine.conftest import CLAIM, Put, meta_file
from weighbridge.delivery.context import Context
from weighbridge.engine import outbox
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database, Lease
from weighbridge.projects import queue as projects_queue
from weighbridge.storage import queue as storage_queue
from weighbridge.uploads import queue
from weighbridge.worker import Worker, run_until

FIRST, SECOND, THIRD = (uuid4() for _ in range(3))
LEASE = timedelta(seconds=60)


def insert_uploads(query: Any, workspace: UUID, count: int, *, project: int | None = None) -> None:
    if project is not None:
        query("INSERT INTO projects (workspace_id, id, name) VALUES (%s, %s, 'p')", (workspace, project))
    query(
        "INSERT INTO data_uploads (workspace_id, project_id, source, pipeline, content_sha256, byte_size)"
        " SELECT %s, %s, 'manual', %s, sha256(n::text::bytea), 1 FROM generate_series(1, %s) AS n",
        (workspace, project, "ads" if project is None else "keywords", count),
    )


async def claimed(db: Database, **overrides: Any) -> Lease:
    async with db.tx() as tx:
        found = await queue.claim(tx, replace(CLAIM, **overrides))
    assert found.lease is not None
    return found.lease


async def test_one_file_behind_many_of_another_workspace_is_claimed_next(db: Database, query: Any) -> None:
    insert_uploads(query, FIRST, 20)
    assert (await claimed(db)).workspace_id == FIRST
    insert_uploads(query, SECOND, 1)
    assert (await claimed(db)).workspace_id == SECOND


async def test_workspaces_take_turns_at_a_single_slot(db: Database, query: Any) -> None:
    for workspace in (FIRST, SECOND, THIRD):
        insert_uploads(query, workspace, 3)
    served = []
    for _ in range(9):
        lease = await claimed(db)
        served.append(lease.workspace_id)
        async with db.tx() as tx:
            await queue.fail(tx, lease, "test", "test")
    assert served == [FIRST, SECOND, THIRD] * 3


async def test_the_workspace_with_the_fewest_running_uploads_is_next(db: Database, query: Any) -> None:
    insert_uploads(query, FIRST, 3)
    for _ in range(2):
        await claimed(db)
    insert_uploads(query, SECOND, 3)
    assert [(await claimed(db)).workspace_id for _ in range(4)] == [SECOND, SECOND, FIRST, SECOND]


async def test_a_claim_in_progress_does_not_delay_another_claim_for_the_same_workspace(
    db: Database, query: Any
) -> None:
    """Both note the turn of the workspace."""
    insert_uploads(query, FIRST, 2)
    async with asyncio.timeout(5), db.tx() as tx:
        first = await queue.claim(tx, CLAIM)
        assert (await claimed(db)).workspace_id == FIRST
    assert first.lease is not None


async def test_runs_of_projects_take_turns(db: Database, query: Any) -> None:
    for project in (1, 2, 3):
        insert_uploads(query, FIRST, 1, project=project)
    insert_uploads(query, SECOND, 1, project=1)
    served = []
    for _ in range(4):
        async with db.tx() as tx:
            found = await projects_queue.claim(tx, replace(CLAIM, pipelines=("keywords",)))
            assert found.lease is not None
            served.append(found.lease.workspace_id)
            await projects_queue.fail(tx, found.lease, timedelta(hours=1), "test")
    assert served == [FIRST, SECOND, FIRST, FIRST]


async def test_events_of_workspaces_take_turns(db: Database, query: Any) -> None:
    for workspace, count in ((FIRST, 50), (SECOND, 1), (THIRD, 2)):
        query(
            "SELECT weighbridge.emit(%s, NULL, 'test', '{}', '{audit_log,notifier}') FROM generate_series(1, %s)",
            (workspace, count),
        )

    async def claim(limit: int) -> list[UUID]:
        async with db.tx() as tx:
            found = await outbox.claim(tx, outbox.EventClaimRequest("test", ("audit_log",), LEASE, limit))
        return [each.lease.workspace_id for each in found]

    assert sorted(await claim(3)) == sorted([FIRST, SECOND, THIRD])
    assert sorted(await claim(3)) == sorted([FIRST, FIRST, THIRD])
    assert await claim(100) == [FIRST] * 47
    assert await claim(100) == []


async def test_two_workers_that_claim_events_at_once_each_get_a_full_share(db: Database, query: Any) -> None:
    query(
        "SELECT weighbridge.emit(%s, NULL, 'test', '{}', '{audit_log}') FROM generate_series(1, 40)", (FIRST,)
    )
    request = outbox.EventClaimRequest("test", ("audit_log",), LEASE, 20)
    async with db.tx() as one, db.tx() as two:
        assert len(await outbox.claim(one, request)) == 20
        assert len(await outbox.claim(two, request)) == 20


async def test_files_that_wait_for_the_store_take_turns(db: Database, query: Any) -> None:
    spool = uuid4()
    for workspace, count in ((FIRST, 10), (SECOND, 1), (THIRD, 2)):
        query(
            "INSERT INTO upload_queue (temp_file_path, bucket, object_path, content_hash, byte_size, user_id,"
            " workspace_id, spool_id, next_retry_at, tried_at)"
            " SELECT '', '', '', encode(sha256(n::text::bytea), 'hex'), 1, %s, %s, %s,"
            " weighbridge.now() - interval '1 minute', weighbridge.now() FROM generate_series(1, %s) AS n",
            (workspace, workspace, spool, count),
        )

    async def claim(limit: int) -> list[UUID]:
        async with db.tx() as tx:
            found = await storage_queue.claim(
                tx, storage_queue.ReplayClaimRequest("test", spool, LEASE, limit, early=False)
            )
        return [each.lease.workspace_id for each in found]

    assert sorted(await claim(4)) == sorted([FIRST, FIRST, SECOND, THIRD])
    assert sorted(await claim(2)) == sorted([FIRST, THIRD])
    assert await claim(100) == [FIRST] * 7


@pytest.mark.parametrize("first_kind", ["uploads", "projects"])
async def test_a_workspace_never_has_all_slots_of_a_worker(
    ctx: Context, put: Put, query: Any, database_url: str, eventually: Any, workspace: UUID, first_kind: str
) -> None:
    """Its uploads wait for a lock, so they keep their slots; the file of another workspace starts all the same."""
    if first_kind == "uploads":
        for days in range(1, 6):
            await put(meta_file(days))
    else:
        for project in range(1, 6):
            query("INSERT INTO projects (workspace_id, id, name) VALUES (%s, %s, 'p')", (workspace, project))
            content = f"Keyword,Volume\nthing {project},1\n".encode()
            await put(content, pipeline="keywords", platform=None, project_id=project)
    running = "SELECT a.workspace_id FROM weighbridge.attempts a WHERE closed_at IS NULL AND under IS NULL"
    options = WorkerOptions(poll=timedelta(seconds=0.05))
    stop = asyncio.Event()
    with psycopg.connect(database_url) as blocker:
        blocker.execute("LOCK TABLE staging_id_resolution, upload_rejections")
        working = asyncio.create_task(Worker(ctx, options).run(stop))
        await eventually(lambda: query(running) == [(workspace,)] * (options.slots - 1))
        theirs = await put(meta_file(), workspace_id=SECOND)
        await eventually(lambda: (SECOND,) in query(running))
        assert query(running).count((workspace,)) == options.slots - 1
        blocker.rollback()
        await eventually(
            lambda: query("SELECT FROM data_uploads WHERE id = %s AND status = 'completed'", (theirs,))
        )
        stop.set()
        await working


async def test_one_file_behind_a_thousand_of_another_workspace_is_loaded_at_once(
    ctx: Context, put: Put, query: Any, workspace: UUID
) -> None:
    await put(meta_file(1))
    query(
        "INSERT INTO data_uploads (workspace_id, platform, source, pipeline, filename, file_url, content_sha256,"
        " byte_size, forced) SELECT workspace_id, platform, source, pipeline, filename, file_url, content_sha256,"
        " byte_size, true FROM data_uploads, generate_series(1, 999)"
    )
    theirs = await put(meta_file(2), workspace_id=SECOND)
    options = WorkerOptions(poll=timedelta(seconds=0.05))
    assert (await run_until(ctx, options, [theirs]))[0].status == Status.COMPLETED
    before = (
        "SELECT count(*) FROM data_uploads d, data_uploads mine WHERE mine.id = %s AND d.workspace_id = %s"
    )
    [(loaded,)] = query(f"{before} AND d.finished_at < mine.finished_at", (theirs, workspace))
    assert loaded <= 6  # the two that began at the same time, and what followed them
