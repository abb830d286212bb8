"""Files that wait on this machine: for a store that could not accept them, or for the rest of their bytes.

UPLOAD_QUEUE_DIR has a folder for each database, and the folder contains its own identity: a worker on another machine,
which cannot see its files, leaves their rows alone. Files have mode 0600, the folder 0700. A file without its row in
the database is of no use.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from uuid import UUID, uuid4

from weighbridge.model.errors import ConfigError, RetryLater
from weighbridge.storage import files

IDENTITY = "spool-id"
_HALF = re.compile(r"\.[0-9a-f]{32}")  # temporary names that files.place uses


class Spool:
    def __init__(self, root: Path, database: UUID) -> None:
        self._root = root
        self.folder = root / str(database)

    @cached_property
    def id(self) -> UUID:
        """The identity of the folder in the database; created if there is none. Raises ConfigError."""
        try:
            files.make_folders(self.folder)
            return _identity(self.folder / IDENTITY)
        except (OSError, ValueError) as error:
            reason = (
                error.strerror
                if isinstance(error, OSError)
                else f"its file {IDENTITY} was not written by Weighbridge"
            )
            raise ConfigError(
                f"UPLOAD_QUEUE_DIR: expected a folder where Weighbridge may write, got {self._root} ({reason})."
            ) from error

    def keep(self, queue_id: UUID, file: Path) -> Path:
        """Move a file here, synced to disk. On OSError or RetryLater it stays where it was."""
        self.look()
        os.utime(file)  # its age is the time since it was queued, not since its first byte
        target = self.path(queue_id)
        files.place(file, target)
        return target

    def path(self, queue_id: UUID) -> Path:
        return self.folder / str(queue_id)

    def drop(self, queue_id: UUID) -> None:
        self.path(queue_id).unlink(missing_ok=True)

    def look(self) -> None:
        """RetryLater if the folder is not the original one: files that are not in it are then not lost."""
        try:
            there = _read(self.folder / IDENTITY)
        except (OSError, ValueError):
            there = None
        if there != self.id:
            raise RetryLater(
                "connection",
                "The folder for waiting files is missing. Check that its disk is mounted; see UPLOAD_QUEUE_DIR.",
            )

    def waiting(self) -> Iterator[tuple[UUID, float]]:
        """The files that wait here, and their age in seconds by the machine's clock."""
        for path in self.folder.iterdir():
            try:
                yield UUID(path.name), time.time() - path.stat().st_mtime
            except (ValueError, FileNotFoundError):
                continue  # not a waiting file, or removed meanwhile

    def has_files(self) -> bool:
        """Whether any file waits. False if the folder is missing: the sweep reports that."""
        try:
            return next(self.waiting(), None) is not None
        except OSError:
            return False

    def leftovers(self) -> Iterator[tuple[Path, float]]:
        """Partial files of processes that were killed while copying, and their ages."""
        for path in self.folder.iterdir():
            if _HALF.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    yield path, time.time() - path.stat().st_mtime


def _identity(path: Path) -> UUID:
    """The identity of the folder in the database. A copy of the folder gets a new identity."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # one process creates the identity
        with suppress(FileNotFoundError):
            found = _read(path)
            if found is not None:
                return found
        temporary = path.with_name(f".{uuid4().hex}")
        try:
            with files.private(temporary) as file:
                file.write(f"{uuid4()} {os.fstat(file.fileno()).st_ino}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        os.fsync(folder)
    finally:
        os.close(folder)
    found = _read(path)
    assert found is not None
    return found


def _read(path: Path) -> UUID | None:
    """None: it was written for another inode, so the folder is a copy. ValueError: the file is not ours."""
    with path.open() as file:
        name, _, inode = file.read().partition(" ")
        return UUID(name) if int(inode) == os.fstat(file.fileno()).st_ino else None
