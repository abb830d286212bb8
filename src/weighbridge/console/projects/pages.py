"""`/projects`, `/projects/{id}`: a project's files with the status of their jobs, groups, keywords and tokens."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any, assert_never
from uuid import UUID

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse, Response

from weighbridge.api import cursor
from weighbridge.api.access import Key, TheApp
from weighbridge.api.projects.manage import ProjectId, find_project
from weighbridge.console import filters, layout
from weighbridge.console.listing import PageRequest, PageRequested, href, paged
from weighbridge.model.counts import counted
from weighbridge.model.errors import NoProject, ProcessingLocked
from weighbridge.pipelines.keywords.tokens import normalised
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Tx
from weighbridge.projects import create, groups, lookup, overview
from weighbridge.projects.groups import ProjectKey
from weighbridge.projects.overview import ProjectDetails

router = layout.router()

FILES = 200  # of a page
COPIES = 200  # that are shown


class Tab(StrEnum):
    FILES = "files"
    GROUPS = "groups"
    KEYWORDS = "keywords"
    TOKENS = "tokens"


class FileState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


_LABELS: dict[str, Any] = {
    "jobs": filters.JOBS,
    "states": filters.PROJECTS,
    "locked": ProcessingLocked().message,
}
Name = Annotated[str, Form(max_length=2000)]
Searched = Annotated[str, Query(max_length=200, pattern=layout.NO_NUL)]


@router.get("/projects")
@layout.page("read")
async def listed(request: Request, key: Key, app: TheApp, requested: PageRequested) -> HTMLResponse:
    behind = cursor.read("after", requested.after, int, int) or 0
    async with app.db.tx(workspace_id=key.workspace_id) as tx:  # tenants cannot read leases
        found = await overview.listed(tx, key.workspace_id, behind, requested.size + 1)
    page = paged(requested, found, lambda project: (project.project_id,), "/projects")
    return await layout.show(
        request, "projects.html", page=page, active=any(each.active for each in page.rows), **_LABELS
    )


@router.post("/projects")
@layout.page("operate")
async def make(request: Request, key: Key, app: TheApp, name: Name = "") -> Response:
    project, _ = await create.make(app.db, key.workspace_id, None, name)
    return await layout.back(request, f"/projects/{project.id}", "The project is created. Add files next.")


@router.get("/projects/{project_id}")
@layout.page("read")
async def shown(
    request: Request,
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    requested: PageRequested,
    tab: Tab = Tab.FILES,
    q: Searched = "",
    group_id: Annotated[str, Query(max_length=36)] = "",
    state: FileState | None = None,
    from_file: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> HTMLResponse:
    project_key = ProjectKey(key.workspace_id, project_id)
    async with app.db.tx(workspace_id=key.workspace_id) as tx:  # tenants cannot read leases
        project = await overview.details(tx, project_key)
    if project is None:
        raise NoProject
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        match tab:
            case Tab.FILES:
                content = await _files(tx, project_key, project, state, from_file)
            case Tab.GROUPS:
                content = await _groups(tx, project_key, q, requested)
            case Tab.KEYWORDS:
                content = await _keywords(tx, project_key, q, _group(group_id), requested)
            case Tab.TOKENS:
                content = {"merges": await groups.merges(tx, project_key)}
            case _:
                assert_never(tab)
    return await layout.show(
        request,
        f"project_{tab}.html",
        project=project,
        why=_LABELS["locked"] if project.locked else "",
        tab=tab.value,
        q=q,
        **_LABELS,
        **content,
    )


@router.post("/projects/{project_id}/name")
@layout.page("operate")
async def rename(request: Request, project_id: ProjectId, key: Key, app: TheApp, name: Name = "") -> Response:
    await find_project(app, key, project_id)
    await create.make(app.db, key.workspace_id, project_id, name)
    return await layout.back(request, f"/projects/{project_id}", "The project is renamed.")


@router.post("/projects/{project_id}/retry-failed")
@layout.page("operate")
async def retry_failed(
    request: Request,
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    force_partial: Annotated[bool, Form()] = False,
) -> Response:
    project = await find_project(app, key, project_id)
    done = await create.retry_failed(
        app.db, project, force_partial=force_partial, actor=f"key {key.id}", limited=True
    )
    sentence = f"{counted(len(done.retried), 'file')} queued again."
    if done.skipped:
        sentence += f" {counted(len(done.skipped), 'file')} stayed as they were: {done.skipped[0].message}"
    return await layout.back(request, f"/projects/{project_id}", sentence)


async def _files(
    tx: Tx, project_key: ProjectKey, project: ProjectDetails, state: FileState | None, first: int
) -> dict[str, Any]:
    """In order of arrival. Duplicates are listed at the end and are not counted."""
    found = await overview.files(tx, project_key, state and state.value, first, FILES + 1)
    last = len(found) <= FILES
    copies = await overview.copies(tx, project_key, COPIES + 1) if last and state is None else []
    path = f"/projects/{project_key.project_id}"
    return {
        "files": found[:FILES],
        "only": state and state.value,
        "counts": {each.value: getattr(project, each.value) for each in FileState},
        "copies": copies[:COPIES],
        "more_copies": len(copies) > COPIES,
        "earlier": None if not first else href(path, state=state, from_file=max(first - FILES, 0) or None),
        "later": None if last else href(path, state=state, from_file=first + FILES),
    }


async def _groups(tx: Tx, project_key: ProjectKey, q: str, requested: PageRequest) -> dict[str, Any]:
    behind = cursor.read("after", requested.after, groups.GroupCursor, str, UUID)
    if q.strip():
        ids = await lookup.groups_with(tx, project_key, await text_of(q), behind, requested.size + 1)
        found = [group for id_ in ids if (group := await groups.find(tx, project_key, id_)) is not None]
    else:
        found = await groups.groups(tx, project_key, behind, requested.size + 1)
    path = f"/projects/{project_key.project_id}"
    return {"page": paged(requested, found, lambda g: (g.parent or "", g.id), path, tab="groups", q=q)}


async def _keywords(
    tx: Tx, project_key: ProjectKey, q: str, group_id: UUID | None, requested: PageRequest
) -> dict[str, Any]:
    behind = cursor.read("after", requested.after, str, str) or ""
    group = None if group_id is None else await groups.find(tx, project_key, group_id)
    if group_id is not None and group is None:  # edits may have emptied the group since the page was opened
        found = []
    elif q.strip():
        found = await lookup.keywords_with(
            tx, project_key, await text_of(q), group_id, behind, requested.size + 1
        )
    else:
        found = await groups.keywords(tx, project_key, group_id, behind, requested.size + 1)
    path = f"/projects/{project_key.project_id}"
    page = paged(
        requested,
        found,
        lambda k: (k.keyword_normalized,),
        path,
        tab="keywords",
        q=q,
        group_id=group_id,
    )
    names = await lookup.group_names(tx, project_key, {k.group_id for k in page.rows if k.group_id})
    return {"page": page, "group": group, "group_id": group_id, "names": names}


async def text_of(text: str) -> lookup.Text:
    """The search text, as typed and normalised like keywords."""
    [spelled] = await asyncio.to_thread(normalised, [text])
    return lookup.Text(" ".join(text.split()), spelled)


def _group(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return UUID(int=0)  # matches no group
