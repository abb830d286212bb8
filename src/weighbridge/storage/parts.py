"""Files that are still coming: one each in `files` of the spool, written at their end and cut back to what counts.

Whoever writes one holds its lock, which dies with the process; nothing here needs cleaning up after a kill -9 but the
bytes that nobody has noted. The lock is the file's own: another process on this machine sees it, another machine does
not see the file.
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
from weighbridge.storage.spool import Spool


class PartHeld(Exception):
    """Somebody else writes it."""


class Part:
    """One such file, held."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._busy = (
            threading.Lock()
        )  # a thread that still writes when its request is ended must not meet the next file

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def cut(self, size: int) -> None:
        """Drop what is behind so many bytes, and go on there."""
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, size, os.SEEK_SET)

    def write(self, data: bytes) -> None:
        with self._busy:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """On the disk when this returns."""
        os.fsync(self._descriptor)

    def link(self) -> Path:
        """The same bytes under another name, which may be moved away or removed; this one stays."""
        other = self.path.with_name(f".{self.path.name}")
        other.unlink(missing_ok=True)  # of a process that was killed
        os.link(self.path, other)
        return other

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.with_name(f".{self.path.name}").unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it."""
        with self._busy:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold(spool: Spool, id_: UUID, *, make: bool = False) -> Part:
    """The file, held until it is closed. Raises PartHeld, FileNotFoundError, another OSError, or RetryLater.

    With `make` an empty one where there is none.
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
                return Part(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise PartHeld from None
        os.close(descriptor)  # whoever held it has removed it


def drop(spool: Spool, id_: UUID) -> None:
    """Remove what a killed process left of a file that is gone itself."""
    (_folder(spool) / f".{id_}").unlink(missing_ok=True)


def lying(spool: Spool) -> Iterator[UUID]:
    """What lies there."""
    folder = _folder(spool)
    if folder.is_dir():
        for path in folder.iterdir():
            with suppress(ValueError):
                yield UUID(path.name.removeprefix("."))


def any_lying(spool: Spool) -> bool:
    return next(lying(spool), None) is not None


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
