"""What intake asks before it stores a file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from weighbridge.db.pool import Tx, fetch_one
from weighbridge.db.queries import load
from weighbridge.model.states import Status

_SQL = load("intake")


@dataclass(frozen=True)
class Content:
    """A file's bytes and the scope they were sent for: what makes two uploads the same one."""

    workspace_id: UUID
    pipeline: str
    client_id: UUID | None
    platform: str | None
    content_sha256: bytes


async def known_content(tx: Tx, content: Content) -> tuple[date, tuple[UUID, Status] | None]:
    """Today, and the upload that holds this content already: it need not be stored again."""
    row = await fetch_one(tx, _SQL["known_content"], vars(content))
    assert row is not None
    return row[0], (row[1], Status(row[2])) if row[1] else None
