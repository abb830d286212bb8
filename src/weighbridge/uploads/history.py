"""Queries about one upload: its rejected rows, the reasons, its warnings and its timeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all
from weighbridge.uploads.rejections import Rejection

_SQL = load(__name__)


@dataclass(frozen=True)
class RejectionReason:
    """One reason why rows of a file are invalid."""

    code: str
    column_name: str | None
    rows: int
    first_line: int
    example: str


@dataclass(frozen=True)
class WarnedAt:
    """Where a page of warnings ended."""

    row_index: int
    code: str


@dataclass(frozen=True)
class Warned:
    """A warning about a loaded row; about the file as a whole if the row is -1."""

    row_index: int
    line: int
    code: str
    message: str

    @property
    def cursor(self) -> WarnedAt:
        return WarnedAt(self.row_index, self.code)


@dataclass(frozen=True)
class Moment:
    """One entry in the timeline of an upload."""

    at: datetime
    what: str
    detail: str


async def rejected_rows(
    tx: Tx, upload_id: UUID, after: Rejection | None, size: int, *, every: bool = False
) -> list[Rejection]:
    """A page of rejected rows after a position, in file order; with `every` also the fixed ones."""
    start = (after.row_index, after.stage) if after else (-1, "")
    values = (upload_id, *start, every, size)
    return [Rejection(*row) for row in await fetch_all(tx, _SQL["page_of_rejected_rows"], values)]


async def warnings(tx: Tx, upload_id: UUID, behind: WarnedAt | None, size: int) -> list[Warned]:
    """A page of warnings after a position, in file order."""
    after = (behind.row_index, behind.code) if behind else (-2, "")
    return [Warned(*row) for row in await fetch_all(tx, _SQL["page_of_warnings"], (upload_id, *after, size))]


async def reasons(tx: Tx, upload_id: UUID, limit: int) -> list[RejectionReason]:
    return [RejectionReason(*row) for row in await fetch_all(tx, _SQL["reasons"], (upload_id, limit))]


async def trace(tx: Tx, upload_id: UUID) -> list[Moment]:
    return [Moment(*row) for row in await fetch_all(tx, _SQL["trace"], {"upload": upload_id})]
