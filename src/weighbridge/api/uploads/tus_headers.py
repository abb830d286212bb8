"""The headers of tus 1.0: version, metadata of a file, offset of the next bytes.

https://tus.io/protocols/resumable-upload
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weighbridge.api.uploads.fields import FIELDS, known, once
from weighbridge.model.errors import RequestRefused, did_you_mean
from weighbridge.observe.redact import quote_input
from weighbridge.uploads.resumable_append import ALGORITHMS, Checksum

VERSION = "1.0.0"
EXTENSIONS = "creation,checksum,expiration,termination"
PATH = "/api/files"
PART_TYPE = "application/offset+octet-stream"
_OVERRIDES = ("HEAD", "PATCH", "DELETE")
# Metadata names that common clients send.
_IGNORED = ("filetype", "type", "relativePath", "contentType", "size", "lastModified")

_DESCRIBED = {
    "Tus-Resumable": "The version of tus: 1.0.0.",
    "Upload-Length": "Size of the file in bytes.",
    "Upload-Metadata": "The fields of POST /api/uploads, separated by commas: name, space, value in base64.",
    "Upload-Offset": "Number of bytes of the file before this part.",
    "Upload-Checksum": "Algorithm (sha1, sha256, md5), space, checksum of this part in base64.",
}


def headers_in(*names: str) -> list[dict[str, Any]]:
    """The OpenAPI description of these headers."""
    return [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": _DESCRIBED[name]}
        for name in ("Tus-Resumable", *names)
    ]


class Tus:
    """Middleware for resumable uploads: adds the headers that every response needs, including errors."""

    def __init__(self, app: ASGIApp, max_size: int) -> None:
        self.app = app
        self.max_size = max_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == PATH or scope["path"].startswith(f"{PATH}/")):
            await self.app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("x-http-method-override", "").upper()
        if wanted in _OVERRIDES:  # for clients that cannot send PATCH; the route still checks the key
            scope["method"] = wanted

        async def spoken(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Tus-Resumable"] = VERSION
                headers["Cache-Control"] = "no-store"
                if message["status"] == 412:
                    headers["Tus-Version"] = VERSION
                if message["status"] == 413:
                    headers["Tus-Max-Size"] = str(self.max_size)
            await send(message)

        await self.app(scope, receive, spoken)


async def same_version(request: Request) -> None:
    """RequestRefused(412) for another version of tus, except with GET and OPTIONS."""
    header = request.headers.get("tus-resumable")
    if request.method not in ("GET", "OPTIONS") and header != VERSION:
        got = quote_input(header) if header else "none"
        raise RequestRefused(412, "unknown_version", f"Tus-Resumable: expected {VERSION}, got {got}.")


def length_of(request: Request) -> int:
    """Upload-Length of a creation request; RequestRefused if it needs an unsupported extension."""
    headers = request.headers
    for name, extension in (
        ("Upload-Defer-Length", "creation-defer-length"),
        ("Upload-Concat", "concatenation"),
    ):
        if name in headers:
            message = (
                f"{name}: the extension {extension} is not supported. Leave it out and send Upload-Length."
            )
            raise RequestRefused(400, "unsupported_extension", message)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        message = (
            "The body must be empty: the extension creation-with-upload is not supported. Send it with PATCH."
        )
        raise RequestRefused(400, "unsupported_extension", message)
    return _number(request, "Upload-Length")


def offset_of(request: Request) -> int:
    """Upload-Offset of a part; RequestRefused for a wrong content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != PART_TYPE:
        raise RequestRefused(415, "unsupported_media_type", f"Content-Type: expected {PART_TYPE}.")
    return _number(request, "Upload-Offset")


def _number(request: Request, name: str) -> int:
    header = request.headers.get(name)
    if header is None or not re.fullmatch(r"[0-9]{1,40}", header):
        got = quote_input(header) if header else "none"
        raise RequestRefused(400, "invalid_header", f"{name}: expected a number of bytes, got {got}.")
    return int(header)


def checksum_of(request: Request) -> Checksum | None:
    header = request.headers.get("upload-checksum")
    if header is None:
        return None
    algorithm, _, digest = header.partition(" ")
    if algorithm not in ALGORITHMS:
        hint = did_you_mean(algorithm, ALGORITHMS) or "."
        message = f"Upload-Checksum: expected {', '.join(ALGORITHMS)}, got {quote_input(algorithm)}{hint}"
        raise RequestRefused(400, "unknown_algorithm", message)
    try:
        return Checksum(algorithm, base64.b64decode(digest.strip(), validate=True))
    except binascii.Error:
        message = f"Upload-Checksum: expected an algorithm and base64, got {quote_input(header)}."
        raise RequestRefused(400, "invalid_header", message) from None


def fields_of(request: Request) -> dict[str, str]:
    """Upload-Metadata: the fields of POST /api/uploads, and the file's name."""
    fields: dict[str, str] = {}
    for pair in filter(
        None, (each.strip() for each in request.headers.get("upload-metadata", "").split(","))
    ):
        name, _, value = pair.partition(" ")
        once(name, fields)
        if name not in ("name", *_IGNORED):
            known(name)
        try:
            fields[name] = base64.b64decode(value.strip(), validate=True).decode()
        except ValueError:
            message = f"Upload-Metadata: {name}: expected UTF-8 as base64, got {quote_input(value)}."
            raise RequestRefused(400, "invalid_header", message) from None
    fields.setdefault("filename", fields.pop("name", ""))
    return {name: value for name, value in fields.items() if value and name in FIELDS}


def moment(at: datetime) -> str:
    """A date in the format of RFC 9110."""
    return format_datetime(at.astimezone(UTC), usegmt=True)
