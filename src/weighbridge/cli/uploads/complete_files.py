"""A watched folder: which of its files are complete and new?

A file is complete when its size and modification time have not changed for `settle` seconds. File system
notifications are only hints: the folder is also polled, because some (network) file systems send none.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from weighbridge.cli.output import complain

_UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".crdownload", ".download", ".filepart", ".swp", "~")


@dataclass(frozen=True)
class _FileState:
    size: int
    changed: int
    inode: int


@dataclass
class Folder:
    path: Path
    settle: float = 1.0  # seconds without change after which a file is complete
    _waiting: dict[Path, tuple[_FileState, float]] = field(default_factory=dict)
    _taken: dict[Path, _FileState] = field(default_factory=dict)

    def ready(self) -> list[Path]:
        """Complete files that were not returned before in their current version, by name."""
        now = time.monotonic()
        there = self._scan()
        self._waiting = {path: seen for path, seen in self._waiting.items() if path in there}
        complete = []
        for path, state in sorted(there.items()):
            if self._taken.get(path) == state:
                continue
            before, since = self._waiting.get(path, (None, now))
            if before != state:
                self._waiting[path] = (state, now)
            elif now - since >= self.settle:
                del self._waiting[path]
                self._taken[path] = state
                complete.append(path)
        return complete

    def give_back(self, path: Path) -> None:
        """Return a file again next time: it could not be received."""
        self._taken.pop(path, None)

    @property
    def unsettled(self) -> bool:
        return bool(self._waiting)

    def _scan(self) -> dict[Path, _FileState]:
        found = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(".") or name.lower().endswith(_UNFINISHED) or not entry.is_file():
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # moved away since the listing
                found[Path(entry.path)] = _FileState(stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return found


def put_aside(file: Path, subfolder: str) -> Path:
    """Move a file into a subfolder of its folder, without overwriting another file, and return its new path.

    A file that cannot be moved stays in place: it was received, and is recognised by its content next time.
    """
    try:
        return _moved(file, file.parent / subfolder)
    except OSError as error:
        complain(f"{file.name} could not be moved to {subfolder}/ and stays in place: {error.strerror}.")
        return file


def _moved(file: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    number = 0
    while True:
        target = folder / (file.name if not number else f"{file.stem}.{number}{file.suffix}")
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))  # a rename alone would overwrite
        except FileExistsError:
            number += 1
            continue
        try:
            os.replace(file, target)
        except OSError:
            target.unlink()
            raise
        return target
