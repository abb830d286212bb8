"""Writes files atomically and durably: a file is complete or does not exist, even after a power failure."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from weighbridge.model.errors import RetryLater


def place(file: Path, target: Path, *, keep: bool = False) -> None:
    """Put the file's bytes under another name, mode 0600, synced to disk; no reader ever sees a partial file.

    The file is moved, or copied if it is to be kept or is on another file system.
    """
    made = make_folders(target.parent)
    if keep or not _moved(file, target):
        temporary = target.with_name(f".{uuid4().hex}")
        try:
            with private(temporary) as copy, file.open("rb") as source:
                shutil.copyfileobj(source, copy, 1 << 20)
            _to_disk(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        if not keep:
            file.unlink()
    for folder in {target.parent, *made}:
        sync_folder(folder)


def _moved(file: Path, target: Path) -> bool:
    """False: it is on another file system."""
    _to_disk(file)
    try:
        os.replace(file, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def private(path: Path) -> BinaryIO:
    """A new file that only the service may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and its parents; returns the folders that got a new entry."""
    changed = []
    for each in reversed([folder, *folder.parents]):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
            changed.append(each.parent)
    return changed


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(error: OSError) -> RetryLater:
    """The error of an upload whose bytes this machine could not write."""
    return RetryLater("connection", f"The file cannot be stored now: {error.strerror}. Try again later.")


def _to_disk(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
