"""Waiting files are stored once when the store is back, and never lost (FU-130)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Clock
from tests.engine.conftest import Run, meta_file
from tests.engine.conftest import run as run
from tests.storage.test_deferred_files import CSV, Query, Store
from tests.storage.test_deferred_files import send as send
from tests.storage.test_deferred_files import store as store
from weighbridge.delivery.context import Context
from weighbridge.engine import recover
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import RequestRefused
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.retry import STORE_PROBE
from weighbridge.model.states import Status
from weighbridge.service_figures import of_service
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import replay as step
from weighbridge.storage.replay_loop import Replayer
from weighbridge.uploads.operator_retry import reopen

LEASE = timedelta(seconds=60)


async def due(ctx: Context, worker: str = "one", *, early: bool = False) -> list[storage_queue.Replay]:
    return await step.due(ctx, worker, LEASE, 10, early=early)


async def pass_(ctx: Context) -> int:
    """Everything that is due, once."""
    claimed = await due(ctx)
    for each in claimed:
        await step.replay(ctx, each)
    return len(claimed)


async def test_IT_007_upload_queue_retry(
    ctx: Context, store: Store, send: Any, run: Run, query: Query, clock: Clock
) -> None:
    store.fails()
    received = await send(meta_file(2, 3))
    assert await due(ctx) == []  # not before its time
    store.works()
    clock.forward(seconds=31)
    upload = await run(received.upload_id)
    assert (upload.status, upload.storage_status, upload.promoted_rows) == (Status.COMPLETED, "stored", 6)
    assert query("SELECT FROM upload_queue") == []
    assert [path.name for path in ctx.spool.folder.iterdir() if path.is_file()] == ["spool-id"]
    assert query("SELECT error_code, error_text FROM data_uploads") == [(None, None)]
    assert query("SELECT total_bytes, total_sources FROM storage_usage") == [(upload.byte_size, 1)]


async def test_each_failure_lengthens_the_pause_and_the_last_one_leaves_the_file_to_an_operator(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    received = await send()
    waits = []
    for retry in range(1, 6):
        [(wait,)] = query("SELECT next_retry_at - weighbridge.now() FROM upload_queue")
        waits.append(round(wait.total_seconds()))
        clock.forward(wait + timedelta(seconds=1))
        assert await pass_(ctx) == 1
        assert query("SELECT retry_count FROM upload_queue") == [(retry,)]
    assert waits == [30, 150, 750, 3750, 18750]
    clock.forward(days=30)
    assert await due(ctx) == []
    [(status, where, code, text)] = query(
        "SELECT status, storage_status, error_code, error_text FROM data_uploads"
    )
    assert (status, where, code) == ("failed", "retry_failed", "STORAGE_RETRY_FAILED")
    assert f"weighbridge storage retry {received.queue_id}" in text
    assert ctx.spool.path(received.queue_id).read_bytes() == CSV
    [(event,)] = query("SELECT payload FROM weighbridge.events WHERE type = 'storage.upload.retry_failed'")
    assert (event["queue_id"], event["retry_count"]) == (str(received.queue_id), 5)
    assert str(ctx.spool.folder) not in str(event)

    # The operator fixes the store and retries the file, by the id of the queue or of the upload.
    store.works()
    await step.retry_now(ctx.db, received.queue_id, "me")
    assert await pass_(ctx) == 1
    assert query("SELECT status, storage_status, run_after = '-infinity' FROM data_uploads") == [
        ("pending", "stored", True)
    ]


async def test_a_retry_of_the_upload_retries_its_file(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    from weighbridge.uploads import queue as uploads_queue

    store.fails()
    received = await send()
    for _ in range(5):
        clock.forward(days=1)
        await pass_(ctx)
    store.works()
    async with ctx.db.tx() as tx:
        upload = await uploads_queue.get(tx, received.upload_id)
    assert upload is not None
    assert await reopen(ctx.db, upload, force_partial=False, actor="me") == "pending"
    assert await pass_(ctx) == 1
    assert query("SELECT status, storage_status FROM data_uploads") == [("pending", "stored")]


async def test_a_retry_of_a_waiting_file_accepts_other_read_options(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    from weighbridge.uploads import queue as uploads_queue

    store.fails()
    received = await send(date_order="mdy")
    for _ in range(5):
        clock.forward(days=1)
        await pass_(ctx)
    store.works()
    async with ctx.db.tx() as tx:
        upload = await uploads_queue.get(tx, received.upload_id)
    assert upload is not None
    options = ReadOptions(date_order="dmy")
    assert await reopen(ctx.db, upload, force_partial=False, actor="me", reading=options) == "pending"
    assert await pass_(ctx) == 1
    assert query("SELECT status, reading FROM data_uploads") == [("pending", {"date_order": "dmy"})]
    assert query(
        "SELECT action, detail -> 'reading' FROM weighbridge.audit_log ORDER BY id DESC LIMIT 1"
    ) == [("upload.reading", {"date_order": "dmy"})]


async def test_a_dropped_file_is_deleted_and_its_retry_is_refused_with_the_reason(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    from weighbridge.uploads import queue as uploads_queue

    store.fails()
    received = await send(source_batch_id="march")
    await step.drop(ctx, received.queue_id, "me")
    assert not ctx.spool.path(received.queue_id).exists()
    assert query("SELECT status, error_code, dismissed_at IS NOT NULL FROM data_uploads") == [
        ("failed", "STORAGE_DROPPED", True)
    ]
    async with ctx.db.tx() as tx:
        upload = await uploads_queue.get(tx, received.upload_id)
    assert upload is not None
    with pytest.raises(RequestRefused, match="Upload it again") as refusal:
        await reopen(ctx.db, upload, force_partial=False, actor="me")
    assert (refusal.value.status, refusal.value.code) == (409, "not_stored")
    with pytest.raises(RequestRefused, match="There is no waiting file"):
        await step.drop(ctx, received.queue_id, "me")
    again = await send(source_batch_id="march")  # no conflict, by content or by name
    assert (again.upload_id != received.upload_id, again.duplicate) == (True, False)


async def test_a_retry_after_the_content_was_sent_again_is_refused(
    ctx: Context, store: Store, send: Any, clock: Clock
) -> None:
    store.fails()
    received = await send()
    for _ in range(5):
        clock.forward(days=1)
        await pass_(ctx)
    store.works()
    await send()
    with pytest.raises(RequestRefused) as refusal:
        await step.retry_now(ctx.db, received.queue_id, "me")
    assert refusal.value.code == "superseded"


async def test_a_worker_does_not_replay_files_of_another_queue_folder(
    ctx: Context, store: Store, send: Any, clock: Clock
) -> None:
    store.fails()
    await send()
    clock.forward(hours=1)
    async with ctx.db.tx() as tx:
        assert (
            await storage_queue.claim(
                tx, storage_queue.ReplayClaimRequest("elsewhere", uuid4(), LEASE, 10, early=True)
            )
            == []
        )
    assert len(await due(ctx)) == 1


async def test_only_one_of_two_workers_replays_a_file_and_a_lost_lease_changes_nothing(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    await send()
    store.works()
    clock.forward(hours=1)
    [first] = await due(ctx, "first")
    assert await due(ctx, "second") == []
    clock.forward(seconds=61)

    async with ctx.db.tx() as tx:
        assert [each.queue for each in await recover.recover(tx, 5)] == ["storage"]
    [second] = await due(ctx, "second")
    await step.replay(ctx, first)  # it froze, and wakes up
    assert query("SELECT storage_status FROM data_uploads") == [("pending_retry",)]
    assert ctx.spool.path(first.queue_id).is_file()
    await step.replay(ctx, second)
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]
    assert query("SELECT total_bytes, total_sources FROM storage_usage") == [(len(CSV), 1)]


async def test_a_failed_early_replay_does_not_count(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    await send()
    assert await due(ctx, early=True) == []  # it was tried just now
    for _ in range(10):
        query("UPDATE upload_queue SET next_retry_at = weighbridge.now() + interval '5 h'")
        clock.forward(seconds=STORE_PROBE.total_seconds() - 10)
        assert await due(ctx, early=True) == []
        clock.forward(seconds=11)
        before = query("SELECT retry_count, next_retry_at FROM upload_queue")
        [waiting] = await due(ctx, early=True)
        assert not await step.replay(ctx, waiting)
        assert query("SELECT retry_count, next_retry_at FROM upload_queue") == before
    assert query("SELECT status FROM data_uploads") == [("pending",)]


async def test_a_successful_replay_starts_the_other_replays(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock, eventually: Callable[..., Any]
) -> None:
    store.fails()
    for ads in range(1, 8):
        await send(meta_file(1, ads))
    query("UPDATE upload_queue SET retry_count = 4, next_retry_at = weighbridge.now() + interval '5 h'")
    clock.forward(minutes=2)
    store.works()
    stop = asyncio.Event()
    running = asyncio.create_task(
        Replayer(ctx, WorkerOptions(name="me", lease=LEASE, poll=timedelta(seconds=0.05))).run(stop)
    )
    await eventually(
        lambda: query("SELECT count(*) FROM data_uploads WHERE storage_status = 'stored'") == [(7,)]
    )
    stop.set()
    await running
    assert query("SELECT 1 FROM upload_queue") == []


async def test_a_database_failure_does_not_count_as_a_store_failure(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    await send()
    store.works()
    clock.forward(hours=1)
    query(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '55P03'; END $$;"
        "CREATE TRIGGER no BEFORE DELETE ON upload_queue FOR EACH ROW EXECUTE FUNCTION no()"
    )
    for _ in range(6):
        assert await pass_(ctx) == 1
    assert query("SELECT retry_count FROM upload_queue") == [(0,)]
    query("DROP TRIGGER no ON upload_queue")
    assert await pass_(ctx) == 1
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]


async def test_a_crashed_replay_counts(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:

    store.fails()
    received = await send()
    for retry in range(1, 6):
        clock.forward(hours=1)
        assert len(await due(ctx)) == 1
        clock.forward(seconds=61)
        async with ctx.db.tx() as tx:
            [dead] = await recover.recover(tx, 5)
        assert query("SELECT retry_count FROM upload_queue") == [(retry,)]
        assert dead.gave_up == (retry == 5)
    assert query("SELECT status, error_code FROM data_uploads") == [("failed", "STORAGE_RETRY_FAILED")]
    assert ctx.spool.path(received.queue_id).is_file()


async def test_a_file_whose_bytes_changed_while_it_waited_is_left_to_an_operator(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock, home: Path
) -> None:
    store.fails()
    received = await send()
    ctx.spool.path(received.queue_id).write_bytes(CSV + b"x")
    store.works()
    clock.forward(hours=1)
    await pass_(ctx)
    assert query("SELECT status, error_code FROM data_uploads") == [("failed", "STORAGE_RETRY_FAILED")]
    [(why,)] = query("SELECT error_message FROM upload_queue")
    assert (
        why
        == "The copy that waits for the store is damaged: its bytes differ from the bytes that were received."
    )
    assert not (home / "blobs").exists()
    ctx.spool.path(received.queue_id).write_bytes(CSV)  # from a backup
    await step.retry_now(ctx.db, received.queue_id, "me")
    await pass_(ctx)
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]


async def test_the_copy_stays_until_the_store_has_the_same_bytes(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    """A store with other bytes than it was given: the real store, changed right after each write."""
    store.fails()
    received = await send()
    store.works()
    clock.forward(hours=1)
    put = ctx.blobs.put

    async def spoil(key: str, file: Path, *, keep: bool = False) -> str:
        url = await put(key, file, keep=keep)
        assert ctx.blobs.folder is not None
        with (ctx.blobs.folder / key).open("r+b") as blob:
            blob.write(b"?")
        return url

    object.__setattr__(ctx.blobs, "put", spoil)
    await pass_(ctx)
    object.__delattr__(ctx.blobs, "put")
    assert ctx.spool.path(received.queue_id).read_bytes() == CSV
    assert query("SELECT retry_count, error_message FROM upload_queue") == [
        (1, "The file store returned different bytes than were stored.")
    ]
    clock.forward(hours=1)
    await pass_(ctx)
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]
    assert not ctx.spool.path(received.queue_id).exists()


async def test_the_same_bytes_sent_again_are_stored_for_the_waiting_upload(
    ctx: Context, store: Store, send: Any, run: Run, query: Query
) -> None:
    """The waiting copy may be on a machine that is lost; a second upload of the bytes need not wait for it."""
    store.fails()
    first = await send()
    store.works()
    again = await send()
    assert (again.upload_id, again.duplicate, again.storage_status) == (first.upload_id, True, "stored")
    assert (await run(first.upload_id)).status == Status.COMPLETED
    assert query("SELECT 1 FROM upload_queue") == []
    assert query("SELECT total_bytes, total_sources FROM storage_usage") == [(len(CSV), 1)]


async def test_the_sweep_makes_folder_and_table_consistent(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    """What crashes leave: a file without a row, half a file, a row without its file."""
    store.fails()
    kept, lost = await send(), await send(meta_file(1, 2))
    ctx.spool.path(lost.queue_id).unlink()
    old, new, half = (ctx.spool.folder / name for name in (str(uuid4()), str(uuid4()), f".{uuid4().hex}"))
    for path in (old, new, half):
        path.write_bytes(b"x")
    for path in (old, half):
        os.utime(path, (time.time() - 3600,) * 2)
    assert await step.reconcile(ctx) == (1, 1)
    assert {path.name for path in ctx.spool.folder.iterdir()} == {"spool-id", str(kept.queue_id), new.name}
    assert query("SELECT status, error_code FROM data_uploads WHERE id = %s", (lost.upload_id,)) == [
        ("failed", "STORAGE_FILE_LOST")
    ]
    assert await step.reconcile(ctx) == (0, 0)


async def test_a_waiting_file_cannot_be_claimed_and_is_counted(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    from weighbridge.uploads import queue as uploads_queue

    store.fails()
    await send()
    async with ctx.db.tx() as tx:
        wish = uploads_queue.ClaimRequest("me", (Status.PENDING,), ("ads",), LEASE, 3)
        assert (await uploads_queue.claim(tx, wish)).lease is None
        figures = await of_service(tx)
    assert (figures.storage_queue, figures.backlog, figures.backlog_age) == (1, 1, 0)
    with pytest.raises(Exception, match="claimed_when_stored"):
        query("UPDATE data_uploads SET run_after = '-infinity'")


async def test_too_many_files_waiting_too_long_are_alerted(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    await send()
    for minutes, alerts in ((0, []), (16, [("storage_queue",)])):
        clock.forward(minutes=minutes)
        async with ctx.db.tx() as tx:
            await storage_queue.watch(tx, 0, timedelta(minutes=15))
        assert query("SELECT condition FROM weighbridge.alerts WHERE closed_at IS NULL") == alerts
    store.works()
    await pass_(ctx)
    async with ctx.db.tx() as tx:
        await storage_queue.watch(tx, 0, timedelta(minutes=15))
    assert query("SELECT FROM weighbridge.alerts WHERE closed_at IS NULL") == []
