"""Creates projects, and retries all failed files of a project."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

from weighbridge.model.errors import RequestRefused
from weighbridge.model.project import Job, Project
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.transactions import Database
from weighbridge.projects import queue as projects_queue
from weighbridge.projects.edits import name_of
from weighbridge.storage import quota
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.check_request import HIGHEST_PROJECT
from weighbridge.uploads.operator_retry import reopen_one

_PAGE = 500  # jobs read per query


async def make(db: Database, workspace_id: UUID, number: int | None, name: str) -> tuple[Project, bool]:
    """Create a project, or rename the one with this number; True if it is new."""
    name = name_of(name)
    known = number is not None and await find_project(db, workspace_id, number) is not None
    try:
        async with db.tx(roles.INTAKE, workspace_id) as tx:
            number = await projects_queue.make(tx, number, name)
    except RowFault as fault:
        message = f"project_id: the highest number, {HIGHEST_PROJECT}, is in use; choose a free number."
        raise RequestRefused(409, "no_number_left", message) from fault
    project = await find_project(db, workspace_id, number)
    assert project is not None
    return project, not known


async def find_project(db: Database, workspace_id: UUID, number: int) -> Project | None:
    async with db.tx(roles.TENANT, workspace_id) as tx:
        return await projects_queue.get_project(tx, workspace_id, number)


@dataclass(frozen=True)
class Skipped:
    """A failed job that was not reopened, and why."""

    job_id: UUID
    error: str
    message: str


@dataclass(frozen=True)
class Retried:
    retried: tuple[UUID, ...]
    skipped: tuple[Skipped, ...]


async def retry_failed(
    db: Database, project: Project, *, force_partial: bool, actor: str, limited: bool = False
) -> Retried:
    """Reopen every failed job of a project, audited; of several with the same content, the last one.

    `limited`: QuotaExceeded(429), and none is reopened, if that exceeds a user's monthly limit for reading files again.
    """
    retried: list[Upload] = []
    skipped: list[Skipped] = []
    failed = [job async for job in _failed(db, project)]
    async with db.tx(workspace_id=project.workspace_id) as tx:
        for job in reversed(failed):
            upload = await uploads_queue.get(tx, job.csv_upload_id)
            assert upload is not None
            try:
                await reopen_one(tx, upload, force_partial=force_partial, actor=actor)
                retried.append(upload)
            except RequestRefused as refusal:
                skipped.append(Skipped(job.id, refusal.code, refusal.message))
        read_again = [upload.created_by for upload in retried if upload.storage_status == "stored"]
        await quota.read_again(tx, read_again, limited=limited)
    return Retried(tuple(upload.id for upload in reversed(retried)), tuple(reversed(skipped)))


async def _failed(db: Database, project: Project) -> AsyncIterator[Job]:
    after: projects_queue.JobCursor | None = None
    while True:
        async with db.tx(roles.TENANT, project.workspace_id) as tx:
            page = await projects_queue.jobs(tx, project, status="failed", after=after, limit=_PAGE)
        for job in page:
            yield job
        if len(page) < _PAGE:
            return
        after = projects_queue.JobCursor(page[-1].created_at, page[-1].id)
