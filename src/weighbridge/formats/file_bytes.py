"""Called by to_utf8.py: reads the bytes of a file in chunks, and finds the line of a byte."""

from __future__ import annotations

import codecs
import io
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

CHUNK = 1 << 20
HEAD = 1 << 16
END_OF_FILE = re.compile(rb"\x1a[\x1a\s]*\Z")  # DOS programs write ^Z after the last line


def chunks(path: Path, skip: int = 0) -> Iterator[bytes]:
    """The file in chunks, then b"" for its end."""
    with path.open("rb") as file:
        file.seek(skip)
        while chunk := file.read(CHUNK):
            yield chunk
    yield b""


class Utf8Check:
    """Checks chunk by chunk whether a file is UTF-8. Arrow checks ten times as fast as Python decodes."""

    def __init__(self) -> None:
        self._held = b""  # the first bytes of a character that the last chunk cut
        self._offset = 0  # the position of these bytes in the file

    def broken_at(self, chunk: bytes) -> int | None:
        """The offset of the first byte that is not UTF-8; None while there is none. Pass b"" at the end of the file."""
        text = self._held + chunk if self._held else chunk
        whole = len(text) - _cut(text) if chunk else len(text)
        if not _is_utf8(text[:whole]):
            try:
                codecs.utf_8_decode(text, "strict", not chunk)
            except UnicodeDecodeError as error:
                return self._offset + error.start
        self._held = text[whole:]
        self._offset += whole
        return None


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    sizes = pa.py_buffer(struct.pack("=ii", 0, len(text)))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, sizes, pa.py_buffer(text)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _cut(text: bytes) -> int:
    """The number of bytes at the end that begin an incomplete character."""
    for count, byte in enumerate(reversed(text[-3:]), 1):
        if byte >= 0xC0:
            return count if count < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def decode_head(head: bytes, encoding: str) -> str | None:
    """The first bytes of a file, cut anywhere, as text; None if they are not in this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None


def line_at(path: Path, offset: int, encoding: str) -> int:
    """The 1-based physical line (LF, CRLF or CR) of a byte of the file."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=True)
    line = 1
    with path.open("rb") as file:
        while chunk := file.read(min(CHUNK, offset)):
            offset -= len(chunk)
            line += decoder.decode(chunk).count("\n")
    return line + decoder.decode(b"", final=True).count("\n")


def offset_of(path: Path, sought: bytes) -> int:
    """The offset at which these bytes first occur; -1 if they do not."""
    offset, before = 0, b""
    for chunk in chunks(path):
        window = before + chunk
        if (found := window.find(sought)) >= 0:
            return offset - len(before) + found
        offset += len(chunk)
        before = window[-len(sought) + 1 :] if len(sought) > 1 else b""
    return -1


def cell_around(path: Path, offset: int, length: int, most: int) -> bytes:
    """The cell that contains these bytes, if it has at most `most` bytes; otherwise only the given bytes.

    A cell ends at a comma, semicolon, tab, quote or line end: in no encoding is one of these half of a character.
    """
    start = max(0, offset - most)
    with path.open("rb") as file:
        file.seek(start)
        around = file.read(offset - start + length + most)
    begin, end = offset - start, offset - start + length
    left = max(around.rfind(mark, 0, begin) for mark in _CELL_ENDS)
    rights = [at for mark in _CELL_ENDS if (at := around.find(mark, end)) >= 0]
    right = min(rights, default=len(around))
    whole = (left >= 0 or start == 0) and (rights or len(around) < offset - start + length + most)
    cell = around[left + 1 : right]
    return cell if whole and len(cell) <= most else around[begin:end]


_CELL_ENDS = (b",", b";", b"\t", b'"', b"\r", b"\n")
