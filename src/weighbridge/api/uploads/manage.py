"""`/api/uploads`: list, inspect and retry uploads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.uploads.models import (
    DismissOut,
    ReleaseOut,
    RetryIn,
    RetryOut,
    UploadDetail,
    UploadsOut,
    WarnedOut,
    WarningsOut,
    upload_detail,
    upload_out,
)
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.uploads import fixed_rows, history, queue
from weighbridge.uploads.fixed_rows import NO_REJECTS
from weighbridge.uploads.operator_retry import dismiss, reopen
from weighbridge.uploads.read_options import read_options
from weighbridge.uploads.release_batch import release_batch

router = APIRouter(tags=["uploads"])


@router.get(
    "/api/uploads",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_uploads(
    key: Key,
    app: TheApp,
    status: Annotated[Status | None, Query(description="Only uploads with this status.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="The `next` value of the previous page.")] = None,
) -> UploadsOut:
    """List the workspace's uploads, newest first."""
    behind = cursor.read("before", before, queue.UploadCursor, datetime.fromisoformat, UUID)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await queue.recent_uploads(
            tx, key.workspace_id, status=status, behind=behind, limit=limit + 1
        )
        rejects = await fixed_rows.rejects(tx, [upload.id for upload in found])
    page, last = cursor.page(found, limit)
    more = cursor.write(last.created_at.isoformat(), last.id) if last else None
    shown = [upload_out(upload, rejects.get(upload.id, NO_REJECTS)) for upload in page]
    return UploadsOut(uploads=shown, next=more)


@router.get(
    "/api/uploads/{upload_id}",
    responses=documented(_404="No such upload.", _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_upload(upload_id: UUID, key: Key, app: TheApp) -> UploadDetail:
    """Everything about one upload: state, progress, bins, counts, columns, read options, linked uploads."""
    upload = await find_upload(app, key, upload_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        rejects = await fixed_rows.rejects(tx, [upload.id])
        links = await fixed_rows.links(tx, upload.id)
    return upload_detail(upload, rejects.get(upload.id, NO_REJECTS), links)


@router.get(
    "/api/uploads/{upload_id}/warnings",
    responses=documented(_404="No such upload.", _422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_warnings(
    upload_id: UUID,
    key: Key,
    app: TheApp,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[str | None, Query(description="The `next` value of the previous page.")] = None,
) -> WarningsOut:
    """Every assumption about the file, its unused columns and missing fields, and warnings about loaded rows."""
    behind = cursor.read("after", after, history.WarnedAt, int, str)
    upload = await find_upload(app, key, upload_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await history.warnings(tx, upload.id, behind, limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.row_index, last.code) if last else None
    return WarningsOut(warnings=[WarnedOut(**vars(warned)) for warned in page], next=more)


@router.post(
    "/api/uploads/{upload_id}/retry",
    responses=documented(
        _404="No such upload.",
        _409="The upload is not failed or partial, was uploaded again, or its file is no longer stored.",
        _429="The user's monthly limit for files that are read again is reached.",
        _422="Not a UUID, a body that is not as described, or an invalid read option.",
    ),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def retry_upload(upload_id: UUID, key: Key, app: TheApp, body: RetryIn | None = None) -> RetryOut:
    """Retry a failed or partial upload from the stored file, optionally with other read options.
    The action is audited."""
    upload = await find_upload(app, key, upload_id)
    body = body or RetryIn.model_validate({})
    status = await reopen(
        app.db,
        upload,
        force_partial=body.force_partial,
        actor=f"key {key.id}",
        limited=True,
        reading=read_options(body.model_dump(), upload.reading),
        newest=body.as_newest,
    )
    return RetryOut(upload_id=upload.id, status=Status(status))


@router.post(
    "/api/uploads/{upload_id}/dismiss",
    responses=documented(_404="No such upload.", _409="The upload has not failed.", _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def dismiss_upload(upload_id: UUID, key: Key, app: TheApp) -> DismissOut:
    """Remove a failed upload from the dead letters. It stays failed and can still be retried. The action is audited."""
    upload = await find_upload(app, key, upload_id)
    await dismiss(app.db, upload, actor=f"key {key.id}")
    return DismissOut(upload_id=upload.id, status=Status.FAILED, dismissed=True)


@router.post(
    "/api/uploads/{upload_id}/release-batch",
    responses=documented(
        _404="No such upload.",
        _409="The upload has not failed, or it has no batch name.",
        _422="Not a UUID.",
    ),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def release_batch_of_upload(upload_id: UUID, key: Key, app: TheApp) -> ReleaseOut:
    """Remove the batch name from a failed upload, so that the fixed file can use it. The action is audited."""
    upload = await find_upload(app, key, upload_id)
    name = await release_batch(app.db, upload, actor=f"key {key.id}")
    return ReleaseOut(upload_id=upload.id, status=Status.FAILED, released_batch_id=name)


async def find_upload(app: App, key: ApiKey, upload_id: UUID) -> Upload:
    """An upload of the key's workspace; one of another workspace is treated as unknown."""
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        upload = await queue.get(tx, upload_id)
    if upload is None:
        raise RequestRefused(
            404,
            "unknown_upload",
            f"There is no upload {upload_id} in this workspace. GET /api/uploads lists its uploads.",
        )
    return upload
