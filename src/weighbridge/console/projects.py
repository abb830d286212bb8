"""`/projects`, `/projects/{id}`: each file of a project as its job stands, its groups, keywords and tokens (S2)."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any, assert_never
from uuid import UUID

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse, Response

from weighbridge.api import cursor
from weighbridge.api.access import Key, TheApp
from weighbridge.api.projects import ProjectId, find
from weighbridge.console import frame
from weighbridge.console.listing import Ask, Asked, href, paged
from weighbridge.db import grouping, lookup, projects
from weighbridge.db.grouping import Place
from weighbridge.db.pool import Tx
from weighbridge.model.errors import NoProject, ProcessingLocked
from weighbridge.model.project import Standing
from weighbridge.pipelines.keywords.tokens import normalised
from weighbridge.steps import projects as steps

router = frame.router()

FILES = 200  # of a page
# S2 §11.0.1's signs, by the state of a file's job.
SIGNS = {
    "queued": ("queued", "Queued"),
    "running": ("processing", "Processing"),
    "succeeded": ("completed", "Completed"),
    "failed": ("error", "Error"),
}
_STATES = {
    "idle": ("", "No file yet"),
    "queued": ("queued", "Queued"),
    "processing": ("processing", "Processing"),
    "grouping": ("processing", "Grouping"),
    "complete": ("completed", "Complete"),
}


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


Name = Annotated[str, Form(max_length=2000)]
Searched = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.get("/projects")
@frame.page("read")
async def listed(request: Request, key: Key, app: TheApp, asked: Ask) -> HTMLResponse:
    behind = cursor.read("after", asked.after, int, int) or 0
    async with app.db.tx("weighbridge_tenant", key.workspace_id) as tx:
        found = await projects.page(tx, key.workspace_id, behind, asked.size + 1)
        page = paged(asked, found, lambda project: (project.id,), "/projects")
        # As the page of each project has it: what is said of it in two places is never two things.
        standing = [await projects.standing(tx, project.id) for project in page.rows]
    told = [described(each) for each in standing if each is not None]
    return await frame.show(
        request, "projects.html", projects=told, page=page, active=any(each["active"] for each in told)
    )


@router.post("/projects")
@frame.page("operate")
async def make(request: Request, key: Key, app: TheApp, name: Name = "") -> Response:
    project, _ = await steps.make(app.db, key.workspace_id, None, name)
    return await frame.back(request, f"/projects/{project.id}", "It is made. Its files come next.")


@router.get("/projects/{project_id}")
@frame.page("read")
async def shown(
    request: Request,
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    asked: Ask,
    tab: Tab = Tab.FILES,
    q: Searched = "",
    group_id: Annotated[str, Query(max_length=36)] = "",
    state: FileState | None = None,
    from_file: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> HTMLResponse:
    async with app.db.tx("weighbridge_tenant", key.workspace_id) as tx:
        standing = await projects.standing(tx, project_id)
        if standing is None:
            raise NoProject
        place = Place(key.workspace_id, project_id)
        match tab:
            case Tab.FILES:
                told = _files(standing, state, from_file)
            case Tab.GROUPS:
                told = await _groups(tx, place, q, asked)
            case Tab.KEYWORDS:
                told = await _keywords(tx, place, q, _group(group_id), asked)
            case Tab.TOKENS:
                told = {"merges": await grouping.merges(tx, place)}
            case _:
                assert_never(tab)
    return await frame.show(
        request, f"project_{tab}.html", project=described(standing), tab=tab.value, q=q, **told
    )


@router.post("/projects/{project_id}/name")
@frame.page("operate")
async def rename(request: Request, project_id: ProjectId, key: Key, app: TheApp, name: Name = "") -> Response:
    await find(app, key, project_id)
    await steps.make(app.db, key.workspace_id, project_id, name)
    return await frame.back(request, f"/projects/{project_id}", "It has another name.")


@router.post("/projects/{project_id}/retry-failed")
@frame.page("operate")
async def retry_failed(
    request: Request,
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    force_partial: Annotated[bool, Form()] = False,
) -> Response:
    project = await find(app, key, project_id)
    done = await steps.retry_failed(
        app.db, project, force_partial=force_partial, actor=f"key {key.id}", limited=True
    )
    said = f"{_counted(len(done.retried))} opened again."
    if done.skipped:
        said += f" {_counted(len(done.skipped))} stayed as they were: {done.skipped[0].message}"
    return await frame.back(request, f"/projects/{project_id}", said)


def described(standing: Standing) -> dict[str, Any]:
    """A project as pages show it, with whether to look again (S2 §11.0.1) and why nothing may be edited."""
    told = standing.as_dict()
    kind, word = _STATES[standing.status]
    return {
        **told,
        "name": standing.name,
        "kind": kind,
        "word": word,
        "active": standing.locked
        or standing.status == "grouping"
        or told["processedFileCount"] != told["uploadedFileCount"],
        "why": ProcessingLocked().message if standing.locked else "",
        "inserted": sum(file.inserted for file in standing.files),
        "duplicate": sum(file.duplicate for file in standing.files),
        "invalid": sum(file.invalid for file in standing.files),
    }


def _files(standing: Standing, state: FileState | None, first: int) -> dict[str, Any]:
    """In order of arrival. Duplicates stand at the end: they are shown, never counted."""
    wanted = [file for file in standing.files if state is None or file.status == state]
    page = wanted[first : first + FILES]
    last = first + FILES >= len(wanted)
    names = {file.job_id: file.filename for file in standing.files}
    path = f"/projects/{standing.project_id}"
    return {
        "signs": SIGNS,
        "files": page,
        "only": state and state.value,
        "counts": {each.value: standing.count(each.value) for each in FileState},
        "duplicates": [(each, names.get(each.duplicate_of)) for each in standing.duplicates]
        if last and state is None
        else [],
        "earlier": None if not first else href(path, state=state, from_file=max(first - FILES, 0) or None),
        "later": None if last else href(path, state=state, from_file=first + FILES),
    }


async def _groups(tx: Tx, place: Place, q: str, asked: Asked) -> dict[str, Any]:
    behind = cursor.read("after", asked.after, grouping.GroupPlace, str, UUID)
    if q.strip():
        ids = await lookup.groups_with(tx, place, await text_of(q), behind, asked.size + 1)
        found = [group for id_ in ids if (group := await grouping.find(tx, place, id_)) is not None]
    else:
        found = await grouping.groups(tx, place, behind, asked.size + 1)
    path = f"/projects/{place.project_id}"
    return {"page": paged(asked, found, lambda g: (g.parent or "", g.id), path, tab="groups", q=q)}


async def _keywords(tx: Tx, place: Place, q: str, group_id: UUID | None, asked: Asked) -> dict[str, Any]:
    behind = cursor.read("after", asked.after, str, str) or ""
    group = None if group_id is None else await grouping.find(tx, place, group_id)
    if group_id is not None and group is None:  # as edits empty groups, pages that show one outlive it
        found = []
    elif q.strip():
        found = await lookup.keywords_with(tx, place, await text_of(q), group_id, behind, asked.size + 1)
    else:
        found = await grouping.keywords(tx, place, group_id, behind, asked.size + 1)
    path = f"/projects/{place.project_id}"
    page = paged(
        asked,
        found,
        lambda k: (k.keyword_normalized,),
        path,
        tab="keywords",
        q=q,
        group_id=group_id,
    )
    names = await lookup.group_names(tx, place, {k.group_id for k in page.rows if k.group_id})
    return {"page": page, "group": group, "group_id": group_id, "names": names}


async def text_of(said: str) -> lookup.Text:
    """What somebody looks for, also as keywords are spelled."""
    [spelled] = await asyncio.to_thread(normalised, [said])
    return lookup.Text(" ".join(said.split()), spelled)


def _group(said: str) -> UUID | None:
    try:
        return UUID(said) if said else None
    except ValueError:
        return UUID(int=0)  # nobody's


def _counted(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"
