"""Beside the flow, which writes blobs and never removes one: what operators' tools need of a store."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from uuid import UUID

from weighbridge.blobs.base import Blobs
from weighbridge.blobs.store import BucketStore, FolderStore, _bucket_trouble, _folder_trouble


def folder_of(blobs: Blobs) -> Path | None:
    """The folder in which the blobs lie, if they lie in one."""
    return blobs._root if isinstance(blobs, FolderStore) else None


async def remove(blobs: Blobs, workspace_id: UUID) -> None:
    """Everything that a workspace has stored. RetryLater where the store cannot do it now."""
    match blobs:
        case FolderStore():
            folder = blobs._root / str(workspace_id)
            with _folder_trouble(blobs._root):
                if await asyncio.to_thread(folder.is_dir):
                    await asyncio.to_thread(shutil.rmtree, folder)
        case BucketStore():
            with _bucket_trouble():
                async for page in blobs._store.list(prefix=f"{workspace_id}/"):
                    await blobs._store.delete_async([found["path"] for found in page])
        case _:
            raise TypeError(f"blobs: expected a folder or a bucket, got {type(blobs).__name__}")
