"""`weighbridge storage recount`: the counters against the blobs, while uploads go on."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.cli.conftest import Command, environment, weighbridge  # noqa: F401 (fixtures)
from tests.conftest import WAITING
from tests.storage.counting import CSV, USAGE, increment, send
from tests.storage.s3 import S3
from weighbridge.delivery.context import Context
from weighbridge.postgres import clock as db_clock
from weighbridge.storage import quota, usage
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.storage.recount import Recounted, recount
from weighbridge.storage.store import open_store
from weighbridge.uploads import receive
from weighbridge.uploads.check_request import Request, check

OTHER = CSV.replace(b"10.50", b"11.50")


async def one(ctx: Context, workspace: UUID, **options: bool) -> Recounted:
    [found] = await recount(ctx, workspace, **options)
    return found


def path_of(ctx: Context, upload_id: UUID, query: Any) -> Path:
    [(url,)] = query("SELECT file_url FROM data_uploads WHERE id = %s", (upload_id,))
    return Path(url.removeprefix("file://"))


def put_aside(ctx: Context, workspace: UUID, day: str, content: bytes = b"orphan") -> Path:
    """A blob that no upload names."""
    assert ctx.blobs.folder is not None
    path = ctx.blobs.folder / str(workspace) / day / ("e" * 64)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


async def test_correct_counters_are_not_changed(ctx: Context, workspace: UUID, query: Any) -> None:
    await send(ctx, workspace)
    await send(ctx, workspace, OTHER, created_by=uuid4())
    before = query("SELECT * FROM storage_usage ORDER BY user_id")
    assert await recount(ctx, workspace) == []
    assert await recount(ctx, None) == []
    assert query("SELECT * FROM storage_usage ORDER BY user_id") == before


async def test_uncounted_blobs_are_found(ctx: Context, workspace: UUID, query: Any) -> None:
    query("ALTER TABLE storage_usage ADD CONSTRAINT broken CHECK (total_bytes < 1)")
    user = uuid4()
    await send(ctx, workspace, created_by=user)
    await send(ctx, workspace, created_by=uuid4(), client_id=uuid4())  # the same blob: the first one's
    query("ALTER TABLE storage_usage DROP CONSTRAINT broken")
    found = await one(ctx, workspace)
    assert found.users == (usage.CounterDifference(user, 0, 0, len(CSV), 1),)
    assert (found.orphans, found.missing) == ((), ())
    assert query(USAGE)[0][:3] == (len(CSV), 1, len(CSV))
    await send(ctx, workspace, OTHER, created_by=user)
    assert query(USAGE)[0][:3] == (2 * len(CSV), 2, 2 * len(CSV))
    assert await recount(ctx, workspace) == []


async def test_uncounted_blobs_are_added_to_the_month_in_which_they_were_received(
    ctx: Context, workspace: UUID, query: Any, clock: Any
) -> None:
    await send(ctx, workspace)
    for content in (OTHER, CSV + b"2025-01-02,Spring,1\n"):
        query(f"ALTER TABLE storage_usage ADD CONSTRAINT broken CHECK (total_bytes <= {len(CSV)})")
        await send(ctx, workspace, content)
        query("ALTER TABLE storage_usage DROP CONSTRAINT broken")
        if content is OTHER:
            clock.forward(days=40)
    await increment(ctx.db, workspace, uuid4(), 0)
    await one(ctx, workspace)
    total = 3 * len(CSV) + 20
    assert query(USAGE + " WHERE user_id = %s", (DEFAULT_USER,))[0][:2] == (total, 3)
    shown = query("SELECT month_bytes FROM storage_usage WHERE user_id = %s", (DEFAULT_USER,))
    assert shown == [(len(CSV) + 20,)]


async def test_changed_counters_are_corrected(ctx: Context, workspace: UUID, query: Any) -> None:
    await send(ctx, workspace)
    nobody = uuid4()
    query("UPDATE storage_usage SET total_bytes = 5, total_sources = 7")
    query(
        "INSERT INTO storage_usage (workspace_id, user_id, total_bytes, total_sources) VALUES (%s, %s, 9, 1)",
        (workspace, nobody),
    )
    expected = {
        usage.CounterDifference(DEFAULT_USER, 5, 7, len(CSV), 1),
        usage.CounterDifference(nobody, 9, 1, 0, 0),
    }
    assert set((await one(ctx, workspace, dry=True)).users) == expected
    assert query("SELECT total_bytes FROM storage_usage ORDER BY 1") == [(5,), (9,)]
    assert set((await one(ctx, workspace)).users) == expected
    assert query("SELECT total_bytes FROM storage_usage ORDER BY 1") == [(0,), (len(CSV),)]


async def test_a_lost_blob_is_reported_as_missing_and_no_longer_counted(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    received = await send(ctx, workspace)
    kept = await send(ctx, workspace, OTHER)
    path_of(ctx, received.upload_id, query).unlink()
    found = await one(ctx, workspace)
    assert found.missing == (received.upload_id,)
    assert query(USAGE)[0][:2] == (len(OTHER), 1)
    assert kept.upload_id not in found.missing
    again = await one(ctx, workspace)
    assert (again.users, again.missing) == ((), (received.upload_id,))


async def test_a_blob_with_a_wrong_counted_size_is_counted_with_its_real_size(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    received = await send(ctx, workspace)
    path = path_of(ctx, received.upload_id, query)
    path.chmod(0o600)
    path.write_bytes(CSV * 2)
    await one(ctx, workspace)
    assert query(USAGE)[0][:2] == (2 * len(CSV), 1)


async def test_unreferenced_blobs_are_orphans_once_no_upload_of_them_can_be_in_progress(
    ctx: Context, workspace: UUID, query: Any, clock: Any
) -> None:
    [(today,)] = query("SELECT to_char(weighbridge.now() AT TIME ZONE 'UTC', 'YYYY/MM/DD')")
    path = put_aside(ctx, workspace, today)
    assert await recount(ctx, workspace) == []
    clock.forward(days=1)
    assert await recount(ctx, None) == []
    clock.forward(days=1)
    for found in (await one(ctx, workspace, dry=True, remove_orphans=True), await one(ctx, workspace)):
        assert (found.orphans, found.removed) == (((f"{today}/{'e' * 64}", 6),), 0)
        assert path.exists()
    # Blobs of an unknown workspace: they may belong to another database.
    [found] = await recount(ctx, None, remove_orphans=True)
    assert (found.workspace_id, found.removed, path.exists()) == (workspace, 0, True)
    found = await one(ctx, workspace, remove_orphans=True)  # unless the workspace is given
    assert (found.workspace_id, found.removed) == (workspace, 1)
    assert not path.exists()
    assert await recount(ctx, None) == []


async def test_the_blob_of_a_waiting_file_is_no_orphan(ctx: Context, workspace: UUID, query: Any) -> None:
    """Its replay may have stored it, and be about to record it."""
    path = put_aside(ctx, workspace, "2026/01/01")
    query(
        "INSERT INTO upload_queue (temp_file_path, bucket, object_path, content_hash, byte_size, user_id, workspace_id,"
        " spool_id) VALUES ('x', 'b', %s, repeat('e', 64), 6, %s, %s, gen_random_uuid())",
        (f"{workspace}/2026/01/01/{'e' * 64}", DEFAULT_USER, workspace),
    )
    assert await recount(ctx, workspace, remove_orphans=True) == []
    assert path.exists()


# While uploads go on -----------------------------------------------------------------------------------------


class Interrupted:
    """The store, whose listing is interrupted before its first and after its last blob."""

    def __init__(self, ctx: Context, *meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._blobs = ctx.blobs
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def listing(self, workspace_id: UUID | None = None) -> AsyncIterator[tuple[str, int]]:
        found = [each async for each in self._blobs.listing(workspace_id)]
        for happens in self._meanwhile:
            await happens()
        self._meanwhile = ()
        for each in found:
            yield each


async def test_a_blob_stored_during_the_listing_is_not_reported_as_missing(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    await send(ctx, workspace)
    during = replace(ctx, blobs=Interrupted(ctx, lambda: send(ctx, workspace, OTHER)))
    assert await recount(during, workspace) == []
    assert query(USAGE)[0][:2] == (2 * len(CSV), 2)


async def test_a_blob_replayed_during_the_listing_is_not_reported_as_missing(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    """It was received long before, so only the second check can show it."""
    received = await send(ctx, workspace)
    path = path_of(ctx, received.upload_id, query)
    content = path.read_bytes()
    path.unlink()

    async def stored() -> None:
        path.write_bytes(content)

    found = await one(replace(ctx, blobs=Interrupted(ctx, stored)), workspace)
    assert found.missing == ()
    assert len(found.users) == 1
    assert await one(ctx, workspace) is not None  # counted again
    assert query(USAGE)[0][:2] == (len(CSV), 1)


async def test_a_recount_waits_for_open_transactions_that_count(
    ctx: Context, workspace: UUID, query: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting: asyncio.Task[list[Recounted]] | None = None
    count = quota.count

    async def count_slowly(*args: Any) -> None:
        nonlocal counting
        await count(*args)
        counting = asyncio.create_task(recount(ctx, workspace))
        while not query(WAITING):
            await asyncio.sleep(0.01)
            assert not counting.done()

    (tmp_path / "a.csv").write_bytes(CSV)
    checked = check(ctx, Request(workspace_id=workspace, platform="meta"))
    file = await receive.save_to_scratch(ctx, checked, tmp_path / "a.csv", "a.csv", uuid4())
    monkeypatch.setattr(quota, "count", count_slowly)
    await receive.record(ctx, checked, file)
    assert counting is not None
    assert await counting == []
    assert query(USAGE)[0][:2] == (len(CSV), 1)


async def test_concurrent_recounts_and_uploads_end_with_correct_counters(
    ctx: Context, workspace: UUID, query: Any
) -> None:
    async def upload(n: int) -> None:
        await send(ctx, workspace, CSV.replace(b"10.50", b"10.%02d" % n), created_by=UUID(int=n % 3))

    async def recounting() -> None:
        for _ in range(6):
            assert await recount(ctx, workspace) == []

    await asyncio.gather(*(upload(n) for n in range(20)), recounting(), recounting())
    assert query("SELECT sum(total_bytes), sum(total_sources) FROM storage_usage") == [(20 * len(CSV), 20)]


async def test_many_blobs_are_compared_in_one_pass(ctx: Context, workspace: UUID, query: Any) -> None:
    query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, file_url, forced)"
        " SELECT %(w)s, 'api', 'ads', sha256(n::text::bytea), 1,"
        " 's3://b/' || %(w)s::text || '/2026/01/01/' || encode(sha256(n::text::bytea), 'hex'), true"
        " FROM generate_series(1, 20000) AS n",
        {"w": workspace},
    )
    keys = query("SELECT weighbridge.blob_key(file_url), 1 FROM data_uploads ORDER BY 1 OFFSET 1")
    began = time.monotonic()
    async with ctx.db.tx(workspace_id=workspace) as tx:
        found = await usage.recount(
            tx, [*keys, ("2026/01/01/" + "f" * 64, 3)], await db_clock.now(tx), dry=False
        )
    assert time.monotonic() - began < 20
    assert (len(found.missing), found.orphans) == (1, (("2026/01/01/" + "f" * 64, 3),))
    assert query(USAGE)[0][:2] == (19_999, 19_999)


# From the command line, and on S3 ----------------------------------------------------------------------------


async def test_the_command_lists_differences_and_fails_if_a_file_is_missing(
    ctx: Context, workspace: UUID, weighbridge: Command, query: Any
) -> None:
    received = await send(ctx, workspace)
    run = lambda *options: asyncio.to_thread(weighbridge, "storage", "recount", *options)  # noqa: E731
    agreed = await run()
    assert (agreed.code, agreed.out) == (0, "The counters match the stored files.\n")
    query("UPDATE storage_usage SET total_bytes = 0")
    put_aside(ctx, workspace, "2026/01/01")
    tried = await run("--dry-run", "--workspace", workspace)
    assert tried.code == 0
    assert (
        f"user {DEFAULT_USER}: 1 files of 0 bytes were counted, 1 of {len(CSV)} bytes are stored."
        in tried.out
    )
    assert (
        "1 stored files of 6 bytes belong to no upload; delete them with weighbridge storage recount"
        in tried.out
    )
    mended = await run("--json", "--remove-orphans", "--yes")
    assert mended.code == 0
    assert mended.json == [
        {
            "workspace_id": str(workspace),
            "users": [{"user_id": str(DEFAULT_USER), "recorded_bytes": 0, "recorded_sources": 1,
                       "found_bytes": len(CSV), "found_sources": 1}],
            "orphans": {"number": 1, "bytes": 6}, "removed": 1, "missing": [],
        }
    ]  # fmt: skip
    path_of(ctx, received.upload_id, query).unlink()
    missing = await run()
    assert missing.code == 1
    assert f"weighbridge: The stored file of upload {received.upload_id} is missing." in missing.err


async def test_a_bucket_is_recounted_too(
    ctx: Context, s3: S3, workspace: UUID, query: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    ctx = replace(ctx, blobs=open_store(s3.bucket_url, tmp_path))
    await send(ctx, workspace)
    await send(ctx, workspace, OTHER)
    assert await recount(ctx, None) == []
    [(url,)] = query("SELECT file_url FROM data_uploads ORDER BY created_at LIMIT 1")
    await ctx.blobs.delete(url.removeprefix(f"{s3.bucket_url}/"))
    found = await one(ctx, workspace)
    assert len(found.missing) == 1
    assert query(USAGE)[0][:2] == (len(OTHER), 1)
