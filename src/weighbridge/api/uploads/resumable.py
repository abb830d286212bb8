"""`/api/files`: large files on bad lines, by tus 1.0 (creation, checksum, expiration, termination).

A file is begun with POST, comes with one PATCH or many, and ends in the same intake as `POST /api/uploads`, with the
same refusals. Where the line breaks, HEAD says where to go on.
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
from weighbridge.api.access import SECURITY, Key, TheApp, needs, opened
from weighbridge.api.problems import documented, problem
from weighbridge.api.uploads import fields, tus
from weighbridge.api.uploads.manage import find
from weighbridge.api.uploads.turns import Turn, Turns
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Upload
from weighbridge.storage.resumable import Resumable
from weighbridge.uploads import resumable
from weighbridge.uploads.append import ALGORITHMS, append
from weighbridge.uploads.receive import Received

router = APIRouter(tags=["resumable uploads"], dependencies=[Depends(tus.same_version)])
_412 = "Tus-Resumable is not 1.0.0."
_404 = "No such file."
_422 = "A parameter is wrong."
_410 = "It has expired, or was refused; Weighbridge-Error says why."
_423 = "Another process is at this file."


def _empty(*headers: str) -> dict[str, Any]:
    """A route whose answer is in its headers."""
    described = {"security": SECURITY, "parameters": tus.headers_in(*headers)}
    return {"response_class": Response, "response_model": None, "openapi_extra": described}


class FileProgress(BaseModel):
    """How the rows of a file fare, for whoever sent it."""

    pipeline: str
    platform: str | None
    filename: str | None
    rows_read: int
    total_rows: int = Field(description="Rows to promote, known once all are read.")
    promoted_rows: int
    failed_rows: int
    rejected: int
    held: bool = Field(description="It waits for a person to promote or discard it.")
    error_code: str | None
    error_text: str | None
    created_at: datetime
    finished_at: datetime | None


class FileKnown(BaseModel):
    """Of a file whose content was here before: since when. It may be another's, who called it otherwise."""

    created_at: datetime


class FileOut(BaseModel):
    """A file that comes in parts, and what became of it."""

    file_id: UUID
    offset: int = Field(description="How many bytes are here.")
    length: int
    expires_at: datetime
    upload_id: UUID | None = Field(description="The upload that it is now, once all of it is here.")
    status: Status | None
    duplicate: bool | None
    storage_status: str | None
    error: str | None = Field(description="Why the whole file was refused, if it was.")
    message: str | None
    ended: bool = Field(
        description="Refused, or completed, partial or failed: nothing more happens by itself. A preview that is held "
        "has not ended: it waits for a person, for days if need be."
    )
    progress: FileProgress | FileKnown | None = Field(
        description="Of its upload, for the key that began the file. Of a duplicate all of it only where the key "
        "may read, else `created_at` alone."
    )


@router.options(tus.PATH, include_in_schema=False)
@opened
async def describe_tus(app: TheApp) -> Response:
    """What is spoken here."""
    headers = {
        "Tus-Version": tus.VERSION,
        "Tus-Extension": tus.EXTENSIONS,
        "Tus-Max-Size": str(app.ctx.limits.max_upload_bytes),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }
    return Response(status_code=204, headers=headers)


@router.post(
    tus.PATH,
    status_code=201,
    responses=documented(
        _400="A header is missing or wrong, or asks for an extension that there is not.",
        _412=_412,
        _413="The file would be too large, or more than the workspace or the user may store.",
        _422="The file would be empty, or a field in Upload-Metadata is wrong.",
    ),
    **_empty("Upload-Length", "Upload-Metadata"),
)
@needs("upload", browsers=True)
async def begin_file(request: Request, key: Key, app: TheApp) -> Response:
    """Begin a file: Upload-Length, and the fields of `POST /api/uploads` in Upload-Metadata. Location is where to
    send it."""
    length = tus.length_of(request)
    said = fields.request_of(tus.fields_of(request), key)
    fields.admitted(app, said, key)
    upload = await resumable.begin(app.ctx, said, length, request.headers.get("upload-metadata", ""))
    headers = {"Location": f"{tus.PATH}/{upload.id}", "Upload-Expires": tus.moment(upload.expires_at)}
    return Response(status_code=201, headers=headers)


@router.head(
    tus.PATH + "/{file_id}",
    status_code=200,
    responses=documented(_404=_404, _410=_410, _412=_412, _422=_422, _423=_423),
    **_empty(),
)
@needs("upload", browsers=True)
async def ask_offset(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """How much of it is here: Upload-Offset. A request that still waits for its bytes is ended first."""
    upload = await _find(app, key, file_id)
    if not upload.ended and not upload.whole:
        async with _turns(request).take(upload.id), resumable.held(app.ctx, upload) as (upload, _):
            pass
    if upload.refusal is not None:
        return _refused(upload)
    headers = {"Upload-Length": str(upload.length), **_progress(upload)}
    if upload.metadata:
        headers["Upload-Metadata"] = upload.metadata
    return Response(status_code=200, headers={**headers, **_outcome(upload)})


@router.patch(
    tus.PATH + "/{file_id}",
    status_code=204,
    responses=documented(
        _400="A header is missing or wrong.",
        _404=_404,
        _409="It does not go on at this offset; or a newer request has come. Also, at the end, as for an upload.",
        _410=_410,
        _412=_412,
        _413="More bytes than Upload-Length said; at the end, more than may be stored.",
        _415="Not application/offset+octet-stream; or, at the end, neither CSV nor JSON.",
        _422="At the end: an empty file, or one that its pipeline does not take.",
        _423=_423,
        _460="The checksum is another. Nothing of this part was kept.",
    ),
    **_empty("Upload-Offset", "Upload-Checksum"),
)
@needs("upload", browsers=True)
async def send_part(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """The next bytes, as application/offset+octet-stream. With the last ones the file is taken in, and the answer says
    as which upload."""
    offset, checksum = tus.offset_of(request), tus.checksum_of(request)
    upload = await _find(app, key, file_id)
    if upload.ended:
        return _over(upload, offset)
    async with (
        _turns(request).take(upload.id) as turn,
        resumable.held(app.ctx, upload) as (upload, part),
    ):
        if part is None:
            return _over(upload, offset)
        _expect(upload, offset, request)
        received = None
        if not upload.whole:
            body = _body(request, turn, app.settings.sender_seconds)
            upload = await append(app.ctx, upload, part, body, checksum)
            await resumable.look(app.ctx, upload, part, since=offset)
        if upload.whole:
            received = await resumable.finish(app.ctx, upload, part)
    headers = {**_progress(upload), **(_to_json(received) if received else {})}
    return Response(status_code=204, headers=headers)


@router.delete(
    tus.PATH + "/{file_id}",
    status_code=204,
    responses=documented(
        _404=_404,
        _410="It has expired, or is an upload by now, which stays.",
        _412=_412,
        _422=_422,
        _423=_423,
    ),
    **_empty(),
)
@needs("upload", browsers=True)
async def end_file(file_id: str, request: Request, key: Key, app: TheApp) -> Response:
    """Forget a file that is not to come any more. What was recorded as an upload stays."""
    upload = await _find(app, key, file_id)
    async with _turns(request).take(upload.id), resumable.held(app.ctx, upload) as (upload, part):
        if upload.upload_id is not None:
            message = f"The file is here, as upload {upload.upload_id}, and stays."
            raise RequestRefused(410, "already_recorded", message)
        await resumable.terminate(app.ctx, upload, part)
    return Response(status_code=204)


@router.get(
    tus.PATH + "/{file_id}",
    responses=documented(_404=_404, _410="It has expired.", _422=_422),
    openapi_extra={"security": SECURITY},
)
@needs("upload", browsers=True)
async def get_file(file_id: str, key: Key, app: TheApp) -> FileOut:
    """How far a file has come, and what became of it."""
    upload = await _find(app, key, file_id)
    progress: FileProgress | FileKnown | None = None
    if upload.upload_id is not None and upload.request.get("key_id") == str(key.id):
        found = await find(app, key, upload.upload_id)
        others = upload.duplicate and not key.may("read")
        progress = FileKnown(created_at=found.created_at) if others else _fares(found)
    return FileOut(
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


def _fares(upload: Upload) -> FileProgress:
    same = {name: getattr(upload, name) for name in FileProgress.model_fields if hasattr(upload, name)}
    return FileProgress(**same, rejected=upload.bins.rejected)


async def _find(app: App, key: ApiKey, file_id: str) -> Resumable:
    """A file of the workspace; for a token, which is in anybody's browser, one that its own key began."""
    begun_by = key.id if key.bounds is not None else None
    return await resumable.find(app.ctx, key.workspace_id, _id(file_id), begun_by=begun_by)


def _id(said: str) -> UUID:
    try:
        return UUID(said)
    except ValueError:
        raise RequestRefused(
            404, "unknown_file", "There is no such file under way. Begin a new one."
        ) from None


def _turns(request: Request) -> Turns:
    turns: Turns = request.app.state.turns
    return turns


async def _body(request: Request, turn: Turn, seconds: float) -> AsyncIterator[bytes]:
    stream = aiter(request.stream())
    while (chunk := await turn.next(stream, seconds)) is not None:
        yield chunk


def _expect(upload: Resumable, offset: int, request: Request) -> None:
    """RequestRefused for a part that does not fit."""
    if offset != upload.received:
        message = f"Upload-Offset: expected {upload.received}, got {offset}. HEAD says where to go on."
        raise RequestRefused(409, "wrong_offset", message)
    size = request.headers.get("content-length", "")
    if size.isascii() and size.isdigit() and offset + int(size) > upload.length:
        left = upload.length - offset
        message = f"Content-Length: expected at most {left} bytes, as Upload-Length said {upload.length}, got {size}."
        raise RequestRefused(413, "too_many_bytes", message)


def _over(upload: Resumable, offset: int) -> Response:
    """The answer to a part of a file that has ended: the one that was lost on the way, where it is asked for again."""
    if upload.refusal is not None:
        return _refused(upload)
    if offset != upload.length:
        message = f"Upload-Offset: all {upload.length} bytes are here, as upload {upload.upload_id}."
        raise RequestRefused(409, "wrong_offset", message)
    return Response(status_code=204, headers={**_progress(upload), **_outcome(upload)})


def _refused(upload: Resumable) -> Response:
    assert upload.refusal is not None
    answer = problem(410, upload.refusal.code, upload.refusal.text)
    answer.headers["Weighbridge-Error"] = upload.refusal.code
    return answer


def _progress(upload: Resumable) -> dict[str, str]:
    return {"Upload-Offset": str(upload.received), "Upload-Expires": tus.moment(upload.expires_at)}


def _outcome(upload: Resumable) -> dict[str, str]:
    """As which upload it is here, if it is."""
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


def _headers(**said: Any) -> dict[str, str]:
    """Weighbridge-Upload-Id and its like; that the bytes are stored goes without saying."""
    if said["storage_status"] == "stored":
        del said["storage_status"]
    return {
        f"Weighbridge-{name.replace('_', '-').title()}": json.dumps(value)
        if isinstance(value, bool)
        else str(value)
        for name, value in said.items()
        if value is not None
    }
