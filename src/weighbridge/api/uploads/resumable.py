"""`/api/files`: resumable uploads with tus 1.0 (creation, checksum, expiration, termination).

POST creates the upload, and one or more PATCH requests send the bytes. The complete file enters the same intake as
`POST /api/uploads`, with the same refusals. After a broken connection, HEAD returns the current offset.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import SECURITY, Key, TheApp, needs, public
from weighbridge.api.error_responses import documented, problem
from weighbridge.api.uploads import fields, tus_headers
from weighbridge.api.uploads.exclusive_requests import ExclusiveRequest, ExclusiveRequests
from weighbridge.api.uploads.manage import find_upload
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Upload
from weighbridge.storage.resumable import Resumable
from weighbridge.uploads import resumable
from weighbridge.uploads.receive import Received
from weighbridge.uploads.resumable_append import ALGORITHMS, append

router = APIRouter(tags=["resumable uploads"], dependencies=[Depends(tus_headers.same_version)])
_412 = "Tus-Resumable is not 1.0.0."
_404 = "The file does not exist."
_422 = "A parameter is invalid."
_410 = "The file has expired or was refused; see Weighbridge-Error."
_423 = "Another process is handling this file."


def _empty(*headers: str) -> dict[str, Any]:
    """A route that responds with headers only."""
    described = {"security": SECURITY, "parameters": tus_headers.headers_in(*headers)}
    return {"response_class": Response, "response_model": None, "openapi_extra": described}


class FileProgress(BaseModel):
    """The progress of a file's upload, for its sender."""

    pipeline: str
    platform: str | None
    filename: str | None
    rows_read: int
    total_rows: int = Field(description="Rows to promote; known when the whole file is read.")
    promoted_rows: int
    failed_rows: int
    rejected: int
    held: bool = Field(description="The upload is on hold until a user promotes or discards it.")
    error_code: str | None
    error_text: str | None
    created_at: datetime
    finished_at: datetime | None


class FileKnown(BaseModel):
    """For a duplicate: only the time of the earlier upload, which may belong to another user."""

    created_at: datetime


class ResumableOut(BaseModel):
    """A resumable upload and its result."""

    file_id: UUID
    offset: int = Field(description="Number of bytes received.")
    length: int
    expires_at: datetime
    upload_id: UUID | None = Field(description="The id of the upload, when the whole file is received.")
    status: Status | None
    duplicate: bool | None
    storage_status: str | None
    error: str | None = Field(description="The error code, if the file was refused.")
    message: str | None
    ended: bool = Field(
        description="True if the file was refused, or the upload is completed, partial or failed. An upload on hold "
        "has not ended."
    )
    progress: FileProgress | FileKnown | None = Field(
        description="Progress of the upload, for the key that created the file. For a duplicate, only `created_at` "
        "unless the key has the scope read."
    )


@router.options(tus_headers.PATH, include_in_schema=False)
@public
async def describe_tus(app: TheApp) -> Response:
    """The supported tus version and extensions."""
    headers = {
        "Tus-Version": tus_headers.VERSION,
        "Tus-Extension": tus_headers.EXTENSIONS,
        "Tus-Max-Size": str(app.ctx.limits.max_upload_bytes),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }
    return Response(status_code=204, headers=headers)


@router.post(
    tus_headers.PATH,
    status_code=201,
    responses=documented(
        _400="A header is missing or invalid, or requires an unsupported extension.",
        _412=_412,
        _413="The file is too large, or exceeds a storage quota.",
        _422="The file is empty, or a field in Upload-Metadata is invalid.",
    ),
    **_empty("Upload-Length", "Upload-Metadata"),
)
@needs("upload", browsers=True)
async def begin_file(request: Request, key: Key, app: TheApp) -> Response:
    """Create a resumable upload: Upload-Length, and the fields of `POST /api/uploads` in Upload-Metadata. Send the file
    to the address in Location."""
    length = tus_headers.length_of(request)
    upload_request = fields.request_of(tus_headers.fields_of(request), key)
    fields.admitted(app, upload_request, key)
    upload = await resumable.begin(
        app.ctx, upload_request, length, request.headers.get("upload-metadata", "")
    )
    headers = {
        "Location": f"{tus_headers.PATH}/{upload.id}",
        "Upload-Expires": tus_headers.moment(upload.expires_at),
    }
    return Response(status_code=201, headers=headers)


@router.head(
    tus_headers.PATH + "/{file_id}",
    status_code=200,
    responses=documented(_404=_404, _410=_410, _412=_412, _422=_422, _423=_423),
    **_empty(),
)
@needs("upload", browsers=True)
async def ask_offset(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """The number of received bytes, in Upload-Offset. An older open request for this file is ended first."""
    upload = await _find(app, key, file_id)
    if not upload.ended and not upload.whole:
        async with _requests(request).enter(upload.id), resumable.locked(app.ctx, upload) as (upload, _):
            pass
    if upload.refusal is not None:
        return _refused(upload)
    headers = {"Upload-Length": str(upload.length), **_progress(upload)}
    if upload.metadata:
        headers["Upload-Metadata"] = upload.metadata
    return Response(status_code=200, headers={**headers, **_outcome(upload)})


@router.patch(
    tus_headers.PATH + "/{file_id}",
    status_code=204,
    responses=documented(
        _400="A header is missing or invalid.",
        _404=_404,
        _409="Wrong offset, or a newer request arrived. After the last part also the errors of an upload.",
        _410=_410,
        _412=_412,
        _413="More bytes than declared in Upload-Length; after the last part, a quota is exceeded.",
        _415="Not application/offset+octet-stream; after the last part, neither CSV nor JSON.",
        _422="After the last part: the file is empty, or its pipeline refuses it.",
        _423=_423,
        _460="The checksum does not match. This part was not stored.",
    ),
    **_empty("Upload-Offset", "Upload-Checksum"),
)
@needs("upload", browsers=True)
async def send_part(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """Send the next bytes, as application/offset+octet-stream. After the last part, the response contains the id of the
    upload."""
    offset, checksum = tus_headers.offset_of(request), tus_headers.checksum_of(request)
    upload = await _find(app, key, file_id)
    if upload.ended:
        return _answer_complete(upload, offset)
    async with (
        _requests(request).enter(upload.id) as exclusive,
        resumable.locked(app.ctx, upload) as (upload, part),
    ):
        if part is None:
            return _answer_complete(upload, offset)
        _expect(upload, offset, request)
        received = None
        if not upload.whole:
            body = _body(request, exclusive, app.settings.sender_seconds)
            upload = await append(app.ctx, upload, part, body, checksum)
            await resumable.refuse_early(app.ctx, upload, part, since=offset)
        if upload.whole:
            received = await resumable.finish(app.ctx, upload, part)
    headers = {**_progress(upload), **(_to_json(received) if received else {})}
    return Response(status_code=204, headers=headers)


@router.delete(
    tus_headers.PATH + "/{file_id}",
    status_code=204,
    responses=documented(
        _404=_404,
        _410="The file has expired, or is an upload already, which stays.",
        _412=_412,
        _422=_422,
        _423=_423,
    ),
    **_empty(),
)
@needs("upload", browsers=True)
async def end_file(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """Cancel a resumable upload. A file that is already an upload stays."""
    upload = await _find(app, key, file_id)
    async with _requests(request).enter(upload.id), resumable.locked(app.ctx, upload) as (upload, part):
        if upload.upload_id is not None:
            message = f"The file is complete and stays as upload {upload.upload_id}."
            raise RequestRefused(410, "already_recorded", message)
        await resumable.terminate(app.ctx, upload, part)
    return Response(status_code=204)


@router.get(
    tus_headers.PATH + "/{file_id}",
    responses=documented(_404=_404, _410="The file has expired.", _422=_422),
    openapi_extra={"security": SECURITY},
)
@needs("upload", browsers=True)
async def get_file(file_id: str, key: Key, app: TheApp) -> ResumableOut:
    """The progress and result of a resumable upload."""
    upload = await _find(app, key, file_id)
    progress: FileProgress | FileKnown | None = None
    if upload.upload_id is not None and upload.request.get("key_id") == str(key.id):
        found = await find_upload(app, key, upload.upload_id)
        others = upload.duplicate and not key.may("read")
        progress = FileKnown(created_at=found.created_at) if others else _file_progress(found)
    return ResumableOut(
        file_id=upload.id,
        offset=upload.received,
        length=upload.length,
        expires_at=upload.expires_at,
        upload_id=upload.upload_id,
        status=Status(upload.status) if upload.status else None,
        duplicate=upload.duplicate if upload.upload_id else None,
        storage_status=upload.storage_status,
        error=upload.refusal.code if upload.refusal else None,
        message=upload.refusal.text if upload.refusal else None,
        ended=upload.refusal is not None or upload.status in TERMINAL,
        progress=progress,
    )


def _file_progress(upload: Upload) -> FileProgress:
    same = {name: getattr(upload, name) for name in FileProgress.model_fields if hasattr(upload, name)}
    return FileProgress(**same, held=upload.on_hold, rejected=upload.bins.rejected)


async def _find(app: App, key: ApiKey, file_id: str) -> Resumable:
    """A file of the workspace; for a token, which is public in a browser, only files that its key created."""
    begun_by = key.id if key.bounds is not None else None
    return await resumable.find(app.ctx, key.workspace_id, _id(file_id), begun_by=begun_by)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise RequestRefused(
            404, "unknown_file", "There is no such resumable upload. Create a new one."
        ) from None


def _requests(request: Request) -> ExclusiveRequests:
    requests: ExclusiveRequests = request.app.state.exclusive_requests
    return requests


async def _body(request: Request, exclusive: ExclusiveRequest, seconds: float) -> AsyncIterator[bytes]:
    stream = aiter(request.stream())
    while (chunk := await exclusive.next(stream, seconds)) is not None:
        yield chunk


def _expect(upload: Resumable, offset: int, request: Request) -> None:
    """RequestRefused for a part with a wrong offset or size."""
    if offset != upload.received:
        message = (
            f"Upload-Offset: expected {upload.received}, got {offset}. Use HEAD to get the current offset."
        )
        raise RequestRefused(409, "wrong_offset", message)
    size = request.headers.get("content-length", "")
    if size.isascii() and size.isdigit() and offset + int(size) > upload.length:
        left = upload.length - offset
        message = (
            f"Content-Length: expected at most {left} bytes (Upload-Length is {upload.length}), got {size}."
        )
        raise RequestRefused(413, "too_many_bytes", message)


def _answer_complete(upload: Resumable, offset: int) -> Response:
    """The response to a part of a complete file: repeats the final response, in case the client lost it."""
    if upload.refusal is not None:
        return _refused(upload)
    if offset != upload.length:
        message = f"Upload-Offset: all {upload.length} bytes are received, as upload {upload.upload_id}."
        raise RequestRefused(409, "wrong_offset", message)
    return Response(status_code=204, headers={**_progress(upload), **_outcome(upload)})


def _refused(upload: Resumable) -> Response:
    assert upload.refusal is not None
    answer = problem(410, upload.refusal.code, upload.refusal.text)
    answer.headers["Weighbridge-Error"] = upload.refusal.code
    return answer


def _progress(upload: Resumable) -> dict[str, str]:
    return {"Upload-Offset": str(upload.received), "Upload-Expires": tus_headers.moment(upload.expires_at)}


def _outcome(upload: Resumable) -> dict[str, str]:
    """The upload of a complete file, if any."""
    if upload.upload_id is None:
        return {}
    return _headers(
        upload_id=upload.upload_id,
        status=upload.status,
        duplicate=upload.duplicate,
        storage_status=upload.storage_status,
    )


def _to_json(received: Received) -> dict[str, str]:
    return _headers(
        upload_id=received.upload_id,
        status=received.status.value,
        duplicate=received.duplicate,
        storage_status=received.storage_status,
        queue_id=received.queue_id,
    )


def _headers(**values: Any) -> dict[str, str]:
    """Weighbridge-Upload-Id and related headers; no storage status if the file is stored."""
    if values["storage_status"] == "stored":
        del values["storage_status"]
    return {
        f"Weighbridge-{name.replace('_', '-').title()}": json.dumps(value)
        if isinstance(value, bool)
        else str(value)
        for name, value in values.items()
        if value is not None
    }
