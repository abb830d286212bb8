"""The folder of waiting files: a missing file is not always lost, and a file in it is not always ours."""

from __future__ import annotations

import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.conftest import Clock
from tests.storage.test_deferred_files import CSV, Query, Store
from tests.storage.test_deferred_files import send as send
from tests.storage.test_deferred_files import store as store
from tests.storage.test_replay import due, pass_
from weighbridge.delivery.context import Context
from weighbridge.model.errors import ConfigError, RequestRefused, RetryLater
from weighbridge.storage import replay as step
from weighbridge.storage.waiting_files import Spool

LONG_AGO = time.time() - 24 * 3600


async def test_a_file_received_slowly_is_new_when_it_is_queued(ctx: Context, tmp_path: Path) -> None:
    """The sweep uses the age of a file, and its row does not exist yet."""
    file = tmp_path / "slow"
    file.write_bytes(CSV)
    os.utime(file, (LONG_AGO, LONG_AGO))
    queue_id = uuid4()
    ctx.spool.keep(queue_id, file)
    assert await step.reconcile(ctx) == (0, 0)
    assert ctx.spool.path(queue_id).is_file()


async def test_a_folder_without_its_id_keeps_its_files(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    received = await send()
    os.utime(ctx.spool.path(received.queue_id), (LONG_AGO, LONG_AGO))
    (ctx.spool.folder / "spool-id").unlink()
    renamed = Spool(ctx.spool.folder.parent, UUID(ctx.spool.folder.name))
    assert renamed.id != ctx.spool.id
    ctx = replace(ctx, spool=renamed)  # the next process
    assert await step.reconcile(ctx) == (0, 0)
    store.works()
    clock.forward(hours=1)
    assert await pass_(ctx) == 1
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]


async def test_an_unmounted_disk_loses_no_file(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    store.fails()
    received = await send()
    store.works()
    away = ctx.spool.folder.with_name("unmounted")
    ctx.spool.folder.rename(away)
    ctx.spool.folder.mkdir()
    with pytest.raises(RetryLater, match="Check that its disk is mounted"):
        await step.reconcile(ctx)
    clock.forward(hours=1)
    assert await pass_(ctx) == 1
    assert query("SELECT retry_count, 1 FROM upload_queue") == [(0, 1)]
    assert query("SELECT status, storage_status FROM data_uploads") == [("pending", "pending_retry")]
    shutil.rmtree(ctx.spool.folder)
    away.rename(ctx.spool.folder)
    assert await pass_(ctx) == 1
    assert query("SELECT storage_status FROM data_uploads") == [("stored",)]
    assert not ctx.spool.path(received.queue_id).exists()


async def test_a_copy_of_the_folder_is_another_folder(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    """A second machine from the same image: it must not treat the files of the original as lost."""
    store.fails()
    copied = ctx.spool.folder.parent / "copied" / ctx.spool.folder.name
    shutil.copytree(ctx.spool.folder, copied)
    received = await send()
    twin = Spool(copied.parent, UUID(copied.name))
    assert twin.id != ctx.spool.id
    assert await step.reconcile(replace(ctx, spool=twin)) == (0, 0)
    assert query("SELECT status FROM data_uploads") == [("pending",)]
    assert ctx.spool.path(received.queue_id).is_file()
    assert Spool(ctx.spool.folder.parent, UUID(copied.name)).id == ctx.spool.id  # the original keeps its name


async def test_no_file_is_queued_in_a_replaced_folder(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    """A new process would give the folder another id, and the file would not be found."""
    store.fails()
    ctx.spool.folder.rename(ctx.spool.folder.with_name("away"))
    with pytest.raises(RequestRefused, match="Unable to persist upload retry"):
        await send()
    assert query("SELECT 1 FROM data_uploads") == []
    assert not ctx.spool.folder.exists()


async def test_two_databases_have_separate_folders(ctx: Context, tmp_path: Path) -> None:
    other = Spool(ctx.spool.folder.parent, uuid4())
    assert other.id != ctx.spool.id
    file = tmp_path / "theirs"
    file.write_bytes(CSV)
    theirs = uuid4()
    os.utime(other.keep(theirs, file), (LONG_AGO, LONG_AGO))
    assert await step.reconcile(ctx) == (0, 0)
    assert other.path(theirs).is_file()


async def test_foreign_files_are_not_removed(ctx: Context) -> None:
    """UPLOAD_QUEUE_DIR may be any folder, and some file systems add their own folders."""
    root = ctx.spool.folder.parent
    (root / ".bashrc").write_text("mine")
    (ctx.spool.folder / ".snapshot").mkdir()
    (ctx.spool.folder / ".profile").write_text("mine")
    for path in (root / ".bashrc", ctx.spool.folder / ".snapshot", ctx.spool.folder / ".profile"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert await step.reconcile(ctx) == (0, 0)
    assert (root / ".bashrc").exists()
    assert (ctx.spool.folder / ".profile").exists()


def test_the_permissions_of_a_foreign_folder_are_not_changed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    spool = Spool(shared, uuid4())
    assert spool.id
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700


def test_an_impossible_folder_is_reported_as_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"UPLOAD_QUEUE_DIR: expected a folder where Weighbridge may write"):
        Spool(tmp_path / "file", uuid4()).id  # noqa: B018
    database = uuid4()
    (tmp_path / str(database)).mkdir()
    (tmp_path / str(database) / "spool-id").write_text("something else")
    with pytest.raises(ConfigError, match="its file spool-id was not written by Weighbridge"):
        Spool(tmp_path, database).id  # noqa: B018


async def test_a_row_that_no_worker_replays_is_alerted(
    ctx: Context, store: Store, send: Any, query: Query, clock: Clock
) -> None:
    from datetime import timedelta

    from weighbridge.storage import queue

    store.fails()
    await send()
    query("UPDATE upload_queue SET spool_id = gen_random_uuid()")  # of a machine that is gone
    for hours, alerts in ((0.5, []), (1, [("storage_left", "ERROR")])):
        clock.forward(hours=hours)
        assert await due(ctx) == []
        async with ctx.db.tx() as tx:
            await queue.watch(tx, 100, timedelta(minutes=15))
        assert query("SELECT condition, severity FROM weighbridge.alerts WHERE closed_at IS NULL") == alerts
