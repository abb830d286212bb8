"""Queries of the project pages: counts, and files page by page.

Only the service's own role may read leases, so it runs the first two queries, which name the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.model.project import File, is_locked, state_of
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_named
from weighbridge.projects.groups import ProjectKey

_SQL = load(__name__)


@dataclass(frozen=True)
class Overview:
    """One project in a list."""

    project_id: int
    name: str
    leased: bool
    ungrouped: bool
    grouped_at: datetime | None
    groupings: int
    queued: int
    running: int
    succeeded: int
    failed: int
    rows_processed: int

    @property
    def uploaded(self) -> int:
        return self.queued + self.running + self.processed

    @property
    def processed(self) -> int:
        return self.succeeded + self.failed

    @property
    def locked(self) -> bool:
        return is_locked(leased=self.leased, under_way=self.queued + self.running)

    @property
    def status(self) -> str:
        return state_of(
            leased=self.leased,
            ungrouped=self.ungrouped,
            queued=self.queued,
            running=self.running,
            files=self.uploaded,
        )

    @property
    def active(self) -> bool:
        """Whether a page must keep polling."""
        return self.locked or self.status == "grouping" or self.processed != self.uploaded


@dataclass(frozen=True)
class ProjectDetails(Overview):
    """One project on its own page."""

    rows_total: int
    inserted: int
    duplicate: int
    invalid: int
    current_file: str | None


@dataclass(frozen=True)
class Copy:
    """A file that was already known: shown, never counted."""

    filename: str | None
    duplicate_of: UUID
    original: str | None
    times: int


async def listed(tx: Tx, workspace_id: UUID, after: int, limit: int) -> list[Overview]:
    """A workspace's projects by number, one page at a time."""
    params = {"workspace": workspace_id, "after": after, "limit": limit}
    return [Overview(**row) for row in await fetch_named(tx, _SQL["projects_listed"], params)]


async def details(tx: Tx, key: ProjectKey) -> ProjectDetails | None:
    found = await fetch_named(tx, _SQL["project_details"], key.params())
    return ProjectDetails(**found[0]) if found else None


async def files(tx: Tx, key: ProjectKey, state: str | None, first: int, limit: int) -> list[File]:
    """Files in order of arrival, in one state or all, after skipping the first ones."""
    params = key.params(state=state, first=first, limit=limit)
    return [File(**row) for row in await fetch_named(tx, _SQL["files_of_project"], params)]


async def copies(tx: Tx, key: ProjectKey, limit: int) -> list[Copy]:
    return [Copy(**row) for row in await fetch_named(tx, _SQL["copies_of_project"], key.params(limit=limit))]
