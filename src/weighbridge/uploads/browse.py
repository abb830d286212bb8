"""Lists of uploads for pages: filtered, newest first, fast with 100,000 uploads; and counts by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres.pool import Tx, fetch_all, fetch_named
from weighbridge.postgres.queries import load
from weighbridge.uploads.queue import Cursor, get_many
from weighbridge.uploads.rejections import Rejection

_SQL = load(__name__)


@dataclass(frozen=True)
class Filter:
    """Which uploads; none of them means all."""

    statuses: tuple[Status, ...] = ()
    held: bool | None = None  # previews that wait for a person
    deferred: bool | None = None  # of the pending: those whose file waits for the store
    set_aside: bool | None = None  # of the failed: discarded previews
    pipeline: str | None = None
    project_id: int | None = None
    words: str | None = None  # anywhere in the file's name or the batch's
    behind: Cursor | None = None  # those after this one
    until: Cursor | None = None  # up to and with this one


@dataclass(frozen=True)
class StateCounts:
    """How many uploads of a workspace there are, by what a person wants to know of them."""

    uploaded: int
    queued: int
    running: int
    held: int
    completed: int
    partial: int
    failed: int
    discarded: int  # previews; nobody's failure

    @property
    def processed(self) -> int:
        """Ended, well or not (S2 §11.0.2: a failed file counts, too)."""
        return self.completed + self.partial + self.failed + self.discarded

    @property
    def active(self) -> bool:
        """Whether a page must go on asking (S2 §11.0.1). A preview waits for a person, not for a worker.

        All counts are of one statement: where nothing is queued or running, what is uploaded is processed or held.
        """
        return self.queued > 0 or self.running > 0


@dataclass(frozen=True)
class SentAgain:
    """The same content, sent once more under a name."""

    filename: str
    times: int
    last_at: datetime


async def page(tx: Tx, workspace_id: UUID, which: Filter, limit: int) -> list[Upload]:
    """A page of uploads."""
    rows = await fetch_all(
        tx,
        _SQL["page_of_uploads"],
        {
            "workspace": workspace_id,
            "statuses": list(which.statuses) or None,
            "held": which.held,
            "deferred": which.deferred,
            "set_aside": which.set_aside,
            "pipeline": which.pipeline,
            "project": which.project_id,
            "words": f"%{_literal(which.words)}%" if which.words else None,
            "before": which.behind and which.behind.created_at,
            "behind": which.behind and which.behind.id,
            "until": which.until and which.until.created_at,
            "last": which.until and which.until.id,
            "limit": limit,
        },
    )
    return await get_many(tx, [row[0] for row in rows])


async def standing(tx: Tx, workspace_id: UUID) -> StateCounts:
    (row,) = await fetch_named(tx, _SQL["standing"], {"workspace": workspace_id})
    return StateCounts(**row)


async def sent_again(tx: Tx, upload_ids: Sequence[UUID]) -> dict[UUID, list[SentAgain]]:
    """Duplicates of these uploads, by upload."""
    found: dict[UUID, list[SentAgain]] = {}
    for upload_id, *rest in await fetch_all(tx, _SQL["sent_again"], (list(upload_ids),)):
        found.setdefault(upload_id, []).append(SentAgain(*rest))
    return found


@dataclass(frozen=True)
class Why:
    """One way in which rows of a file are wrong."""

    code: str
    column: str | None


@dataclass(frozen=True)
class RefusedAt:
    """Where a page of refused rows ended: a row may be refused twice, at parsing and at promotion."""

    row_index: int
    stage: str


async def refused_for(
    tx: Tx, upload_id: UUID, why: Why, behind: RefusedAt | None, limit: int
) -> list[Rejection]:
    """Refused rows with one reason, those behind a place in the file."""
    place = behind or RefusedAt(-1, "")
    values = {"upload": upload_id, **vars(why), **vars(place), "limit": limit}
    return [Rejection(*row) for row in await fetch_all(tx, _SQL["refused_for"], values)]


def _literal(words: str) -> str:
    """For LIKE, without its wildcards."""
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("\0", "")
