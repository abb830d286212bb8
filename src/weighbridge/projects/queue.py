"""Queries of projects: their jobs, their lease, their status."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from weighbridge.engine.recover import Recovered
from weighbridge.model.project import Duplicate, File, Job, Project, ProjectStatus
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease, Tx, fetch_all, fetch_named, fetch_one
from weighbridge.uploads.queue import Claimed, ClaimRequest, get

_SQL = load(__name__)


@dataclass(frozen=True)
class ClaimedProject:
    """A leased project, if there was one to run, and the abandoned work that was recovered first."""

    lease: Lease | None = None
    project: Project | None = None
    abandoned: tuple[Recovered, ...] = ()


async def make(tx: Tx, project_id: int | None, name: str | None) -> int:
    """Create a project, or rename it; without a number it gets the next one of its workspace."""
    row = await fetch_one(tx, _SQL["make_project"], (project_id, name))
    assert row is not None
    return int(row[0])


async def get_project(tx: Tx, workspace_id: UUID, project_id: int) -> Project | None:
    params = {"workspace": workspace_id, "id": project_id, "after": 0, "limit": 1}
    found = await fetch_named(tx, _SQL["get_projects"], params)
    return Project(**found[0]) if found else None


async def get_projects(tx: Tx, workspace_id: UUID, after: int, limit: int) -> list[Project]:
    """A workspace's projects by number, one page at a time."""
    params = {"workspace": workspace_id, "id": None, "after": after, "limit": limit}
    return [Project(**row) for row in await fetch_named(tx, _SQL["get_projects"], params)]


async def status(tx: Tx, project_id: int) -> ProjectStatus | None:
    """The status of a project's files in the transaction's workspace, at one moment."""
    found = await fetch_named(tx, _SQL["project_status"], (project_id,))
    if not found:
        return None
    files = tuple(File(**{**each, "job_id": UUID(each["job_id"])}) for each in found[0]["files"])
    duplicates = tuple(
        Duplicate(**{**each, "duplicate_of": UUID(each["duplicate_of"])}) for each in found[0]["duplicates"]
    )
    return ProjectStatus(**{**found[0], "files": files, "duplicates": duplicates})


@dataclass(frozen=True)
class JobCursor:
    """Where a page of jobs ended."""

    created_at: datetime
    id: UUID


async def jobs(
    tx: Tx, project: Project, *, status: str | None = None, after: JobCursor | None = None, limit: int
) -> list[Job]:
    """The jobs of a project in order of arrival, one page at a time."""
    params = {
        "workspace": project.workspace_id,
        "project": project.id,
        "status": status,
        "created_at": after and after.created_at,
        "id": after and after.id,
        "limit": limit,
    }
    return [Job(**row) for row in await fetch_named(tx, _SQL["jobs"], params)]


async def claim(tx: Tx, request: ClaimRequest, only: UUID | None = None) -> ClaimedProject:
    """Lease the next project, or `only` this one. The same statement recovers abandoned ones first."""
    params = {
        **_params(request),
        "only": only,
        "max_crashes": request.max_crashes,
        "skip": list(request.skip),
    }
    row = await fetch_one(tx, _SQL["claim_project"], params)
    if row is None:
        return ClaimedProject()
    abandoned = tuple(Recovered.of(each) for each in row[2] or ())
    if row[0] is None:
        return ClaimedProject(abandoned=abandoned)
    (found,) = await fetch_named(tx, _SQL["project_by_key"], (row[0],))
    project = Project(**found)
    return ClaimedProject(Lease(row[1], project.key, project.workspace_id), project, abandoned)


async def claim_job(tx: Tx, lease: Lease, request: ClaimRequest) -> Claimed:
    """Claim the next job of the leased project, in order of arrival."""
    row = await fetch_one(tx, _SQL["claim_job"], {**_params(request), "token": lease.token})
    if row is None:
        return Claimed()
    upload = await get(tx, row[0])
    assert upload is not None
    return Claimed(Lease(row[1], upload.id, upload.workspace_id), upload)


async def may_group(tx: Tx, lease: Lease) -> bool:
    """Whether all jobs have ended, and some of them since the last grouping."""
    row = await fetch_one(tx, _SQL["may_group"], (lease.token,))
    return bool(row and row[0])


async def note_grouped(tx: Tx, lease: Lease) -> None:
    await tx.execute(_SQL["note_grouped"], (lease.token,))


async def release(tx: Tx, lease: Lease, request: ClaimRequest, *, anyway: bool) -> bool:
    """End a run. False: there is more work for it. `anyway`: end it regardless, as the worker is stopping."""
    params = {**_params(request), "token": lease.token, "anyway": anyway}
    row = await fetch_one(tx, _SQL["release_project"], params)
    return bool(row and row[0])


async def fail(tx: Tx, lease: Lease, delay: timedelta, error: str) -> None:
    """End a run whose grouping failed; it is retried after the delay."""
    await tx.execute(_SQL["fail_project"], (lease.token, delay, error))


async def kick(tx: Tx, project_id: int) -> bool:
    """Notify workers that the project can run. False: there is no project with this number."""
    row = await fetch_one(tx, _SQL["kick_project"], (project_id,))
    return bool(row and row[0])


async def lock(tx: Tx, project_id: int, actor: str, action: str) -> None:
    """Begin an edit of the project's groups, audited.

    Raises ProcessingLocked while its files are processed, NoProject if it does not exist.
    """
    await tx.execute(_SQL["lock_project"], (project_id, actor, action))


@dataclass(frozen=True)
class Runner:
    """The worker that runs a project, and when its lease expires without a heartbeat."""

    worker: str
    lease_until: datetime


async def runner(tx: Tx, project: Project) -> Runner | None:
    row = await fetch_one(tx, _SQL["runner"], (project.workspace_id, project.id))
    return Runner(*row) if row else None


async def grouped_since(tx: Tx, upload_ids: list[UUID], pipelines: Collection[str]) -> set[UUID]:
    """Ended uploads that have been grouped since, that need no grouping, or whose grouping cannot happen soon."""
    params = {"uploads": upload_ids, "pipelines": list(pipelines)}
    return {row[0] for row in await fetch_all(tx, _SQL["grouped_since"], params)}


def _params(request: ClaimRequest) -> dict[str, Any]:
    return {
        "worker": request.worker,
        "pipelines": list(request.pipelines),
        "lease": request.lease,
        "limit": request.per_workspace,
    }
