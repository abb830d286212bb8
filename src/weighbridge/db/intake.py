"""What intake asks before it stores a file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from weighbridge.db.pool import Tx, fetch_one
from weighbridge.db.queries import load
from weighbridge.db.uploads import Known

_SQL = load("intake")


@dataclass(frozen=True)
class Content:
    """A file's bytes, the scope they were sent for and the name of the batch: what makes two uploads the same one."""

    workspace_id: UUID
    pipeline: str
    client_id: UUID | None
    platform: str | None
    content_sha256: bytes
    source_batch_id: str | None = None
    forced: bool = False  # the same content again on purpose
    project_id: int | None = None


async def known_upload(tx: Tx, content: Content) -> tuple[date, Known | None]:
    """Today, and the upload that this file is already: it need not be stored again."""
    row = await fetch_one(tx, _SQL["known_upload"], vars(content))
    assert row is not None
    return row[0], Known(row[1], row[2]) if row[1] else None


async def note_duplicate(tx: Tx, upload_id: UUID, filename: str | None) -> None:
    """A file that was here already came again: to be shown, not counted."""
    await tx.execute(_SQL["note_duplicate"], (upload_id, filename))
