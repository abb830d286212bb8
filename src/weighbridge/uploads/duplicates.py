"""Has this file, or a batch with this name, been received before?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_one
from weighbridge.uploads.queue import Known

_SQL = load(__name__)


@dataclass(frozen=True)
class Content:
    """A file's bytes, scope, read options and batch name. Two uploads that agree in all of these are duplicates."""

    workspace_id: UUID
    pipeline: str
    client_id: UUID | None
    platform: str | None
    content_sha256: bytes
    source_batch_id: str | None = None
    forced: bool = False  # load the same content again on purpose
    project_id: int | None = None
    reading: ReadOptions = DETECT_ALL


async def known_upload(tx: Tx, content: Content) -> tuple[date, Known | None]:
    """Today's date, and the existing upload of this file, which then need not be stored again."""
    row = await fetch_one(
        tx, _SQL["known_upload"], {**vars(content), "reading": Jsonb(content.reading.as_dict())}
    )
    assert row is not None
    return row[0], Known(row[1], row[2]) if row[1] else None


async def note_duplicate(tx: Tx, upload_id: UUID, filename: str | None) -> None:
    """Record that a known file was received again. The page shows it; it is not counted."""
    await tx.execute(_SQL["note_duplicate"], (upload_id, filename))
