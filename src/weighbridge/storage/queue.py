"""Queries of `upload_queue`: files that the store could not accept yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from weighbridge.model.retry import STORE_PROBE
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease, Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class Deferral:
    """A file that waits for the store, and its details."""

    upload_id: UUID
    queue_id: UUID
    spool_id: UUID
    path: str
    bucket: str
    object_path: str
    user_id: UUID
    max_retries: int
    delay: timedelta
    error: str
    consumers: list[str]


@dataclass(frozen=True)
class Replay:
    """One waiting file, claimed."""

    lease: Lease
    upload_id: UUID | None
    user_id: UUID
    object_path: str
    content_sha256: bytes
    byte_size: int
    retry_count: int
    max_retries: int
    early: bool  # tried before it is due: a failure does not count

    @property
    def queue_id(self) -> UUID:
        return self.lease.subject


@dataclass(frozen=True)
class Waiting:
    """A row of `upload_queue` for display: without the path."""

    queue_id: UUID
    upload_id: UUID | None
    workspace_id: UUID
    user_id: UUID
    bucket: str
    object_path: str
    content_hash: str
    byte_size: int
    retry_count: int
    max_retries: int
    storage_status: str
    next_retry_at: datetime | None
    error_message: str | None
    created_at: datetime
    metadata: dict[str, Any]
    spool_id: UUID


async def defer(tx: Tx, deferral: Deferral) -> None:
    """Queue a file, in the transaction that recorded its upload."""
    await tx.execute(_SQL["defer_upload"], asdict(deferral))


async def upload_of(tx: Tx, queue_id: UUID) -> UUID | None:
    """The upload of a waiting file; None if no file with this id waits."""
    row = await fetch_one(tx, _SQL["upload_of_queue"], (queue_id,))
    return row[0] if row else None


@dataclass(frozen=True)
class ReplayClaimRequest:
    """Which files a process may replay."""

    worker: str
    spool_id: UUID
    lease: timedelta
    limit: int
    early: bool = False  # also files that are not due, except those tried recently


async def claim(tx: Tx, request: ReplayClaimRequest) -> list[Replay]:
    """Claim files of a spool, each with its own lease."""
    early_after = STORE_PROBE if request.early else None
    params = (request.worker, request.spool_id, request.lease, request.limit, early_after)
    rows = await fetch_all(tx, _SQL["claim_replays"], params)
    return [
        Replay(Lease(token, queue, workspace), upload, user, path, bytes.fromhex(digest), *rest)
        for token, queue, workspace, upload, user, path, digest, *rest in rows
    ]


async def finish(tx: Tx, replay: Replay, file_url: str) -> bool:
    """The blob is stored. False: the upload no longer waits for it."""
    row = await fetch_one(tx, _SQL["finish_replay"], (replay.lease.token, file_url))
    return bool(row and row[0])


@dataclass(frozen=True)
class Failure:
    """How a replay failed. Without a delay it was the last attempt; one that does not count keeps its due time."""

    error: str
    delay: timedelta | None
    counts: bool
    consumers: list[str]


async def fail(tx: Tx, replay: Replay, how: Failure) -> None:
    """Postpone the file, or give up and leave file and row for an operator."""
    params = (replay.lease.token, how.delay, how.error, how.counts, how.consumers)
    await tx.execute(_SQL["fail_replay"], params)


async def close_attempt(tx: Tx, replay: Replay) -> None:
    """Return the file unchanged: the process is stopping."""
    await tx.execute(_SQL["close_attempt"], (replay.lease.token, "released", None))


async def fail_lost(tx: Tx, queue_id: UUID, lease: Lease | None = None) -> bool:
    """The waiting file is lost: fail its upload. False: another process has it, or it is settled."""
    row = await fetch_one(tx, _SQL["fail_lost_replay"], (queue_id, lease and lease.token))
    return bool(row and row[0])


async def spooled(tx: Tx, spool_id: UUID) -> set[UUID]:
    """Every file that should be in this spool."""
    return {row[0] for row in await fetch_all(tx, _SQL["spooled"], (spool_id,))}


async def adopt(tx: Tx, spool_id: UUID, ids: Sequence[UUID]) -> set[UUID]:
    """Assign files that are in this spool to it, even if their rows name another one; returns those with a row."""
    return {row[0] for row in await fetch_all(tx, _SQL["adopt"], (spool_id, list(ids)))}


async def store_waiting(tx: Tx, upload_id: UUID, file_url: str) -> bool:
    """The content of a waiting upload was received again and is now stored. False: it no longer waits."""
    row = await fetch_one(tx, _SQL["store_waiting"], (upload_id, file_url))
    return bool(row and row[0])


async def identity(tx: Tx) -> UUID:
    """The identity of this database."""
    row = await fetch_one(tx, _SQL["identity"])
    assert row is not None
    return UUID(str(row[0]))


async def waiting(
    tx: Tx, *, workspace_id: UUID | None = None, failed: bool | None = None, limit: int = 200
) -> list[Waiting]:
    """Queued files, oldest first; `failed`: only those that were given up, or only those that were not."""
    params = {"workspace": workspace_id, "failed": failed, "limit": limit}
    return [Waiting(**row) for row in await fetch_named(tx, _SQL["waiting_files"], params)]


async def of_upload(tx: Tx, upload_id: UUID) -> UUID | None:
    """The queue id of an upload's file, if it is queued."""
    row = await fetch_one(tx, _SQL["queue_of_upload"], (upload_id,))
    return row[0] if row else None


async def retry(tx: Tx, queue_id: UUID, actor: str) -> str:
    """`queued`, `unknown` (no such file) or `superseded`."""
    row = await fetch_one(tx, _SQL["retry_replay"], (queue_id, actor))
    assert row is not None
    return str(row[0])


async def drop(tx: Tx, queue_id: UUID, actor: str) -> bool:
    row = await fetch_one(tx, _SQL["drop_replay"], (queue_id, actor))
    return bool(row and row[0])


async def watch(tx: Tx, threshold: int, alert_after: timedelta) -> int:
    """Raise or withdraw the alert about waiting files; returns how many there are."""
    row = await fetch_one(tx, _SQL["watch_storage"], (threshold, alert_after))
    assert row is not None
    return int(row[0])


@dataclass(frozen=True)
class Unstored:
    given_up: int
    late: int
    overdue: int  # of these, those that no machine retries


async def waiting_for_store(tx: Tx) -> Unstored:
    """Files that the store could not accept."""
    [row] = await fetch_all(tx, _SQL["waiting_for_store"])
    return Unstored(*row)
