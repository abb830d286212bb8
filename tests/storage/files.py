"""A tus client of a few lines, which says exactly what a test wants said."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import httpx

VERSION = {"Tus-Resumable": "1.0.0"}
PART = {"Content-Type": "application/offset+octet-stream"}


def bytes_of(home: Path, name: object = "") -> Path:
    """The bytes of a file that is under way, or the folder of all of them."""
    return next(home.glob(f"queue/*/files/{name}".rstrip("/")))


def metadata(**fields: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in fields.items())


@dataclass(frozen=True)
class Sender:
    """Somebody with a key."""

    client: httpx.AsyncClient
    key: dict[str, str]

    async def create(self, length: int | None, said: str | None = None, **headers: str) -> httpx.Response:
        """`POST /api/files`; a Meta export unless told otherwise."""
        said = metadata(platform="meta", filename="a.csv") if said is None else said
        sized = {} if length is None else {"Upload-Length": str(length)}
        named = {"Upload-Metadata": said} if said else {}
        return await self.client.post(
            "/api/files", headers={**self.key, **VERSION, **sized, **named, **headers}
        )

    async def begin(self, length: int, **fields: str) -> File:
        answer = await self.create(length, metadata(**{"platform": "meta", "filename": "a.csv", **fields}))
        assert answer.status_code == 201, answer.text
        return File(self, answer.headers["location"])

    async def send(self, content: bytes, **fields: str) -> httpx.Response:
        """All of a file at once."""
        file = await self.begin(len(content), **fields)
        return await file.patch(content, 0)


@dataclass(frozen=True)
class File:
    """One that is under way."""

    sender: Sender
    url: str

    @property
    def id(self) -> UUID:
        return UUID(self.url.rpartition("/")[2])

    def of(self, key: dict[str, str]) -> File:
        """The same, in other hands."""
        return File(Sender(self.sender.client, key), self.url)

    async def patch(
        self, content: bytes | AsyncIterator[bytes], offset: int, **headers: str
    ) -> httpx.Response:
        return await self.ask("PATCH", content, **{"Upload-Offset": str(offset), **PART, **headers})

    async def ask(
        self, method: str, content: bytes | AsyncIterator[bytes] | None = None, **headers: str
    ) -> httpx.Response:
        return await self.sender.client.request(
            method, self.url, content=content, headers={**self.sender.key, **VERSION, **headers}
        )

    async def offset(self) -> int:
        answer = await self.ask("HEAD")
        assert answer.status_code == 200, answer.status_code
        return int(answer.headers["upload-offset"])
