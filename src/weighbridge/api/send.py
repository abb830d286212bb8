"""`POST /api/uploads`: files in a form, or one file as the body, straight into intake.

All files of a request are spooled before the first is recorded: a request that is refused, or breaks off,
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from python_multipart.multipart import parse_options_header

from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.describe import SEND_BODY, SEND_PARAMETERS, SEND_RESPONSES
from weighbridge.api.multipart import Part, malformed, parts
from weighbridge.app import App
from weighbridge.db.keys import ApiKey
from weighbridge.model.errors import RequestRefused, RetryLater, did_you_mean
from weighbridge.observe.redact import said_back
from weighbridge.steps import receive
from weighbridge.steps import request as steps_request
from weighbridge.steps.receive import Received, Spooled
from weighbridge.steps.request import Checked

router = APIRouter(tags=["uploads"])

FIELDS = (
    "workspace_id", "client_id", "platform", "source", "pipeline", "created_by", "force_partial", "force",
    "filename", "source_batch_id", "project_id",
)  # fmt: skip
RAW_TYPES = (
    "text/csv", "text/plain", "application/json", "application/x-ndjson", "application/octet-stream",
)  # fmt: skip
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")


@router.post(
    "/api/uploads",
    status_code=201,
    response_class=JSONResponse,
    response_model=None,
    responses=SEND_RESPONSES,
    openapi_extra={"requestBody": SEND_BODY, "parameters": SEND_PARAMETERS, "security": SECURITY},
)
@needs("upload")
async def send_files(request: Request, key: Key, app: TheApp) -> JSONResponse:
    """Hand over files. Fields come before the files and apply to all of them."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    intake = _Intake(app, key)
    for name, value in request.query_params.multi_items():
        intake.note(name, value)
    with contextlib.ExitStack() as held:
        held.callback(intake.discard)
        if kind == b"multipart/form-data":
            if not options.get(b"boundary"):
                raise malformed("its boundary is missing in the header Content-Type")
            async for part in parts(_body(request, app), options[b"boundary"]):
                await intake.take(part)
        elif kind.decode("latin-1") in RAW_TYPES:
            await intake.take_raw(request)
        else:
            expected = f"multipart/form-data, or one file as {', '.join(RAW_TYPES)}"
            raise RequestRefused(415, "unsupported_media_type", f"Content-Type: expected {expected}.")
        return await intake.answer()


async def _body(request: Request, app: App) -> AsyncIterator[bytes]:
    """The body as it comes. Whoever falls silent is not waited for: senders that hang would take every connection."""
    patience = app.settings.sender_seconds
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(patience):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            message = f"Nothing came for {patience:g} seconds. Nothing was stored; send the files again."
            raise RequestRefused(408, "sender_silent", message) from None
        yield chunk


@dataclass
class _Intake:
    """One request: its fields, then its files."""

    app: App
    key: ApiKey
    fields: dict[str, str] = field(default_factory=dict)
    checked: Checked | None = None
    files: list[tuple[str | None, Spooled | RequestRefused]] = field(default_factory=list)

    async def take(self, part: Part) -> None:
        if part.filename is not None:
            with _fields_first(self.fields):
                self._checked()
            await self._spool(part.chunks(), self.fields.get("filename") or part.filename, part.size)
        elif part.name == "file":
            message = (
                "file: expected a file, got a field: it lacks a file name. In curl: -F file=@report.csv."
            )
            raise RequestRefused(422, "missing_filename", message)
        elif self.files:
            message = (
                f"The field {said_back(part.name)} came after a file. Send the fields first, then the files."
            )
            raise RequestRefused(422, "field_after_file", message)
        else:
            self._known(part.name)
            self.note(part.name, await part.text())

    def note(self, name: str, value: str) -> None:
        """A field of the form or of the query."""
        if name in self.fields:
            shown = name if name in FIELDS else said_back(name)
            raise RequestRefused(422, "repeated_field", f"{shown}: expected once, got more than once.")
        self.fields[name] = value

    async def take_raw(self, request: Request) -> None:
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else None
        await self._spool(_body(request, self.app), self.fields.get("filename"), size)

    async def _spool(self, chunks: AsyncIterator[bytes], filename: str | None, size: int | None) -> None:
        limit = self.app.ctx.limits.max_upload_bytes
        checked = self._checked()
        receive.refuse_large(size or 0, limit)
        name = receive.tidy_name(filename)
        try:
            self.files.append((name, await receive.spool(self.app.ctx, checked, chunks, filename)))
        except RequestRefused as refusal:
            if refusal.status in (400, 408, 413):
                raise  # it ends the request: the rest cannot be read, or there is no telling how much it is
            self.files.append((name, refusal))
            left = limit
            async for chunk in chunks:  # on to the next file
                left -= len(chunk)
                receive.refuse_large(limit - left, limit)

    def _checked(self) -> Checked:
        """The request in our terms, known when the first file begins."""
        if self.checked is None:
            for name in self.fields:
                self._known(name)
            said: dict[str, Any] = {n: v for n, v in self.fields.items() if v and not n.startswith("force")}
            said.setdefault("workspace_id", self.key.workspace_id)
            said.setdefault("source", "api")
            said.pop("filename", None)
            said |= {name: self._flag(name) for name in ("force_partial", "force")}
            checked = steps_request.check(self.app.ctx, steps_request.Request(**said))
            if checked.workspace_id != self.key.workspace_id:
                raise RequestRefused(403, "wrong_workspace", "This key is another workspace's.")
            self.checked = checked
        return self.checked

    def _known(self, name: str) -> None:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS) or "; a file needs a file name."
            raise RequestRefused(422, "unknown_field", f"{said_back(name)} is not a field{hint}")

    def _flag(self, name: str) -> bool:
        value = self.fields.get(name, "")
        if value.lower() not in _YES + _NO:
            raise RequestRefused(
                422, "invalid_field", f"{name}: expected true or false, got {said_back(value)}."
            )
        return value.lower() in _YES

    async def answer(self) -> JSONResponse:
        """Record what was spooled and say what became of each file."""
        if not self.files:
            raise RequestRefused(422, "missing_file", "file: expected at least one file, got none.")
        if len(self.files) == 1:
            found = self.files[0][1]
            if isinstance(found, RequestRefused):
                raise found
            received = await self._record(found)
            return JSONResponse(_told(received, found.filename), 200 if received.duplicate else 201)
        told: list[dict[str, Any]] = []
        for name, found in self.files:
            try:
                if isinstance(found, RequestRefused):
                    raise found
                told.append(_told(await self._record(found), found.filename))
            except (RequestRefused, RetryLater) as error:
                code = error.code if isinstance(error, RequestRefused) else "unavailable"
                told.append({"filename": name, "error": code, "message": error.message})
        refused = sum("error" in each for each in told)
        if refused == len(told):
            message = f"None of the {len(told)} files was accepted."
            return JSONResponse({"error": "nothing_accepted", "message": message, "uploads": told}, 422)
        return JSONResponse({"uploads": told}, 207 if refused else 201)

    async def _record(self, spooled: Spooled) -> Received:
        return await receive.record(self.app.ctx, self._checked(), spooled)

    def discard(self) -> None:
        for _, found in self.files:
            if isinstance(found, Spooled):
                found.discard()


@contextlib.contextmanager
def _fields_first(fields: dict[str, str]) -> Iterator[None]:
    """A form whose files begin before a field that we need: the field may well be on its way."""
    try:
        yield
    except RequestRefused as refusal:
        missing = {"unknown_platform": "platform", "invalid_project": "project_id"}.get(refusal.code)
        if missing and not fields.get(missing):
            message = f"{refusal.message} Fields come before files."
            raise RequestRefused(refusal.status, refusal.code, message) from None
        raise


def _told(received: Received, filename: str | None) -> dict[str, Any]:
    return {
        "upload_id": str(received.upload_id),
        "status": received.status.value,
        "duplicate": received.duplicate,
        "filename": filename,
        **({"reason": received.reason} if received.reason else {}),
    }
