"""`/api/uploads/{id}/preview`: what a held upload would change, row by row if need be; then promote, or discard."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.problems import documented
from weighbridge.api.uploads.manage import find
from weighbridge.model.states import Status
from weighbridge.uploads import preview as steps
from weighbridge.uploads.preview_rows import Page

router = APIRouter(tags=["previews"])
_409 = "It is not held, or not any more; or its file is being read again."


class Kind(StrEnum):
    INSERTED = "inserted"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class ForeseenOut(BaseModel):
    """What would happen to the rows of one production table."""

    table: str
    inserted: int
    updated: int
    unchanged: int


class ReasonOut(BaseModel):
    """One way in which rows of the file are wrong."""

    code: str
    column: str | None
    rows: int
    first_line: int
    example: str


class PreviewOut(BaseModel):
    """What promotion would do, as it was at one moment."""

    upload_id: UUID
    as_of: datetime
    expires_at: datetime = Field(description="When it is discarded by itself.")
    total_rows: int = Field(description="Records of the file.")
    duplicate: int = Field(description="Those that say what another one said.")
    rejected: int
    reasons: list[ReasonOut] = Field(description="Why, the most frequent first.")
    entities: dict[str, ForeseenOut] = Field(description="By entity, in the order of writing.")


class ChangeOut(BaseModel):
    """A value before and after, as text. Of a personal one only whether there is any."""

    column: str
    old: str | None
    new: str | None
    personal: bool


class RowOut(BaseModel):
    """A record of the file, as a row of one table."""

    line: int
    key: dict[str, str | None]
    changes: list[ChangeOut] = Field(
        description="Of an inserted row all that it has, of an unchanged one none."
    )


class RowsOut(BaseModel):
    """A page, in the order of writing. `next` is the `after` of the next page."""

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
        bool, Query(description="Compare again; without the scope operate, what is older than 10 seconds.")
    ] = False,
) -> PreviewOut:
    """What a held upload would insert, update and leave as it is, over all its rows."""
    upload = await find(app, key, upload_id)
    found = await steps.preview(app.ctx, upload, fresh=fresh, operates=key.may("operate"))
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
    responses=documented(_404="No such upload.", _409=_409, _422="A parameter is wrong."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_preview_rows(
    upload_id: UUID,
    key: Key,
    app: TheApp,
    entity: Annotated[
        str | None, Query(description="Else the one that the file's records are rows of.")
    ] = None,
    kind: Annotated[Kind, Query()] = Kind.UPDATED,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The `next` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> RowsOut:
    """Its rows of one kind, with what each would change. Days that are in production as they are, as a whole, are
    counted among the unchanged rows, but not listed."""
    upload = await find(app, key, upload_id)
    wanted = entity or steps.pipeline_of(app.ctx, upload).grain.name
    found = await steps.page(app.ctx, upload, Page(wanted, kind.value, after, limit + 1))
    page = found[:limit]  # the one more tells whether there is a next page
    return RowsOut(
        rows=[
            RowOut(line=row.line, key=row.key, changes=[ChangeOut(**vars(change)) for change in row.changes])
            for row in page
        ],
        next=page[-1].seq if len(found) > limit else None,
    )


@router.post(
    "/api/uploads/{upload_id}/promote",
    responses=documented(_404="No such upload.", _409=_409, _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def promote_upload(upload_id: UUID, key: Key, app: TheApp) -> DecidedOut:
    """Let a held upload go on: its rows are written. It is audited."""
    upload = await find(app, key, upload_id)
    await steps.promote_held(app.ctx, upload, actor=f"key {key.id}")
    return DecidedOut(upload_id=upload.id, status=Status.STAGING_COMPLETE)


@router.post(
    "/api/uploads/{upload_id}/discard",
    responses=documented(_404="No such upload.", _409=_409, _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def discard_upload(upload_id: UUID, key: Key, app: TheApp) -> DecidedOut:
    """Give a held upload up: it fails as `discarded`, and the same content can be sent again. It is audited."""
    upload = await find(app, key, upload_id)
    await steps.discard(app.ctx, upload, actor=f"key {key.id}")
    return DecidedOut(upload_id=upload.id, status=Status.FAILED)
