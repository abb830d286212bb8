"""Retention: a blob is removed when the retention period of all its uploads is over, and never before."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from tests.api.conftest import client, key, make_key  # noqa: F401 (fixtures)
from tests.cli.conftest import Command, environment, weighbridge  # noqa: F401 (fixtures)
from tests.engine.conftest import Run, meta_file, run  # noqa: F401 (a fixture)
from tests.storage.counting import CSV, USAGE, send, until_next_month
from tests.storage.s3 import S3
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.storage import usage
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.storage.recount import recount
from weighbridge.storage.retention import MAX_FAILED_REMOVALS, retain
from weighbridge.storage.store import open_store
from weighbridge.uploads import queue
from weighbridge.uploads.operator_retry import reopen

STATES = "SELECT storage_status, blob_removed_at IS NOT NULL FROM data_uploads ORDER BY created_at"
BROKEN = b"Day,Campaign name,Amount spent (USD)\nx,y,z\n"


@pytest.fixture
def kept(ctx: Context) -> Context:
    """Blobs are kept for three days."""
    return replace(ctx, limits=replace(ctx.limits, blob_days=3))


def blobs(ctx: Context) -> list[Path]:
    assert ctx.blobs.folder is not None
    return [path for path in ctx.blobs.folder.rglob("*") if path.is_file()]


async def ended(ctx: Context, workspace: UUID, run: Run, content: bytes = CSV, **said: Any) -> UUID:
    """An upload that has ended."""
    received = await send(ctx, workspace, content, **said)
    await run(received.upload_id)
    return received.upload_id


async def test_a_blob_is_removed_when_its_retention_period_is_over(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    user = uuid4()
    await ended(kept, workspace, run, created_by=user)
    clock.forward(days=2, hours=23)
    assert await retain(kept) == 0
    assert len(blobs(kept)) == 1
    clock.forward(hours=2)
    assert await retain(kept) == 1
    assert blobs(kept) == []
    assert query(STATES) == [("removed", True)]
    assert query("SELECT status, file_url LIKE 'file://%%' FROM data_uploads") == [("completed", True)]
    assert query("SELECT user_id, total_bytes, total_sources FROM storage_usage") == [(user, 0, 0)]
    assert await retain(kept) == 0
    assert await recount(kept, None) == []


async def test_by_default_blobs_are_kept_for_ever(
    ctx: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    await ended(ctx, workspace, run)
    clock.forward(days=4000)
    assert await retain(ctx) == 0
    assert len(blobs(ctx)) == 1


async def test_the_monthly_usage_keeps_removed_blobs(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    clock.forward(until_next_month(query))
    await ended(kept, workspace, run)
    clock.forward(days=4)
    assert await retain(kept) == 1
    assert query(USAGE)[0][:3] == (0, 0, len(CSV))


async def test_an_old_blob_of_an_unfinished_upload_is_kept(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    await ended(kept, workspace, run)
    await send(kept, workspace, client_id=uuid4())  # the same blob, and nobody has worked on it
    await send(kept, workspace, BROKEN)
    clock.forward(days=400)
    assert await retain(kept) == 0
    assert len(blobs(kept)) == 2
    assert query("SELECT DISTINCT storage_status FROM data_uploads") == [("stored",)]


async def test_a_blob_is_kept_until_the_retention_period_of_its_last_upload_is_over(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    first, second = uuid4(), uuid4()
    await ended(kept, workspace, run, created_by=first)
    later = await send(kept, workspace, client_id=uuid4(), created_by=second)
    clock.forward(days=2)
    await run(later.upload_id)
    clock.forward(days=2)
    assert await retain(kept) == 0
    clock.forward(days=2)
    assert await retain(kept) == 1
    assert query(STATES) == [("removed", True)] * 2
    assert query("SELECT user_id, total_bytes FROM storage_usage") == [(first, 0)]


async def test_a_retention_of_one_day_is_two_days_while_an_upload_may_be_in_progress(
    ctx: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    """A file received just before midnight has the key of that day, and is recorded after midnight."""
    daily = replace(ctx, limits=replace(ctx.limits, blob_days=1))
    ((left,),) = query(
        "SELECT date_trunc('day', weighbridge.now() AT TIME ZONE 'UTC') + interval '1 day 1 minute'"
        " - weighbridge.now() AT TIME ZONE 'UTC'"
    )
    clock.forward(left)  # a minute into a new day
    await ended(daily, workspace, run)
    clock.forward(hours=24, minutes=1)
    assert await retain(daily) == 0
    clock.forward(hours=24)
    assert await retain(daily) == 1


async def test_the_blob_of_a_waiting_file_is_kept(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    """It is stored under the key of the day on which it was received; its replay must not be undone."""
    upload_id = await ended(kept, workspace, run)
    [(url,)] = query("SELECT file_url FROM data_uploads")
    object_path = url.partition(str(workspace))[1] + url.partition(str(workspace))[2]
    query(
        "INSERT INTO upload_queue (temp_file_path, bucket, object_path, content_hash, byte_size, user_id, workspace_id,"
        " spool_id, retry_count) VALUES ('x', 'b', %s, repeat('e', 64), 6, %s, %s, gen_random_uuid(), 5)",
        (object_path, DEFAULT_USER, workspace),
    )
    clock.forward(days=9)
    assert await retain(kept) == 0
    query("DELETE FROM upload_queue")
    assert await retain(kept) == 1
    assert query("SELECT storage_status FROM data_uploads WHERE id = %s", (upload_id,)) == [("removed",)]


# Concurrent retries by an operator ---------------------------------------------------------------------------


async def test_an_upload_that_is_being_reopened_keeps_its_blob(
    kept: Context, workspace: UUID, run: Run, database_url: str, query: Any, clock: Any
) -> None:
    upload_id = await ended(kept, workspace, run, BROKEN)
    await ended(kept, workspace, run, BROKEN, force=True)
    clock.forward(days=4)
    with psycopg.connect(database_url) as operator:
        opened = operator.execute(
            "SELECT weighbridge.retry_upload(%s, false, 'test')", (upload_id,)
        ).fetchone()
        assert opened == ("pending",)
        assert await retain(kept) == 0  # and does not wait
        operator.commit()
    assert await retain(kept) == 0
    assert len(blobs(kept)) == 1
    assert query("SELECT status, storage_status FROM data_uploads WHERE id = %s", (upload_id,)) == [
        ("pending", "stored")
    ]


async def test_concurrent_retries_and_removals_never_leave_an_open_upload_without_its_blob(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    files = [BROKEN + b"%d,,\n" % n for n in range(12)]
    failed = [await ended(kept, workspace, run, content) for content in files]
    clock.forward(days=4)

    refused: list[str] = []

    async def open_again(upload_id: UUID) -> bool:
        async with kept.db.tx() as tx:
            upload = await queue.get(tx, upload_id)
        assert upload is not None
        try:
            await reopen(kept.db, upload, force_partial=False, actor="test")
        except RequestRefused as refusal:
            refused.append(refusal.code)
            return False
        return True

    removals = [retain(kept) for _ in range(2)]
    *opened, first, second = await asyncio.gather(*(open_again(each) for each in failed), *removals)
    assert set(refused) <= {"file_removed"}
    assert sum(opened) + first + second >= 12
    states = query("SELECT status, storage_status, file_url FROM data_uploads")
    assert {(status, stored) for status, stored, _ in states} <= {
        ("pending", "stored"),
        ("failed", "removed"),
    }
    there = {path.as_uri() for path in blobs(kept)}
    assert {url for status, _, url in states if status == "pending"} == there
    assert query("SELECT sum(total_bytes) = coalesce((SELECT sum(bytes) FROM weighbridge.counted_blobs), 0)"
                 " FROM storage_usage") == [(True,)]  # fmt: skip


@pytest.mark.parametrize("batch", [None, "nightly-7"])
async def test_an_upload_whose_file_is_removed_cannot_be_retried_and_the_error_says_why(
    app: App,
    client: httpx.AsyncClient,
    key: dict[str, str],
    workspace: UUID,
    run: Run,
    query: Any,
    clock: Any,
    batch: Any,
) -> None:
    kept = replace(app.ctx, limits=replace(app.ctx.limits, blob_days=3))
    upload_id = await ended(kept, workspace, run, BROKEN, source_batch_id=batch)
    clock.forward(days=5)
    assert await retain(kept) == 1
    refused = await client.post(f"/api/uploads/{upload_id}/retry", headers=key)
    release = f" after weighbridge uploads release-batch {upload_id}, or under another batch name"
    again = f"Upload the file again{release if batch else ''}."
    assert refused.status_code == 409
    assert refused.json() == {
        "error": "file_removed",
        "message": f"The stored file was removed after 5 days. {again}",
    }
    assert query("SELECT FROM storage_usage WHERE interpretation_count_month > 0") == []
    other = {"source_batch_id": f"{batch}-again"} if batch else {}
    sent = await send(kept, workspace, BROKEN, **other)  # and that can be done
    assert not sent.duplicate
    rejects = await client.get(f"/api/uploads/{upload_id}/rejects", headers=key)
    assert (rejects.status_code, "x,y,z" in rejects.text) == (200, True)  # kept in the database


# Crashes during a removal ------------------------------------------------------------------------------------


class Dying:
    """The store, which fails when a blob is to be removed: before it is, or after."""

    def __init__(self, ctx: Context, error: Exception, *, after: bool) -> None:
        self._blobs, self._error, self._after = ctx.blobs, error, after
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def delete(self, key: str) -> None:
        self.asked += 1
        if self._after:
            await self._blobs.delete(key)
        raise self._error


@pytest.mark.parametrize("after", [False, True])
async def test_an_interrupted_removal_is_completed_by_the_next_run(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any, after: bool
) -> None:
    upload_id = await ended(kept, workspace, run, BROKEN)
    clock.forward(days=4)
    with pytest.raises(RuntimeError):
        await retain(replace(kept, blobs=Dying(kept, RuntimeError("killed"), after=after)))
    assert query(STATES) == [("removed", False)]
    assert len(blobs(kept)) == (0 if after else 1)
    assert query(USAGE)[0][:2] == (len(BROKEN), 1)  # as long as it may be there
    async with kept.db.tx() as tx:
        upload = await queue.get(tx, upload_id)
    assert upload is not None
    with pytest.raises(RequestRefused, match="removed after 4 days"):
        await reopen(kept.db, upload, force_partial=False, actor="test")
    assert all(not found.orphans and not found.missing for found in await recount(kept, workspace, dry=True))
    longer = replace(kept, limits=replace(kept.limits, blob_days=None))  # whatever the setting is by now
    assert await retain(longer) == 1
    assert query(STATES) == [("removed", True)]
    assert blobs(kept) == []
    assert query(USAGE)[0][:2] == (0, 0)


async def test_a_failing_removal_does_not_block_others_and_an_unavailable_store_is_not_called_again(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    for n in range(MAX_FAILED_REMOVALS + 2):
        await ended(kept, workspace, run, CSV.replace(b"10.50", b"%d" % n))
    clock.forward(days=4)
    dead = Dying(kept, RetryLater("connection", "The file store cannot be used now."), after=False)
    with pytest.raises(RetryLater):
        await retain(replace(kept, blobs=dead))
    assert dead.asked == MAX_FAILED_REMOVALS
    assert query("SELECT count(*) FROM data_uploads WHERE storage_status = 'removed'") == [
        (MAX_FAILED_REMOVALS,)
    ]
    assert await retain(kept) == MAX_FAILED_REMOVALS + 2


# Around it ---------------------------------------------------------------------------------------------------


async def test_cleaning_removes_expired_reservations(kept: Context, workspace: UUID, query: Any) -> None:
    query(
        "INSERT INTO weighbridge.storage_reservations SELECT %s, gen_random_uuid(), %s, 5,"
        " weighbridge.now() + n * interval '1 hour' FROM generate_series(-1, 1, 2) AS n",
        (workspace, DEFAULT_USER),
    )
    await retain(kept)
    assert query("SELECT until > weighbridge.now() FROM weighbridge.storage_reservations") == [(True,)]


async def test_weighbridge_clean_prints_how_many_were_removed(
    ctx: Context, workspace: UUID, run: Run, weighbridge: Command, clock: Any
) -> None:
    await ended(ctx, workspace, run, meta_file())
    clock.forward(days=8)
    cleaned = await asyncio.to_thread(weighbridge, "clean", WEIGHBRIDGE_BLOB_DAYS="7")
    assert cleaned.code == 0
    assert cleaned.out.endswith("staged rows, 0 scratch files, 1 stored files and 1 old records removed.\n")
    again = await asyncio.to_thread(weighbridge, "clean", "--json", WEIGHBRIDGE_BLOB_DAYS="7")
    assert again.json["blobs"] == 0


async def test_a_new_upload_of_a_removed_file_has_a_new_blob(
    kept: Context, workspace: UUID, run: Run, query: Any, clock: Any
) -> None:
    await ended(kept, workspace, run)
    clock.forward(days=4)
    await retain(kept)
    assert (await send(kept, workspace)).duplicate  # it is in the tables: nothing is read again
    await ended(kept, workspace, run, force=True)
    assert query(STATES) == [("removed", True), ("stored", False)]
    assert len(blobs(kept)) == 1
    assert query(USAGE)[0][:2] == (len(CSV), 1)


async def test_objects_in_a_bucket_are_removed_too(
    kept: Context,
    s3: S3,
    workspace: UUID,
    query: Any,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    kept = replace(kept, blobs=open_store(s3.bucket_url, tmp_path))
    await send(kept, workspace)
    query("UPDATE data_uploads SET status = 'failed', finished_at = weighbridge.now()")
    clock.forward(days=4)
    assert [size async for _, size in kept.blobs.listing(workspace)] == [len(CSV)]
    assert await retain(kept) == 1
    assert [size async for _, size in kept.blobs.listing(workspace)] == []
    assert await retain(kept) == 0


async def test_only_uploads_of_the_workspace_can_be_retired(
    kept: Context, workspace: UUID, run: Run, clock: Any
) -> None:
    upload_id = await ended(kept, workspace, run)
    clock.forward(days=4)
    async with kept.db.tx("weighbridge_clean", uuid4()) as tx:
        assert await usage.retire(tx, upload_id, 3) is None
    assert len(blobs(kept)) == 1
