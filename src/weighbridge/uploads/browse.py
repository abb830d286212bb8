"""Lists of uploads for pages: filtered, newest first, fast with 100,000 uploads; and counts by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named
from weighbridge.uploads.queue import UploadCursor, get_many
from weighbridge.uploads.rejections import Rejection

_SQL = load(__name__)


@dataclass(frozen=True)
class UploadFilter:
    """Conditions for a list of uploads. A condition that is None selects all."""

    statuses: tuple[Status, ...] = ()
    on_hold: bool | None = None  # previews that wait for a decision
    deferred: bool | None = None  # among pending uploads: the file is not in the store yet
    set_aside: bool | None = None  # among failed uploads: discarded previews
    pipeline: str | None = None
    project_id: int | None = None
    words: str | None = None  # part of the file name or batch name
    behind: UploadCursor | None = None  # only uploads after this one
    until: UploadCursor | None = None  # only uploads up to and including this one


@dataclass(frozen=True)
class StateCounts:
    """Number of uploads of a workspace, by the states that a page shows."""

    uploaded: int
    queued: int
    running: int
    on_hold: int
    completed: int
    partial: int
    failed: int
    discarded: int  # previews; not counted as failures

    @property
    def processed(self) -> int:
        """Uploads that have ended, including failed ones."""
        return self.completed + self.partial + self.failed + self.discarded

    @property
    def active(self) -> bool:
        """Whether a page must keep polling. An upload on hold waits for a person, not for a worker.

        All counts come from one statement: if nothing is queued or running, every upload is processed or on hold.
        """
        return self.queued > 0 or self.running > 0


@dataclass(frozen=True)
class SentAgain:
    """The same content, received once more, with the name of its file."""

    filename: str
    times: int
    last_at: datetime


async def page_of_uploads(tx: Tx, workspace_id: UUID, which: UploadFilter, limit: int) -> list[Upload]:
    """A page of uploads."""
    rows = await fetch_all(
        tx,
        _SQL["page_of_uploads"],
        {
            "workspace": workspace_id,
            "statuses": list(which.statuses) or None,
            "on_hold": which.on_hold,
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


async def state_counts(tx: Tx, workspace_id: UUID) -> StateCounts:
    (row,) = await fetch_named(tx, _SQL["state_counts"], {"workspace": workspace_id})
    return StateCounts(**row)


async def sent_again(tx: Tx, upload_ids: Sequence[UUID]) -> dict[UUID, list[SentAgain]]:
    """Duplicates that were received for these uploads, by upload."""
    found: dict[UUID, list[SentAgain]] = {}
    for upload_id, *rest in await fetch_all(tx, _SQL["sent_again"], (list(upload_ids),)):
        found.setdefault(upload_id, []).append(SentAgain(*rest))
    return found


@dataclass(frozen=True)
class RejectionFilter:
    """One reason why rows of a file are invalid."""

    code: str
    column: str | None


@dataclass(frozen=True)
class RejectionCursor:
    """Where a page of rejected rows ended. A row may be rejected twice: in parsing and in promotion."""

    row_index: int
    stage: str


async def rejected_for(
    tx: Tx, upload_id: UUID, why: RejectionFilter, behind: RejectionCursor | None, limit: int
) -> list[Rejection]:
    """Rejected rows with one reason, after a position in the file."""
    after = behind or RejectionCursor(-1, "")
    values = {"upload": upload_id, **vars(why), **vars(after), "limit": limit}
    return [Rejection(*row) for row in await fetch_all(tx, _SQL["rejected_for"], values)]


def _literal(words: str) -> str:
    """A LIKE pattern that matches the text itself: wildcards are escaped."""
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("\0", "")
