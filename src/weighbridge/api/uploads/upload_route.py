"""`POST /api/uploads`, and `POST /upload_file`: upload files as a form, or one file as the body.

All files of a request are saved before the first is recorded: a request that is refused, or breaks off,
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from python_multipart.multipart import parse_options_header

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import figures, problem
from weighbridge.api.uploads import fields
from weighbridge.api.uploads.describe import SEND_BODY, SEND_PARAMETERS, SEND_RESPONSES
from weighbridge.api.uploads.multipart_parser import Part, malformed, parts
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.model.upload import Sender
from weighbridge.observe.redact import quote_input
from weighbridge.storage import quota
from weighbridge.uploads import receive, recognise
from weighbridge.uploads.check_request import AUTO, Checked
from weighbridge.uploads.check_request import Request as UploadRequest
from weighbridge.uploads.receive import Received, ReceivedFile

router = APIRouter(tags=["uploads"])

RAW_TYPES = (
    "text/csv", "text/plain", "application/json", "application/x-ndjson", "application/octet-stream",
)  # fmt: skip
FORM_ROUND_FILES = 4096  # upper bound for the bytes of a form that are not its files


@router.post(
    "/upload_file",  # a second fixed path for the same request
    status_code=201,
    response_class=JSONResponse,
    response_model=None,
    responses=SEND_RESPONSES,
    openapi_extra={"requestBody": SEND_BODY, "parameters": SEND_PARAMETERS, "security": SECURITY},
)
@router.post(
    "/api/uploads",
    status_code=201,
    response_class=JSONResponse,
    response_model=None,
    responses=SEND_RESPONSES,
    openapi_extra={"requestBody": SEND_BODY, "parameters": SEND_PARAMETERS, "security": SECURITY},
)
@needs("upload", browsers=True)
async def send_files(request: Request, key: Key, app: TheApp) -> JSONResponse:
    """Upload files. Fields must precede the files and apply to all of them."""
    if _content_type(request)[0] in RAW_TYPES:
        async with _intake(request, key, app) as intake:
            await intake.take_raw(request)
            return await intake.answer()
    return await receive_form(request, key, app, form_parts(request, app))


def form_parts(request: Request, app: App) -> AsyncIterator[Part]:
    """The fields and files of a form, in order."""
    kind, boundary = _content_type(request)
    if kind != "multipart/form-data":
        expected = f"multipart/form-data, or one file as {', '.join(RAW_TYPES)}"
        raise RequestRefused(415, "unsupported_media_type", f"Content-Type: expected {expected}.")
    if not boundary:
        raise malformed("its boundary is missing in the header Content-Type")
    return parts(_body(request, app), boundary)


async def receive_form(request: Request, key: ApiKey, app: App, form: AsyncIterator[Part]) -> JSONResponse:
    """Receive all files of a form, or of the rest of it."""
    async with _intake(request, key, app) as intake:
        async for part in form:
            await intake.take(part)
        return await intake.answer()


@contextlib.asynccontextmanager
async def _intake(request: Request, key: ApiKey, app: App) -> AsyncIterator[_Intake]:
    """The intake of one request, and its cleanup."""
    intake = _Intake(app, key, length=_length(request))
    for name, value in request.query_params.multi_items():
        intake.note(name, value)
    try:
        yield intake
    finally:
        await intake.discard()


def _content_type(request: Request) -> tuple[str, bytes | None]:
    """The media type, and the boundary of a form."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    return kind.decode("latin-1"), options.get(b"boundary")


def _length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return min(int(length), 2**50) if length.isascii() and length.isdigit() else None


async def _body(request: Request, app: App) -> AsyncIterator[bytes]:
    """The body as a stream, with a timeout: senders that hang would occupy all connections."""
    silence_limit = app.settings.sender_seconds
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(silence_limit):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            message = (
                f"No data received for {silence_limit:g} seconds. Nothing was stored; send the files again."
            )
            raise RequestRefused(408, "sender_silent", message) from None
        yield chunk


@dataclass
class _Intake:
    """One request: its fields, then its files."""

    app: App
    key: ApiKey
    fields: dict[str, str] = field(default_factory=dict)
    length: int | None = None  # of the body, if known
    upload_request: UploadRequest | None = None
    sender: Sender | None = None
    checked: dict[UUID, Checked] = field(default_factory=dict)  # the request for each file, by its grant
    files: list[tuple[str | None, ReceivedFile | RequestRefused]] = field(default_factory=list)
    grants: set[UUID] = field(default_factory=set)  # bytes reserved for files in progress

    async def take(self, part: Part) -> None:
        if part.filename is not None:
            with _fields_first(self.fields):
                self._sender()
            await self._save(part.chunks(), self.fields.get("filename") or part.filename, part.size)
        elif part.name == "file":
            message = "file: expected a file, got a field without a file name. In curl: -F file=@report.csv."
            raise RequestRefused(422, "missing_filename", message)
        elif self.files:
            field = quote_input(part.name)
            message = f"The field {field} was sent after a file. Send the fields first, then the files."
            raise RequestRefused(422, "field_after_file", message)
        else:
            fields.known(part.name)
            self.note(part.name, await part.text())

    def note(self, name: str, value: str) -> None:
        """A field of the form or of the query."""
        fields.once(name, self.fields)
        self.fields[name] = value

    async def take_raw(self, request: Request) -> None:
        await self._save(_body(request, self.app), self.fields.get("filename"), self.length)

    async def _save(self, chunks: AsyncIterator[bytes], filename: str | None, size: int | None) -> None:
        limit = self.app.ctx.limits.max_upload_bytes
        sender = self._sender()
        receive.refuse_large(size or 0, limit)
        name = receive.tidy_name(filename)
        grant = uuid4()
        await self._set_aside(size, grant)
        try:
            checked, chunks = await self._checked(chunks, name)
            self.checked[grant] = checked
            self.files.append(
                (name, await receive.save_to_scratch(self.app.ctx, checked, chunks, filename, grant))
            )
        except RequestRefused as refusal:
            if refusal.status in (400, 408, 413):
                raise  # ends the request: the rest cannot be read, or its size is unknown
            self.files.append((name, refusal))
            if grant in self.grants:  # release its reservation for the other files
                self.grants.discard(grant)
                await quota.release(self.app.ctx, sender, grant)
            left = limit
            async for chunk in chunks:  # skip to the next file
                left -= len(chunk)
                receive.refuse_large(limit - left, limit)

    async def _set_aside(self, size: int | None, grant: UUID) -> None:
        """Reserve storage before the bytes are read; QuotaExceeded if the quota does not suffice. Only the length of
        the whole form is known: the first file is assumed to be almost all of it.
        """
        if size is None and self.length is not None and not self.files:
            size = self.length - FORM_ROUND_FILES
        if size is not None and size > 0:
            self.grants.add(grant)
            await quota.reserve(self.app.ctx, self._sender(), size, grant)

    def _sender(self) -> Sender:
        """The checked request from the fields, when the first file begins."""
        if self.sender is None:
            for name in self.fields:
                fields.known(name)
            self.upload_request = fields.request_of(self.fields, self.key)
            self.sender = fields.admitted(self.app, self.upload_request, self.key)
        return self.sender

    async def _checked(
        self, chunks: AsyncIterator[bytes], name: str | None
    ) -> tuple[Checked, AsyncIterator[bytes]]:
        """The request for one file, and all its bytes: the first bytes may be needed to detect its type."""
        assert self.upload_request is not None
        upload_request = replace(self.upload_request, filename=name)
        if upload_request.pipeline == AUTO:
            head, chunks = await recognise.peeked(chunks)
            upload_request = await recognise.recognised_request(self.app.ctx, upload_request, head)
        return fields.checked(self.app, upload_request, self.key), chunks

    async def answer(self) -> JSONResponse:
        """Record the saved files and return the result of each."""
        if not self.files:
            raise RequestRefused(422, "missing_file", "file: expected at least one file, got none.")
        if len(self.files) == 1:
            found = self.files[0][1]
            if isinstance(found, RequestRefused):
                raise found
            received = await self._record(found)
            if received.queue_id is not None:
                return JSONResponse(_deferred(received), 202)
            return JSONResponse(_to_json(received, found.filename), 200 if received.duplicate else 201)
        results: list[dict[str, Any]] = []
        statuses: list[int] = []
        unstored: RetryLater | None = None
        for name, found in self.files:
            try:
                if isinstance(found, RequestRefused):
                    raise found
                received = await self._record(found, unstored)
                unstored = received.unstored or unstored
                result = (
                    {**_deferred(received), "filename": name}
                    if received.queue_id
                    else _to_json(received, name)
                )
                results.append(result)
            except (RequestRefused, RetryLater) as error:
                code, status = "unavailable", 503
                if isinstance(error, RequestRefused):
                    code, status = error.code, error.status
                statuses.append(status)
                results.append({"filename": name, "error": code, "message": error.message, **figures(error)})
        if len(statuses) == len(results):
            message = f"None of the {len(results)} files was accepted."
            return problem(_worst(statuses), "nothing_accepted", message, uploads=results)
        deferred = all("queue_id" in each for each in results)
        return JSONResponse({"uploads": results}, 207 if statuses else 202 if deferred else 201)

    async def _record(self, file: ReceivedFile, unstored: RetryLater | None = None) -> Received:
        self.grants.discard(file.grant)
        checked = self.checked[file.grant]
        return await receive.record(self.app.ctx, checked, file, unstored=unstored)

    async def discard(self) -> None:
        """Clean up after a request that ended early."""
        for _, found in self.files:
            if isinstance(found, ReceivedFile):
                found.discard()
        for grant in self.grants:
            await quota.release(self.app.ctx, self._sender(), grant)


@contextlib.contextmanager
def _fields_first(upload_request: dict[str, str]) -> Iterator[None]:
    """Add a hint if a file precedes a missing field: the field may follow later in the form."""
    try:
        yield
    except RequestRefused as refusal:
        missing = {
            "unknown_platform": "platform",
            "invalid_project": "project_id",
            "missing_site": "client_id",
        }.get(refusal.code)
        if missing and not upload_request.get(missing):
            message = f"{refusal.message} Send the fields before the files."
            raise RequestRefused(refusal.status, refusal.code, message) from None
        raise


def _worst(statuses: list[int]) -> int:
    """One status for all refused files: a server error if there is one, as a retry may help; else the common one."""
    return max(statuses) if max(statuses) >= 500 or len(set(statuses)) == 1 else 422


def _deferred(received: Received) -> dict[str, Any]:
    """The fixed response when the file store is not available, plus the upload's id."""
    return {
        "status": "pending_retry",
        "queue_id": str(received.queue_id),
        "storage_status": "pending_retry",
        "upload_id": str(received.upload_id),
    }


def _to_json(received: Received, filename: str | None) -> dict[str, Any]:
    return {
        "upload_id": str(received.upload_id),
        "status": received.status.value,
        "duplicate": received.duplicate,
        "filename": filename,
        **({"reason": received.reason} if received.reason else {}),
        **({"storage_status": received.storage_status} if received.storage_status != "stored" else {}),
    }
