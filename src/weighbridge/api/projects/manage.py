"""`/api/projects`: projects, the status of their files, jobs and retries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.projects.models import (
    JobOut,
    JobsOut,
    JobStatus,
    KickedOut,
    Number,
    ProcessingStatusOut,
    ProjectIn,
    ProjectOut,
    ProjectsOut,
    ProjectStatus,
    RetriedOut,
    WholeProjectOut,
)
from weighbridge.api.uploads.models import RetryIn
from weighbridge.app import App
from weighbridge.model.errors import NoProject
from weighbridge.model.project import Project
from weighbridge.model.project import ProjectStatus as Status
from weighbridge.postgres import roles
from weighbridge.projects import create, queue

router = APIRouter(tags=["projects"])

ProjectId = Annotated[Number, Path(description="The project's number.")]
After = Annotated[str | None, Query(description="The `next` value of the previous page.")]
NOT_THERE = "The project does not exist."
NOT_A_NUMBER = "Not the number of a project."


@router.get(
    "/projects/{project_id}/processing/status",
    responses=documented(_404=NOT_THERE, _422=NOT_A_NUMBER),
    openapi_extra={"security": SECURITY},
)
@router.get(
    "/projects/{project_id}/processing-status",
    operation_id="get_processing_status_by_its_other_name",
    responses=documented(_404=NOT_THERE, _422=NOT_A_NUMBER),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_processing_status(project_id: ProjectId, key: Key, app: TheApp) -> ProcessingStatusOut:
    """The status of a project's files, each and in total, and whether the groups are locked."""
    return ProcessingStatusOut(**(await _status(app, key, project_id)).as_dict())


@router.get(
    "/api/projects",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_projects(
    key: Key, app: TheApp, limit: Annotated[int, Query(ge=1, le=200)] = 50, after: After = None
) -> ProjectsOut:
    """List the workspace's projects, by number."""
    behind = cursor.read("after", after, int, int) or 0
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await queue.get_projects(tx, key.workspace_id, behind, limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.id) if last else None
    return ProjectsOut(projects=[_brief(project) for project in page], next=more)


@router.post(
    "/api/projects",
    status_code=201,
    responses={
        200: {"model": ProjectOut, "description": "The project existed and was renamed."},
        **documented(
            _409="No project number is left.",
            _422="The body is invalid.",
        ),
    },
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def make_project(body: ProjectIn, key: Key, app: TheApp, response: Response) -> ProjectOut:
    """Create or rename a project. Uploading the first file also creates it."""
    project, new = await create.make(app.db, key.workspace_id, body.project_id, body.name)
    response.status_code = 201 if new else 200
    return _brief(project)


@router.get(
    "/api/projects/{project_id}",
    responses=documented(_404=NOT_THERE, _422=NOT_A_NUMBER),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_project(project_id: ProjectId, key: Key, app: TheApp) -> WholeProjectOut:
    """A project with counts of its files."""
    status = await _status(app, key, project_id)
    project = await find_project(app, key, project_id)
    files = status.files
    return WholeProjectOut(
        **_brief(project).model_dump(),
        status=ProjectStatus(status.status),
        locked=status.locked,
        files=len(files),
        duplicate_files=len(status.duplicates),
        queued_jobs=status.count("queued"),
        running_jobs=status.count("running"),
        succeeded_jobs=status.count("succeeded"),
        failed_jobs=status.count("failed"),
        rows_total=sum(file.rows_total for file in files),
        rows_processed=sum(file.rows_processed for file in files),
        inserted=sum(file.inserted for file in files),
        duplicate=sum(file.duplicate for file in files),
        invalid=sum(file.invalid for file in files),
    )


@router.get(
    "/api/projects/{project_id}/jobs",
    responses=documented(_404=NOT_THERE, _422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def list_jobs(
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    status: Annotated[JobStatus | None, Query(description="Only jobs with this status.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: After = None,
) -> JobsOut:
    """List the project's jobs, one per file, in order of receipt."""
    behind = cursor.read("after", after, queue.JobCursor, datetime.fromisoformat, UUID)
    project = await find_project(app, key, project_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await queue.jobs(tx, project, status=status, after=behind, limit=limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.created_at.isoformat(), last.id) if last else None
    return JobsOut(jobs=[JobOut(**vars(job)) for job in page], next=more)


@router.post(
    "/api/projects/{project_id}/jobs/retry-failed",
    responses=documented(
        _404=NOT_THERE,
        _422="Not a number, or the body is invalid.",
        _429="A user's monthly limit for files that are read again is reached; no job was retried.",
    ),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def retry_failed_jobs(
    project_id: ProjectId, key: Key, app: TheApp, body: RetryIn | None = None
) -> RetriedOut:
    """Retry every failed job of the project from the stored files. Each retry is audited."""
    project = await find_project(app, key, project_id)
    forced = body is not None and body.force_partial
    actor = f"key {key.id}"
    done = await create.retry_failed(app.db, project, force_partial=forced, actor=actor, limited=True)
    skipped = [vars(each) for each in done.skipped]
    return RetriedOut.model_validate({"project_id": project.id, "retried": done.retried, "skipped": skipped})


@router.post(
    "/api/projects/{project_id}/kick",
    status_code=202,
    responses=documented(_404=NOT_THERE, _422=NOT_A_NUMBER),
    openapi_extra={"security": SECURITY},
)
@needs("upload")
async def kick_project(project_id: ProjectId, key: Key, app: TheApp) -> KickedOut:
    """Notify workers to run the project. Never required, and harmless at any time."""
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        await queue.kick(tx, project_id)
    status = await _status(app, key, project_id)
    return KickedOut(project_id=project_id, status=ProjectStatus(status.status), locked=status.locked)


async def find_project(app: App, key: ApiKey, project_id: int) -> Project:
    """A project of the key's workspace; one of another workspace is treated as unknown."""
    project = await create.find_project(app.db, key.workspace_id, project_id)
    if project is None:
        raise NoProject
    return project


async def _status(app: App, key: ApiKey, project_id: int) -> Status:
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        status = await queue.status(tx, project_id)
    if status is None:
        raise NoProject
    return status


def _brief(project: Project) -> ProjectOut:
    return ProjectOut(
        project_id=project.id,
        name=project.name,
        created_at=project.created_at,
        grouped_at=project.grouped_at,
        groupings=project.groupings,
    )
