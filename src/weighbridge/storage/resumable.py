"""Queries of resumable uploads, and the error of one that has ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.model.errors import RequestRefused
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class NewResumable:
    """A file that will arrive in parts."""

    id: UUID
    workspace_id: UUID
    spool_id: UUID
    request: dict[str, Any]
    metadata: str
    length: int


@dataclass(frozen=True)
class Refusal:
    """Why intake refused the complete file."""

    status: int
    code: str
    text: str


@dataclass(frozen=True)
class Resumable(NewResumable):
    """Progress of a file and its result: an upload, a refusal, or none yet."""

    received: int
    expires_at: datetime
    expired: bool = False
    upload_id: UUID | None = None
    duplicate: bool = False
    status: str | None = None  # status of the upload
    storage_status: str | None = None
    refusal: Refusal | None = None

    @property
    def whole(self) -> bool:
        return self.received == self.length

    @property
    def ended(self) -> bool:
        return self.upload_id is not None or self.refusal is not None


@dataclass(frozen=True)
class ResumableKey:
    """Identifies a row and its workspace."""

    id: UUID
    workspace_id: UUID


async def begin(tx: Tx, new: NewResumable, lasts: timedelta) -> datetime:
    """Record a file that will arrive in parts; returns when it expires."""
    row = await fetch_one(
        tx, _SQL["begin_resumable"], {**vars(new), "request": Jsonb(new.request), "lasts": lasts}
    )
    assert row is not None
    expires_at: datetime = row[0]
    return expires_at


async def get(tx: Tx, id_: UUID) -> Resumable | None:
    rows = await fetch_named(tx, _SQL["get_resumable"], (id_,))
    if not rows:
        return None
    status, code, text = (rows[0].pop(f"refusal_{name}") for name in ("status", "code", "text"))
    return Resumable(**rows[0], refusal=Refusal(status, code, text) if code else None)


async def adopt(tx: Tx, id_: UUID, spool_id: UUID) -> bool:
    """Assign it to this machine. False: another machine has recorded bytes of it."""
    return await fetch_one(tx, _SQL["adopt_resumable"], {"id": id_, "spool": spool_id}) is not None


async def note_received(tx: Tx, upload: Resumable, received: int, lasts: timedelta) -> datetime | None:
    """Record how many bytes are on disk; returns the new expiry. None: it has ended, or belongs to another machine."""
    named = {"id": upload.id, "spool": upload.spool_id, "received": received, "lasts": lasts}
    row = await fetch_one(tx, _SQL["note_received"], named)
    return row[0] if row else None


async def note_recorded(tx: Tx, id_: UUID, upload_id: UUID, lasts: timedelta, *, duplicate: bool) -> bool:
    """Record the upload that it became. False: it has already ended, or no longer exists."""
    named = {"id": id_, "upload": upload_id, "lasts": lasts, "duplicate": duplicate}
    return await fetch_one(tx, _SQL["note_recorded"], named) is not None


async def end_as_upload(tx: Tx, id_: UUID, upload_id: UUID, lasts: timedelta) -> None:
    """In the transaction that records the upload that it became. Raises RequestRefused(410) if it has ended already."""
    if not await note_recorded(tx, id_, upload_id, lasts, duplicate=False):
        raise file_ended(id_)  # rolls back the upload: another request has recorded one


async def note_refused(tx: Tx, id_: UUID, refusal: Refusal, lasts: timedelta) -> None:
    await tx.execute(_SQL["note_refused"], {"id": id_, "lasts": lasts, **vars(refusal)})


async def forget_expired(tx: Tx, id_: UUID) -> bool:
    """False: it has not expired, or no longer."""
    return await fetch_one(tx, _SQL["forget_expired"], (id_,)) is not None


async def forget(tx: Tx, id_: UUID) -> None:
    await tx.execute(_SQL["forget_resumable"], (id_,))


async def whole(tx: Tx, spool_id: UUID) -> list[ResumableKey]:
    """Files of this machine that are complete and wait for intake."""
    return [ResumableKey(*row) for row in await fetch_all(tx, _SQL["whole_resumables"], (spool_id,))]


async def expired(tx: Tx) -> list[ResumableKey]:
    return [ResumableKey(*row) for row in await fetch_all(tx, _SQL["expired_resumables"])]


async def unended(tx: Tx, spool_id: UUID) -> list[tuple[ResumableKey, int]]:
    """Files of this machine that should have bytes there, and how many."""
    rows = await fetch_all(tx, _SQL["open_resumables"], (spool_id,))
    return [(ResumableKey(id_, workspace), received) for id_, workspace, received in rows]


def file_ended(id_: UUID) -> RequestRefused:
    return RequestRefused(
        410,
        "file_ended",
        f"The file {id_} has ended or was removed. For details: GET /api/files/{id_}.",
    )
