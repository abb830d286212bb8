"""Queries of uploads that are on hold for a preview."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.model.upload import Changes
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class PreviewStatus:
    """Status of an upload that is on hold."""

    staged_at: datetime
    counts: dict[str, Changes] | None  # by entity, from the last comparison
    counted_at: datetime | None  # time of that comparison
    outdated: bool  # the workspace has had a promotion since, or has one now


async def status(tx: Tx, upload_id: UUID) -> PreviewStatus | None:
    """None: the upload is not on hold."""
    found = await fetch_named(tx, _SQL["preview_status"], (upload_id,))
    if not found:
        return None
    counts = found[0].pop("counts")
    known = counts and {entity: Changes(**each) for entity, each in counts.items()}
    return PreviewStatus(**found[0], counts=known)


async def note(tx: Tx, upload_id: UUID, counts: dict[str, Changes], at: datetime) -> None:
    """Store the result of a comparison."""
    found = {entity: changes.as_dict() for entity, changes in counts.items()}
    await tx.execute(_SQL["note_preview"], (upload_id, Jsonb(found), at))


async def promote(tx: Tx, upload_id: UUID, actor: str) -> bool:
    """Release the upload for promotion. False: it is not on hold, or no longer."""
    row = await fetch_one(tx, _SQL["promote_preview"], (upload_id, actor))
    return bool(row and row[0])


@dataclass(frozen=True)
class Discard:
    """Why a preview is discarded, and by whom."""

    code: str
    text: str
    actor: str
    age: timedelta = timedelta(0)  # only if it has been on hold for this long


async def discard(tx: Tx, upload_id: UUID, why: Discard) -> bool:
    """Fail the upload; the caller deletes its staged rows. False: it is not on hold, or no longer."""
    row = await fetch_one(tx, _SQL["discard_preview"], (upload_id, why.code, why.text, why.actor, why.age))
    return bool(row and row[0])


async def restage(tx: Tx, upload_id: UUID) -> None:
    """Have the file parsed again; it is on hold again afterwards."""
    await tx.execute(_SQL["restage_preview"], (upload_id,))


async def expired(tx: Tx, age: timedelta) -> list[UUID]:
    """Uploads that have been on hold for longer than this."""
    return [row[0] for row in await fetch_all(tx, _SQL["expired_previews"], (age,))]
