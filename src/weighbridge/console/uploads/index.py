"""`/uploads`: upload files and follow their progress."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import Key, TheApp
from weighbridge.api.uploads.upload_route import form_parts, receive_form
from weighbridge.app import App
from weighbridge.console import csrf, layout
from weighbridge.console.listing import PageRequested, href, listed
from weighbridge.console.uploads import read_options
from weighbridge.delivery import sites
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.postgres import roles
from weighbridge.projects import queue
from weighbridge.uploads import browse
from weighbridge.uploads.check_request import HIGHEST_PROJECT
from weighbridge.uploads.queue import UploadCursor

router = layout.router()
# The filters of the list, and the states that each contains.
KINDS: dict[str, tuple[str, browse.UploadFilter]] = {
    "all": ("All", browse.UploadFilter()),
    "queued": ("Queued", browse.UploadFilter((Status.PENDING,), deferred=False)),
    "processing": (
        "Processing",
        browse.UploadFilter(
            (Status.PENDING, Status.PROCESSING, Status.STAGING_COMPLETE, Status.PROMOTING),
            on_hold=False,
            deferred=True,
        ),
    ),
    "held": ("On hold", browse.UploadFilter((Status.STAGING_COMPLETE,), on_hold=True)),
    "completed": ("Completed", browse.UploadFilter((Status.COMPLETED, Status.PARTIAL))),
    "failed": ("Failed", browse.UploadFilter((Status.FAILED,), set_aside=False)),
    "discarded": ("Discarded", browse.UploadFilter((Status.FAILED,), set_aside=True)),
}
_RARE = {
    "held": "on_hold",
    "discarded": "discarded",
}  # offered only if there are any, by the name of their count


@router.get("/")
@layout.page("read")
async def front(request: Request) -> Response:
    return RedirectResponse("/uploads", 303)


@router.get("/uploads")
@layout.page("read")
async def show(
    request: Request,
    key: Key,
    app: TheApp,
    requested: PageRequested,
    kind: Annotated[str, Query()] = "all",
    pipeline: Annotated[str | None, Query(max_length=200, pattern=layout.NO_NUL)] = None,
    project_id: Annotated[str | None, Query(max_length=100)] = None,
    q: Annotated[str, Query(max_length=200, pattern=layout.NO_NUL)] = "",
) -> HTMLResponse:
    kind = kind if kind in KINDS else "all"
    project = _number(project_id)
    wanted = replace(
        KINDS[kind][1],
        pipeline=pipeline or None,
        project_id=project,
        words=q.strip() or None,
        behind=_cursor("after", requested.after),
        until=_cursor("until", requested.until),
    )
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        counts = await browse.state_counts(tx, key.workspace_id)
        found = await browse.page_of_uploads(tx, key.workspace_id, wanted, requested.size + 1)
        rows = found[: requested.size]
        again = await browse.sent_again(tx, [upload.id for upload in rows])
    cut = len(found) > len(rows)
    more = cursor.write(rows[-1].created_at.isoformat(), rows[-1].id) if cut else requested.until
    query = {"kind": kind if kind != "all" else None, "pipeline": pipeline, "project_id": project, "q": q}
    return await layout.show(
        request,
        "uploads.html",
        counts=counts,
        page=listed(requested, rows, more, "/uploads", cut=cut, **query),
        again=again,
        kinds=[
            (name, label, href("/uploads", **{**query, "kind": name if name != "all" else None}))
            for name, (label, _) in KINDS.items()
            if name == kind or name not in _RARE or getattr(counts, _RARE[name])
        ],
        kind=kind,
        asked={name: value for name, value in query.items() if value},
        without_project=href("/uploads", **{**query, "project_id": None}),
        **await _choices(app, key, pipeline, project),
    )


def _number(text: str | None) -> int | None:
    """The number of a project; None if it cannot be one."""
    number = int(text) if text and text.isascii() and text.isdigit() else None
    return number if number is not None and number <= HIGHEST_PROJECT else None


def _cursor(name: str, text: str | None) -> UploadCursor | None:
    return cursor.read(name, text, UploadCursor, datetime.fromisoformat, UUID)


@router.post("/uploads")
@csrf.with_files
@layout.page("upload")
async def send(request: Request, key: Key, app: TheApp) -> Response:
    """The upload form without JavaScript: all files in one request, and a message about the result."""

    session = getattr(request.state, "session", None)
    if session is None:
        raise RequestRefused(
            403, "no_session", "This form is for browsers; with an API key, send files to POST /api/uploads."
        )
    form = form_parts(request, app)
    first = await anext(form, None)
    if first is not None:  # an empty form is refused below
        csrf.check_csrf(session, await first.text() if first.name == "csrf" else "")
    answer = await receive_form(request, key, app, form)
    result = json.loads(bytes(answer.body))
    files = result.get("uploads", [result])
    if len(files) == 1 and "upload_id" in files[0]:
        sentence = (
            "Duplicate: this is the earlier upload with the same content."
            if files[0].get("duplicate")
            else "The file is uploaded."
        )
        return await layout.back(request, f"/uploads/{files[0]['upload_id']}", sentence)
    return await layout.back(request, "/uploads", _summary(files))


def _summary(files: list[dict[str, Any]]) -> str:
    refused = [each for each in files if "error" in each]
    known = sum(1 for each in files if each.get("duplicate"))
    parts = [f"{len(files) - len(refused)} of {len(files)} files uploaded"]
    parts += [f"{known} of them are duplicates"] if known else []
    words = [f"{each['filename']}: {each['message']}" for each in refused[:5]]
    return " ".join([", ".join(parts) + ".", *words])[:1500]


async def _choices(app: App, key: ApiKey, pipeline: str | None, project: int | None) -> dict[str, Any]:
    """The choices of the upload form."""
    known = app.ctx.pipelines
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        of_sites = await sites.get_sites(tx, key.workspace_id, "", 200)
        of_projects = await queue.get_projects(tx, key.workspace_id, 0, 200)
    return {
        "pipelines": sorted(known),
        "platforms": sorted({profile.name for each in known.values() for profile in each.profiles}),
        "sites": of_sites,
        "projects": of_projects,
        "wanted_pipeline": pipeline or "auto",
        "wanted_project": project,
        "max_mb": app.settings.max_upload_mb,
        "reading": read_options.choices(),
    }
