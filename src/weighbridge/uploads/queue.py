"""Queries of `data_uploads`: every read and every change of state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.engine.recover import Recovered
from weighbridge.model.columns import NO_COLUMNS, ColumnReport
from weighbridge.model.read_as import UNDECIDED, ReadAs
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.retry import MAX_CRASHES
from weighbridge.model.states import Status
from weighbridge.model.upload import Bins, Upload, Watermark
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease, Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class NewUpload:
    """A file that is about to be recorded; without a file_url its bytes are not stored yet."""

    workspace_id: UUID
    client_id: UUID | None
    platform: str | None
    source: str
    pipeline: str
    filename: str | None
    file_url: str | None
    file_kind: str
    content_sha256: bytes
    byte_size: int
    created_by: UUID | None = None
    force_partial: bool = False
    forced: bool = False
    source_batch_id: str | None = None
    traceparent: str | None = None
    project_id: int | None = None
    preview: bool = False
    reading: ReadOptions = DETECT_ALL
    lane: str | None = None  # files with the same one are promoted in order: see Pipeline.lane


@dataclass(frozen=True)
class Staged:
    """The result of parsing a file."""

    bins: Bins
    columns: tuple[str, ...]
    mapping: dict[str, str]
    affected_dates: tuple[date, ...]
    digest: bytes  # of everything that was staged
    column_report: ColumnReport = NO_COLUMNS
    read_as: ReadAs = UNDECIDED
    last_rows: Mapping[str, int] = field(
        default_factory=dict
    )  # as in `note_staged`, of rows in the same transaction


@dataclass(frozen=True)
class Known:
    """The existing upload of a file, and why: duplicate_content, duplicate_completed, batch_failed, …"""

    upload_id: UUID
    reason: str


async def site_exists(tx: Tx, workspace_id: UUID, site_id: UUID) -> bool:
    row = await fetch_one(tx, _SQL["site_exists"], (workspace_id, site_id))
    return bool(row and row[0])


async def receive(tx: Tx, new: NewUpload) -> UUID | Known:
    """Record a stored file, unless it is already known."""
    row = await fetch_one(tx, _SQL["receive_upload"], {**vars(new), "reading": Jsonb(new.reading.as_dict())})
    assert row is not None
    return Known(row[0], row[2]) if row[1] else row[0]


@dataclass(frozen=True)
class ClaimRequest:
    """What a worker may claim."""

    worker: str
    sources: tuple[Status, ...]
    pipelines: tuple[str, ...]
    lease: timedelta
    per_workspace: int
    max_crashes: int = MAX_CRASHES
    skip: frozenset[UUID] = frozenset()  # not of these workspaces


@dataclass(frozen=True)
class Claimed:
    """The next upload and its lease, if there is one, and the abandoned work that was recovered first."""

    lease: Lease | None = None
    upload: Upload | None = None
    abandoned: tuple[Recovered, ...] = ()


async def claim(tx: Tx, request: ClaimRequest) -> Claimed:
    """Claim the next upload. The same statement returns abandoned uploads to the queue."""
    row = await fetch_one(
        tx,
        _SQL["claim_upload"],
        {
            "worker": request.worker,
            "from": list(request.sources),
            "pipelines": list(request.pipelines),
            "lease": request.lease,
            "limit": request.per_workspace,
            "max_crashes": request.max_crashes,
            "skip": list(request.skip),
        },
    )
    if row is None:
        return Claimed()
    abandoned = tuple(Recovered.of(each) for each in row[2] or ())
    if row[0] is None:
        return Claimed(abandoned=abandoned)
    upload = await get(tx, row[0])
    assert upload is not None
    return Claimed(Lease(row[1], upload.id, upload.workspace_id), upload, abandoned)


async def get(tx: Tx, upload_id: UUID) -> Upload | None:
    found = await get_many(tx, [upload_id])
    return found[0] if found else None


async def get_many(tx: Tx, upload_ids: Sequence[UUID]) -> list[Upload]:
    """The uploads that exist, newest first."""
    return [_upload(row) for row in await fetch_named(tx, _SQL["get_uploads"], (list(upload_ids),))]


async def started(tx: Tx, upload_ids: Sequence[UUID]) -> list[UUID]:
    """The uploads that are no longer waiting."""
    return [row[0] for row in await fetch_all(tx, _SQL["started_uploads"], (list(upload_ids),))]


@dataclass(frozen=True)
class Holder:
    """The worker that holds an upload, and when its lease expires without a heartbeat."""

    upload_id: UUID
    worker: str
    lease_until: datetime


async def waits_for(tx: Tx, upload_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Staged uploads that wait for an earlier one, with that one."""
    rows = await fetch_all(tx, _SQL["waits_for"], (list(upload_ids),))
    return {waiting: earlier for waiting, earlier in rows if earlier is not None}


async def holders(tx: Tx, upload_ids: Sequence[UUID]) -> list[Holder]:
    return [Holder(*row) for row in await fetch_all(tx, _SQL["holders"], (list(upload_ids),))]


@dataclass(frozen=True)
class UploadCursor:
    """Where a page of uploads ended. Two uploads may have arrived at the same moment."""

    created_at: datetime
    id: UUID


async def recent_uploads(
    tx: Tx, workspace_id: UUID, *, status: str | None = None, behind: UploadCursor | None = None, limit: int
) -> list[Upload]:
    """The newest uploads of a workspace, a page at a time."""
    rows = await fetch_all(
        tx,
        _SQL["recent_uploads"],
        {
            "workspace": workspace_id,
            "status": status,
            "before": behind and behind.created_at,
            "behind": behind and behind.id,
            "limit": limit,
        },
    )
    return await get_many(tx, [row[0] for row in rows])


@dataclass(frozen=True)
class Release:
    """How an upload goes back to the queue."""

    delay: timedelta = timedelta(0)
    failed: bool = False
    error: str | None = None


async def release(tx: Tx, lease: Lease, how: Release) -> None:
    """Return the upload to the queue, to be claimed again after the delay."""
    await tx.execute(_SQL["release_upload"], (lease.token, how.delay, how.failed, how.error))


async def failures(tx: Tx, lease: Lease) -> int:
    """Temporary failures since the upload last made progress."""
    row = await fetch_one(tx, _SQL["count_failures"], (lease.token,))
    assert row is not None
    return int(row[0])


async def lock_waits(tx: Tx, lease: Lease, message: str) -> int:
    """Attempts that ended with this message since the upload was last opened."""
    row = await fetch_one(tx, _SQL["count_lock_waits"], (lease.token, message))
    assert row is not None
    return int(row[0])


async def fail(tx: Tx, lease: Lease, code: str, text: str) -> None:
    await tx.execute(_SQL["fail_upload"], (lease.token, code, text))


async def begin_staging(tx: Tx, lease: Lease, digest: bytes) -> bool:
    """Whether the rows of an earlier attempt are a prefix of what this one stages; if not, they are removed."""
    row = await fetch_one(tx, _SQL["begin_staging"], (lease.token, digest))
    return bool(row and row[0])


async def note_rows_read(tx: Tx, lease: Lease, rows: int) -> None:
    await tx.execute(_SQL["note_rows_read"], (lease.token, rows))


async def note_staged(tx: Tx, lease: Lease, staged: Mapping[str, int]) -> None:
    """The last seq of each entity that this transaction has staged."""
    await tx.execute(_SQL["note_staged"], (lease.token, Jsonb(staged)))


async def finish_staging(tx: Tx, lease: Lease, staged: Staged) -> None:
    await tx.execute(
        _SQL["finish_staging"],
        (
            lease.token,
            Jsonb(staged.bins.as_dict()),
            list(staged.columns),
            Jsonb(staged.mapping),
            list(staged.affected_dates),
            staged.digest,
            Jsonb(staged.column_report.as_dict()),
            Jsonb(staged.read_as.as_dict()),
            Jsonb(staged.last_rows),
        ),
    )


async def note_columns(tx: Tx, lease: Lease, columns: Sequence[str], report: ColumnReport) -> None:
    """Record the columns of a file that is refused as a whole."""
    await tx.execute(_SQL["note_columns"], (lease.token, list(columns), Jsonb(report.as_dict())))


async def release_staged(tx: Tx, lease: Lease) -> None:
    """End a parse attempt whose worker does not promote; another worker claims the staged upload."""
    await tx.execute(_SQL["release_staged"], (lease.token,))


async def hold(tx: Tx, lease: Lease) -> None:
    """End a parse attempt at a preview; a person decides how it continues."""
    await tx.execute(_SQL["hold_upload"], (lease.token,))


class Turn(StrEnum):
    """Whether an upload may be promoted, in the order of arrival."""

    IN_ORDER = "in_order"
    LATE = "late"  # rows of later files are in production
    WAIT = "wait"  # an earlier file is in progress: ask again
    RELEASED = "released"  # the attempt is closed, and the upload is claimed again when it is its turn


async def begin_promotion(tx: Tx, lease: Lease, *, patient: bool) -> Turn:
    """WAIT only if `patient`."""
    row = await fetch_one(tx, _SQL["begin_promotion"], (lease.token, patient))
    assert row is not None
    return Turn(row[0])


async def restage(tx: Tx, lease: Lease) -> None:
    await tx.execute(_SQL["restage_upload"], (lease.token,))


async def advance(
    tx: Tx, lease: Lease, watermark: Watermark, promoted: dict[str, Any], promoted_rows: int
) -> None:
    """Record the counts and watermark of a batch, in the transaction that wrote its rows."""
    await tx.execute(
        _SQL["advance_promotion"],
        (lease.token, watermark.entity, watermark.seq, Jsonb(promoted), promoted_rows),
    )


@dataclass(frozen=True)
class UploadResult:
    """How a promotion ended."""

    status: Status
    failed_rows: int
    error_code: str | None = None
    error_text: str | None = None


async def finish(tx: Tx, lease: Lease, result: UploadResult, consumers: Sequence[str]) -> None:
    """End an upload and add the event that announces it."""
    await tx.execute(
        _SQL["finish_upload"],
        (
            lease.token,
            result.status,
            result.failed_rows,
            result.error_code,
            result.error_text,
            list(consumers),
        ),
    )


async def retry(
    tx: Tx,
    upload_id: UUID,
    *,
    force_partial: bool,
    actor: str,
    reading: ReadOptions | None = None,
    newest: bool = False,
) -> str | None:
    """Reopen a failed or partial upload: its new status, its old one if that does not allow it, None if it is unknown.

    `reading` replaces the stored read options. With `newest`, its rows replace those of files that arrived after it.
    """
    options = None if reading is None else Jsonb(reading.as_dict())
    row = await fetch_one(tx, _SQL["retry_upload"], (upload_id, force_partial, actor, options, newest))
    return row[0] if row else None


async def count_as_newest(tx: Tx, upload_id: UUID) -> None:
    """Its rows replace those of files that arrived after it."""
    await tx.execute(_SQL["count_as_newest"], (upload_id,))


async def change_reading(tx: Tx, upload_id: UUID, reading: ReadOptions, actor: str) -> None:
    """Change the read options of a pending upload, audited."""
    await tx.execute(_SQL["change_reading"], (upload_id, Jsonb(reading.as_dict()), actor))


async def dismiss(tx: Tx, upload_id: UUID, actor: str) -> str | None:
    """Remove a failed upload from the dead letters. Its status; None if it is unknown."""
    row = await fetch_one(tx, _SQL["dismiss_upload"], (upload_id, actor))
    return row[0] if row else None


async def release_batch(tx: Tx, upload_id: UUID, actor: str) -> str | None:
    """Remove the batch name from a failed upload: `released`, `unnamed`, or the status that does not allow it."""
    row = await fetch_one(tx, _SQL["release_batch"], (upload_id, actor))
    return row[0] if row else None


def _upload(row: dict[str, Any]) -> Upload:
    entity, seq, bins = row.pop("watermark_entity"), row.pop("watermark_seq"), row.pop("bins")
    return Upload(
        **{
            **row,
            "status": Status(row["status"]),
            "watermark": Watermark(entity, seq),
            "bins": Bins(**bins) if bins else Bins(),
            "affected_dates": tuple(row["affected_dates"]),
            "columns": tuple(row["columns"]),
            "reading": ReadOptions.of(row["reading"]),
            "column_report": ColumnReport.of(row["column_report"]),
            "read_as": ReadAs.of(row["read_as"]),
        }
    )
