"""`/api/uploads/{id}/preview`: the changes of an upload on hold, in total and by row; then promote or discard."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from weighbridge.api import cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.uploads.manage import find_upload
from weighbridge.model.states import Status
from weighbridge.uploads import preview as uploads_preview
from weighbridge.uploads.preview_rows import Page

router = APIRouter(tags=["previews"])
_409 = "The upload is not on hold, or its file is being read again."
_DECISION: dict[str, Any] = {
    "responses": documented(_404="No such upload.", _409=_409, _422="Not a UUID."),
    "openapi_extra": {"security": SECURITY},
}


class Kind(StrEnum):
    INSERTED = "inserted"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class ForeseenOut(BaseModel):
    """Expected changes to one production table."""

    table: str
    inserted: int
    updated: int
    unchanged: int


class ReasonOut(BaseModel):
    """One reason for rejected rows."""

    code: str
    column: str | None
    rows: int
    first_line: int
    example: str


class PreviewOut(BaseModel):
    """The changes that promotion would make, as of one moment."""

    upload_id: UUID
    as_of: datetime
    expires_at: datetime = Field(description="When the upload is discarded automatically.")
    total_rows: int = Field(description="Records of the file.")
    duplicate: int = Field(description="Records that repeat another record.")
    rejected: int
    reasons: list[ReasonOut] = Field(description="Reasons for rejected rows, most frequent first.")
    entities: dict[str, ForeseenOut] = Field(description="Changes by entity, in the order of writing.")


class ChangeOut(BaseModel):
    """A value before and after, as text. Of personal data only whether there is a value."""

    column: str
    old: str | None
    new: str | None
    personal: bool


class RowOut(BaseModel):
    """A record of the file, as a row of one table."""

    line: int
    key: dict[str, str | None]
    changes: list[ChangeOut] = Field(description="All values of an inserted row; none of an unchanged row.")


class PreviewRowsOut(BaseModel):
    """A page, in the order of writing. Pass `next` as `after` to get the next page."""

    rows: list[RowOut]
    next: int | None


class DecidedOut(BaseModel):
    upload_id: UUID
    status: Status


@router.get(
    "/api/uploads/{upload_id}/preview",
    responses=documented(_404="No such upload.", _409=_409, _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_preview(
    upload_id: UUID,
    key: Key,
    app: TheApp,
    fresh: Annotated[
        bool,
        Query(description="Compare again. Without the scope operate, at most every 10 seconds."),
    ] = False,
) -> PreviewOut:
    """What an upload on hold would insert, update and leave unchanged."""
    upload = await find_upload(app, key, upload_id)
    found = await uploads_preview.preview(app.ctx, upload, fresh=fresh, operates=key.may("operate"))
    upload, pipeline = found.upload, app.ctx.pipelines[found.upload.pipeline]
    return PreviewOut(
        upload_id=upload.id,
        as_of=found.as_of,
        expires_at=found.expires_at,
        total_rows=upload.total_rows,
        duplicate=found.duplicate,
        rejected=found.rejected,
        reasons=[
            ReasonOut(
                code=each.code,
                column=each.column_name,
                rows=each.rows,
                first_line=each.first_line,
                example=each.example,
            )
            for each in found.reasons
        ],
        entities={
            entity.name: ForeseenOut(table=entity.table, **vars(found.changes[entity.name]))
            for entity in pipeline.entities
        },
    )


@router.get(
    "/api/uploads/{upload_id}/preview/rows",
    responses=documented(_404="No such upload.", _409=_409, _422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_preview_rows(
    upload_id: UUID,
    key: Key,
    app: TheApp,
    entity: Annotated[str | None, Query(description="Default: the last entity of the pipeline.")] = None,
    kind: Annotated[Kind, Query()] = Kind.UPDATED,
    after: Annotated[
        int, Query(ge=0, le=2**31 - 1, description="The `next` value of the previous page.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> PreviewRowsOut:
    """Rows of one kind, with the changes of each. Days whose rows are all unchanged are
    counted, but not listed."""
    upload = await find_upload(app, key, upload_id)
    wanted = entity or uploads_preview.known_pipeline(app.ctx, upload).grain.name
    found = await uploads_preview.page(app.ctx, upload, Page(wanted, kind.value, after, limit + 1))
    page, last = cursor.page(found, limit)
    return PreviewRowsOut(
        rows=[
            RowOut(line=row.line, key=row.key, changes=[ChangeOut(**vars(change)) for change in row.changes])
            for row in page
        ],
        next=last.seq if last else None,
    )


@router.post("/api/uploads/{upload_id}/promote", **_DECISION)
@needs("operate")
async def promote_upload(upload_id: UUID, key: Key, app: TheApp) -> DecidedOut:
    """Promote an upload on hold: its rows are written. The action is audited."""
    upload = await find_upload(app, key, upload_id)
    await uploads_preview.promote_on_hold(app.ctx, upload, actor=f"key {key.id}")
    return DecidedOut(upload_id=upload.id, status=Status.STAGING_COMPLETE)


@router.post("/api/uploads/{upload_id}/discard", **_DECISION)
@needs("operate")
async def discard_upload(upload_id: UUID, key: Key, app: TheApp) -> DecidedOut:
    """Discard an upload on hold: it fails as `discarded`; its content can be uploaded again. The action is audited."""
    upload = await find_upload(app, key, upload_id)
    await uploads_preview.discard(app.ctx, upload, actor=f"key {key.id}")
    return DecidedOut(upload_id=upload.id, status=Status.FAILED)
