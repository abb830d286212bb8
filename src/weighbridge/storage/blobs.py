"""The interface of a file store. store.py implements it for a folder and for S3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from uuid import UUID


class BlobMissing(Exception):
    """The store has no such blob."""


class Blobs(Protocol):
    """Blobs are written once under a key made of workspace, date and content hash, and never changed."""

    async def put(self, key: str, file: Path, *, keep: bool = False) -> str:
        """Store a local file, streaming, and return the file_url that names it from now on.

        The file is moved away unless `keep` is set. There is one attempt.

        Raises RetryLater if the store cannot accept it now.
        """
        ...

    async def fetch(self, file_url: str, scratch: Path) -> Path:
        """A local path with the blob's bytes: the blob itself if the store is local, else a copy in `scratch`.

        Raises BlobMissing, or RetryLater("connection" or "rate_limit") if the store cannot deliver it now.
        """
        ...

    async def digest(self, key: str) -> bytes:
        """The SHA-256 of the blob, read completely. Raises as `fetch`."""
        ...

    def listing(self, workspace_id: UUID | None = None) -> AsyncIterator[tuple[str, int]]:
        """Key and size of every blob, or of those of one workspace. Raises RetryLater."""
        ...

    async def delete(self, key: str) -> None:
        """Remove one blob; a blob that does not exist counts as removed. Raises RetryLater."""
        ...

    async def remove(self, workspace_id: UUID) -> None:
        """Remove all blobs of a workspace. Not part of the flow: for operators' tools.

        Raises RetryLater if the store cannot do it now.
        """
        ...

    @property
    def bucket(self) -> str:
        """The name of the store in metrics, logs and `upload_queue`: the bucket's name, or "local"."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder with the blobs, if the store is a folder on this machine."""
        ...
