"""Files that wait on this machine: for a store that could not take them, or for the rest of their bytes (S5).

UPLOAD_QUEUE_DIR has a folder for each database, and that folder knows who it is: a worker on another machine, which
cannot see its files, leaves them alone. Files are 0600, the folder 0700; nothing in it is worth anything without its
row in the database.
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
_HALF = re.compile(r"\.[0-9a-f]{32}")  # as files.place calls them


class Spool:
    def __init__(self, root: Path, database: UUID) -> None:
        self._root = root
        self.folder = root / str(database)

    @cached_property
    def id(self) -> UUID:
        """What the folder is called in the database; it is made where there is none. Raises ConfigError."""
        try:
            files.make_folders(self.folder)
            return _identity(self.folder / IDENTITY)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else f"{IDENTITY} in it is not one of ours"
            raise ConfigError(
                f"UPLOAD_QUEUE_DIR: expected a folder where Weighbridge may write, got {self._root} ({reason})."
            ) from error

    def keep(self, queue_id: UUID, file: Path) -> Path:
        """Move a file here, on the disk when this returns. OSError or RetryLater: it stays where it was."""
        self.look()
        os.utime(file)  # its age is how long it has waited, not how long it took to come
        target = self.path(queue_id)
        files.place(file, target)
        return target

    def path(self, queue_id: UUID) -> Path:
        return self.folder / str(queue_id)

    def drop(self, queue_id: UUID) -> None:
        self.path(queue_id).unlink(missing_ok=True)

    def look(self) -> None:
        """RetryLater where the folder is not the one that it was: what is not in it then is not lost."""
        try:
            there = _read(self.folder / IDENTITY)
        except (OSError, ValueError):
            there = None
        if there != self.id:
            raise RetryLater(
                "connection",
                "The folder where files wait is not there. Is its disk mounted? See UPLOAD_QUEUE_DIR.",
            )

    def waiting(self) -> Iterator[tuple[UUID, float]]:
        """The files that wait here, and for how many seconds by the machine's own clock."""
        for path in self.folder.iterdir():
            try:
                yield UUID(path.name), time.time() - path.stat().st_mtime
            except (ValueError, FileNotFoundError):
                continue  # not one of them, or gone meanwhile

    def has_files(self) -> bool:
        """Does any wait? Not where the folder is away: the sweep says so."""
        try:
            return next(self.waiting(), None) is not None
        except OSError:
            return False

    def leftovers(self) -> Iterator[tuple[Path, float]]:
        """Halves of files, from processes that were killed while they copied, and their ages."""
        for path in self.folder.iterdir():
            if _HALF.fullmatch(path.name):
                with suppress(FileNotFoundError):
                    yield path, time.time() - path.stat().st_mtime


def _identity(path: Path) -> UUID:
    """What the folder is called in the database. A copy of it is another folder: it gets a name of its own."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # one process gives the name
        with suppress(FileNotFoundError):
            found = _read(path)
            if found is not None:
                return found
        beside = path.with_name(f".{uuid4().hex}")
        try:
            with files.private(beside) as file:
                file.write(f"{uuid4()} {os.fstat(file.fileno()).st_ino}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        os.fsync(folder)
    finally:
        os.close(folder)
    found = _read(path)
    assert found is not None
    return found


def _read(path: Path) -> UUID | None:
    """None: it was written for another file than this one, so the folder is a copy. ValueError: it is not ours."""
    with path.open() as file:
        name, _, inode = file.read().partition(" ")
        return UUID(name) if int(inode) == os.fstat(file.fileno()).st_ino else None
