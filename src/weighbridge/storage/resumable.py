"""Queries of resumable uploads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.postgres.pool import Tx, fetch_all, fetch_named, fetch_one
from weighbridge.postgres.queries import load

_SQL = load(__name__)


@dataclass(frozen=True)
class NewResumable:
    """A file that is about to come in parts."""

    id: UUID
    workspace_id: UUID
    spool_id: UUID
    request: dict[str, Any]
    metadata: str
    length: int


@dataclass(frozen=True)
class Refusal:
    """What intake said to the whole file."""

    status: int
    code: str
    text: str


@dataclass(frozen=True)
class Resumable:
    """How far a file has come, and how it ended: as an upload, refused, or not yet."""

    id: UUID
    workspace_id: UUID
    spool_id: UUID
    request: dict[str, Any]
    metadata: str
    length: int
    received: int
    expires_at: datetime
    expired: bool = False
    upload_id: UUID | None = None
    duplicate: bool = False
    status: str | None = None  # of the upload
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
    """Which row, and whose."""

    id: UUID
    workspace_id: UUID


async def begin(tx: Tx, new: NewResumable, lasts: timedelta) -> datetime:
    """Note a file that is to come; returns when it expires."""
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
    """It is this machine's from now on. False: another one has bytes that count."""
    return await fetch_one(tx, _SQL["adopt_resumable"], {"id": id_, "spool": spool_id}) is not None


async def note_received(tx: Tx, upload: Resumable, received: int, lasts: timedelta) -> datetime | None:
    """So many bytes are on the disk; returns when it expires now. None: it has ended, or is another machine's."""
    named = {"id": upload.id, "spool": upload.spool_id, "received": received, "lasts": lasts}
    row = await fetch_one(tx, _SQL["note_received"], named)
    return row[0] if row else None


async def note_recorded(tx: Tx, id_: UUID, upload_id: UUID, lasts: timedelta, *, duplicate: bool) -> bool:
    """It is this upload now. False: it has ended before, or is gone."""
    named = {"id": id_, "upload": upload_id, "lasts": lasts, "duplicate": duplicate}
    return await fetch_one(tx, _SQL["note_recorded"], named) is not None


async def note_refused(tx: Tx, id_: UUID, refusal: Refusal, lasts: timedelta) -> None:
    await tx.execute(_SQL["note_refused"], {"id": id_, "lasts": lasts, **vars(refusal)})


async def forget_expired(tx: Tx, id_: UUID) -> bool:
    """False: it has not expired, or not any more."""
    return await fetch_one(tx, _SQL["forget_expired"], (id_,)) is not None


async def forget(tx: Tx, id_: UUID) -> None:
    await tx.execute(_SQL["forget_resumable"], (id_,))


async def whole(tx: Tx, spool_id: UUID) -> list[ResumableKey]:
    """Those of this machine that have all their bytes and wait for intake."""
    return [ResumableKey(*row) for row in await fetch_all(tx, _SQL["whole_resumables"], (spool_id,))]


async def expired(tx: Tx) -> list[ResumableKey]:
    return [ResumableKey(*row) for row in await fetch_all(tx, _SQL["expired_resumables"])]


async def unended(tx: Tx, spool_id: UUID) -> list[tuple[ResumableKey, int]]:
    """Those of this machine that should have bytes there, and how many."""
    rows = await fetch_all(tx, _SQL["open_resumables"], (spool_id,))
    return [(ResumableKey(id_, workspace), received) for id_, workspace, received in rows]
