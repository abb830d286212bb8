"""`/uploads/{id}/preview`: the changes of an upload on hold, row by row; then Promote or Discard."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import Response

from weighbridge.api.access import Key, TheApp
from weighbridge.api.uploads.manage import find_upload
from weighbridge.console import layout
from weighbridge.model.errors import RequestRefused
from weighbridge.uploads import preview as uploads_preview
from weighbridge.uploads.preview_rows import KINDS, Page

router = layout.router()
PAGE = 50


@router.get("/uploads/{upload_id}/preview")
@layout.page("read")
async def show(
    request: Request,
    upload_id: UUID,
    key: Key,
    app: TheApp,
    entity: Annotated[str | None, Query()] = None,
    kind: Annotated[str | None, Query()] = None,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> Response:
    upload = await find_upload(app, key, upload_id)
    pipeline = uploads_preview.known_pipeline(app.ctx, upload)
    try:
        found = await uploads_preview.preview(app.ctx, upload, operates=key.may("operate"))
        entity = entity or pipeline.grain.name
        kind = kind or _first_kind(found, entity)
        rows = await uploads_preview.page(app.ctx, upload, Page(entity, kind, after, PAGE + 1))
    except RequestRefused as refusal:
        if refusal.status != 409:
            raise
        # The message of a refused form is more specific.
        sentence = "" if layout.NOTE in request.cookies else refusal.message
        return await layout.back(request, f"/uploads/{upload_id}", sentence)
    page = rows[:PAGE]
    more = _address(entity, kind, after=page[-1].seq) if len(rows) > PAGE else ""
    return await layout.show(
        request,
        "preview.html",
        upload=found.upload,
        preview=found,
        tables=[(each, found.changes[each.name]) for each in pipeline.entities],
        kinds=KINDS,
        entity=entity,
        kind=kind,
        rows=page,
        more=more,
        address=_address,
        decide=f"/uploads/{upload_id}",
    )


@router.post("/uploads/{upload_id}/promote")
@layout.page("operate")
async def promote(request: Request, upload_id: UUID, key: Key, app: TheApp) -> Response:
    await uploads_preview.promote_on_hold(
        app.ctx, await find_upload(app, key, upload_id), actor=f"key {key.id}"
    )
    return await layout.back(
        request, f"/uploads/{upload_id}", "The upload is promoted: its rows are being written."
    )


@router.post("/uploads/{upload_id}/discard")
@layout.page("operate")
async def discard(request: Request, upload_id: UUID, key: Key, app: TheApp) -> Response:
    await uploads_preview.discard(app.ctx, await find_upload(app, key, upload_id), actor=f"key {key.id}")
    return await layout.back(
        request, f"/uploads/{upload_id}", "The upload is discarded. None of its rows were written."
    )


def _first_kind(found: uploads_preview.Preview, entity: str) -> str:
    """The kind of rows to show first: updates, then inserts."""
    counts = vars(found.changes[entity]) if entity in found.changes else {}
    return next((kind for kind in ("updated", "inserted", "unchanged") if counts.get(kind)), "updated")


def _address(entity: str, kind: str, **more: int) -> str:
    return f"?{urlencode({'entity': entity, 'kind': kind, **more})}"
