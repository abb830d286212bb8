"""The state of the uploads of a workspace, for live updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class UploadProgress:
    """Progress of an upload."""

    upload_id: UUID
    workspace_id: UUID
    status: str
    pipeline: str
    platform: str | None
    filename: str | None
    rows_read: int
    total_rows: int
    promoted_rows: int
    failed_rows: int
    error_code: str | None
    error_text: str | None
    preview: bool
    on_hold: bool  # waits for a person to promote or discard it


async def under_way(tx: Tx, workspace_id: UUID, limit: int) -> list[UUID]:
    """Uploads of a workspace that have not ended, newest first."""
    rows = await fetch_all(tx, _SQL["uploads_under_way"], {"workspace": workspace_id, "limit": limit})
    return [row[0] for row in rows]


async def progress_of(tx: Tx, uploads: Sequence[UUID]) -> list[UploadProgress]:
    return [
        UploadProgress(*row) for row in await fetch_all(tx, _SQL["progress_of"], {"uploads": list(uploads)})
    ]
