"""What a store of blobs does, whatever it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from uuid import UUID


class BlobMissing(Exception):
    """The store has no such blob."""


class Blobs(Protocol):
    """Blobs are written once under a key made of workspace, date and content hash, and never changed."""

    async def put(self, key: str, file: Path) -> str:
        """Store a local file, streaming, and return the file_url that names it from now on. The file may be moved away.

        Raises RetryLater when the store cannot take it now.
        """
        ...

    async def fetch(self, file_url: str, scratch: Path) -> Path:
        """A local path with the blob's bytes: the blob itself where it is local, else a copy in `scratch`.

        Raises BlobMissing, or RetryLater("connection" or "rate_limit") when the store cannot give it now.
        """
        ...

    async def remove(self, workspace_id: UUID) -> None:
        """Everything that a workspace has stored. Not part of the flow, which removes no blob: for operators' tools.

        Raises RetryLater when the store cannot do it now.
        """
        ...

    @property
    def folder(self) -> Path | None:
        """Where the blobs lie on this machine, if they lie in a folder."""
        ...
