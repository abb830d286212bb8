"""Queries that link a fixed rejects file to the uploads its rows come from, and count the open rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from weighbridge.model.states import TERMINAL
from weighbridge.model.upload import Scope, Upload
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class Rejects:
    """How many rejected rows of an upload are open, and how many a later file has fixed."""

    open: int = 0
    fixed: int = 0


NO_REJECTS = Rejects()
REMOVED = "The rejected rows were deleted: the retention period (setting rejection_days) is over."


def removed(upload: Upload, rejects: Rejects) -> bool:
    """The upload has ended with rejected rows, and none of them is stored any more."""
    return upload.status in TERMINAL and upload.failed_rows > 0 and rejects == NO_REJECTS


@dataclass(frozen=True)
class Link:
    """Another upload, and how many rejected rows one of the two has fixed in the other."""

    upload_id: UUID
    filename: str | None
    rows: int


@dataclass(frozen=True)
class Links:
    """The uploads whose rejected rows an upload fixes, and the uploads that fixed its own."""

    fixes: tuple[Link, ...] = ()
    fixed_by: tuple[Link, ...] = ()


async def add(tx: Tx, scope: Scope, pipeline: str, batches: Sequence[Any]) -> None:
    """Append links, as Arrow batches. Links to uploads of another workspace or pipeline are skipped."""
    for batch in batches:
        values = {
            "upload": scope.upload_id,
            "workspace": scope.workspace_id,
            "pipeline": pipeline,
            "rows": batch.column("row_index").to_pylist(),
            "uploads": batch.column("original_upload").to_pylist(),
            "original_rows": batch.column("original_row").to_pylist(),
        }
        await tx.execute(_SQL["add_fixes"], values)


async def rejects(tx: Tx, upload_ids: Sequence[UUID]) -> dict[UUID, Rejects]:
    """Open and fixed rejects by upload; an upload without rejects has no entry."""
    rows = await fetch_all(tx, _SQL["count_rejects"], (list(upload_ids),))
    return {row[0]: Rejects(*row[1:]) for row in rows}


async def links(tx: Tx, upload_id: UUID) -> Links:
    values = {"upload": upload_id}
    fixes = await fetch_all(tx, _SQL["fixes_rows_of"], values)
    fixed_by = await fetch_all(tx, _SQL["fixed_by"], values)
    return Links(tuple(Link(*row) for row in fixes), tuple(Link(*row) for row in fixed_by))
