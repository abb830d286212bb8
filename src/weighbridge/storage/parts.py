"""Incomplete files of resumable uploads: one file each in `files` of the spool, appended to, truncated to what counts.

The writer of a file holds its lock, which ends with the process; after a kill -9 only the bytes beyond the recorded
offset need removing. The lock is on the file: other processes on this machine see it; other machines do not see the
file.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from weighbridge.storage import files
from weighbridge.storage.waiting_files import Spool


class PartLocked(Exception):
    """Another process writes the file."""


class PartialFile:
    """One incomplete file, locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        # A thread may still write after its request ended; it must not reach the next file.
        self._busy = threading.Lock()

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Truncate to this size and continue there."""
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, size, os.SEEK_SET)

    def write(self, data: bytes) -> None:
        with self._busy:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """The bytes are on disk when this returns."""
        os.fsync(self._descriptor)

    def link(self) -> Path:
        """Create a second name for the bytes, which may be moved or removed without changing this one."""
        other = self.path.with_name(f".{self.path.name}")
        other.unlink(missing_ok=True)  # left by a killed process
        os.link(self.path, other)
        return other

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.with_name(f".{self.path.name}").unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        with self._busy:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock(spool: Spool, id_: UUID, *, make: bool = False) -> PartialFile:
    """The file, locked until it is closed. Raises PartLocked, FileNotFoundError, another OSError, or RetryLater.

    With `make`, creates an empty file if there is none.
    """
    path = _folder(spool) / str(id_)
    while True:
        if make:
            spool.look()
            _make(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still_there(path, descriptor):
                return PartialFile(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise PartLocked from None
        os.close(descriptor)  # its holder has removed the file


def drop(spool: Spool, id_: UUID) -> None:
    """Remove leftovers of a killed process for a file that no longer exists."""
    (_folder(spool) / f".{id_}").unlink(missing_ok=True)


def ids(spool: Spool) -> Iterator[UUID]:
    """Ids of the files in the folder."""
    folder = _folder(spool)
    if folder.is_dir():
        for path in folder.iterdir():
            with suppress(ValueError):
                yield UUID(path.name.removeprefix("."))


def any_files(spool: Spool) -> bool:
    return next(ids(spool), None) is not None


def _folder(spool: Spool) -> Path:
    return spool.folder / "files"


def _make(path: Path) -> None:
    files.make_folders(path.parent)
    with suppress(FileExistsError):
        files.private(path).close()
        files.sync_folder(path.parent)


def _still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
