"""Queries of rejected rows and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease, Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class Rejection:
    row_index: int
    line: int
    stage: str
    column_name: str | None
    code: str
    message: str
    raw: list[str | None] | None
    more: list[str] | None = None


async def add_rejection(tx: Tx, lease: Lease, rejection: Rejection) -> None:
    await tx.execute(
        _SQL["add_rejection"], {**vars(rejection), "upload": lease.subject, "workspace": lease.workspace_id}
    )


async def add_warning(tx: Tx, lease: Lease, row_and_line: tuple[int, int], code: str, message: str) -> None:
    """Add a warning about a loaded row, by its row index and line."""
    await tx.execute(_SQL["add_warning"], (lease.subject, lease.workspace_id, *row_and_line, code, message))


async def without_raw(tx: Tx, upload_id: UUID) -> list[int]:
    """Row indexes of rejected rows whose cells are not recorded yet."""
    return [row[0] for row in await fetch_all(tx, _SQL["rejections_without_raw"], (upload_id,))]


async def set_raw(tx: Tx, upload_id: UUID, row_index: int, raw: list[str]) -> None:
    await tx.execute(_SQL["set_raw"], (raw, upload_id, row_index))
