"""Under encoding.py: the bytes of a file in pieces, and the lines they are on."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 20
HEAD = 1 << 16


def chunks(path: Path, skip: int = 0) -> Iterator[bytes]:
    """The file in pieces, then b"" for the end."""
    with path.open("rb") as file:
        file.seek(skip)
        while chunk := file.read(CHUNK):
            yield chunk
    yield b""


def decode_head(head: bytes, encoding: str) -> str | None:
    """The beginning of a file, cut anywhere, as text; None if it is not in this encoding."""
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
    """Where these bytes first occur; -1 if nowhere."""
    offset, before = 0, b""
    for chunk in chunks(path):
        window = before + chunk
        if (found := window.find(sought)) >= 0:
            return offset - len(before) + found
        offset += len(chunk)
        before = window[-len(sought) + 1 :] if len(sought) > 1 else b""
    return -1


def cell_around(path: Path, offset: int, length: int, most: int) -> bytes:
    """The cell that contains these bytes, if it is short enough; otherwise only the bytes.

    It ends at a comma, semicolon, tab, quote or line end, none of which is half of a character in any encoding.
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
