"""Called by the JSON reader: opens the file without its byte order mark and without a trailing ^Z of DOS."""

from __future__ import annotations

import io
from typing import BinaryIO, TextIO, cast

from weighbridge.formats.file_bytes import END_OF_FILE
from weighbridge.formats.to_utf8 import Utf8File

_TAIL = 1 << 16  # last bytes that are searched for ^Z
_BUFFER = 1 << 16


def open_text(text: Utf8File) -> TextIO:
    """Text with LF for every line end. JSON strings contain no raw line ends, so no value changes."""
    return io.TextIOWrapper(open_bytes(text), encoding="utf-8", newline=None)


def open_bytes(text: Utf8File) -> BinaryIO:
    file = text.path.open("rb")
    size = file.seek(0, io.SEEK_END)
    tail_start = file.seek(max(text.start, size - _TAIL))
    mark = END_OF_FILE.search(file.read())
    file.seek(text.start)
    if not mark:
        return file
    part = _Part(file, tail_start + mark.start() - text.start)
    return cast("BinaryIO", io.BufferedReader(part, _BUFFER))


class _Part(io.RawIOBase):
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._file.read(min(len(buffer), self._left))
        self._left -= len(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()
