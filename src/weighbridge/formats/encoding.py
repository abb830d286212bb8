"""First in reading a file: bytes in any encoding that we know → a file of valid UTF-8 without NULs."""

from __future__ import annotations

import codecs
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weighbridge.model.errors import FileRefused

CHUNK = 1 << 20
HEAD = 1 << 16
_FOREIGN = bytes(range(0x80, 0x100))
_ASCII_TO_SPACE = bytes(byte if byte >= 0x80 else 0x20 for byte in range(256))


@dataclass(frozen=True)
class Utf8File:
    """Valid UTF-8 from byte `start` on; `encoding` is what the stored file had."""

    path: Path
    start: int
    encoding: str
    warnings: Mapping[str, str] = field(default_factory=dict)  # what was assumed: code → sentence


def as_utf8(path: Path, scratch: Path, encoding: str = "") -> Utf8File:
    """The file itself where it is UTF-8, otherwise a copy in `scratch`.

    The whole file decides: one byte that is not UTF-8, even the last, makes it Windows-1252. Nearly every
    file can be read as that, so two kinds are refused rather than garbled without a word: one whose other
    non-ASCII text is mostly UTF-8 (it is damaged), and one with whole words of non-ASCII letters (it is
    Russian, Greek or Chinese in an encoding of its own).
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if utf16 := utf16_of(head):
        marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return Utf8File(_transcode(path, utf16, 2 if marked else 0, scratch), 0, utf16)
    broken_at = _first_broken_byte(path)
    if head.startswith(codecs.BOM_UTF8):
        if broken_at is not None:
            raise _undecodable(path, broken_at, "utf-8")
        return Utf8File(path, len(codecs.BOM_UTF8), "utf-8-sig")
    if broken_at is None:
        return Utf8File(path, 0, "utf-8")
    _refuse_garble(path, broken_at)
    return Utf8File(_transcode(path, "cp1252", 0, scratch), 0, "cp1252")


def utf16_of(head: bytes) -> str | None:
    """`utf-16-le` or `utf-16-be`, by its byte order mark or by zeros in every other byte."""
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    even, odd = head[0::2].count(0), head[1::2].count(0)
    for name, zeros, strays in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        text = decode_head(head, name) if zeros > 2 * strays else None
        if text is None:
            continue
        # Latin text has a zero in nearly every character; Chinese only in delimiters and line ends, but
        # then its other bytes are no UTF-8. One stray NUL in an ordinary file is neither.
        if zeros * 4 >= len(head) or ("\n" in text and decode_head(head, "utf-8") is None):
            return name
    return None


def decode_head(head: bytes, encoding: str) -> str | None:
    """The beginning of a file, cut anywhere, as text; None if it is not in this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None


def _first_broken_byte(path: Path) -> int | None:
    """Where the file stops being UTF-8, None if nowhere. Refuses NULs on the way."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    for chunk in _chunks(path):
        if (nul := chunk.find(b"\0")) >= 0:
            raise _nul(line_at(path, offset + nul, "utf-8"))
        held = len(decoder.getstate()[0])  # the beginning of a character that the last chunk cut
        if held or not chunk or not chunk.isascii():
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                return offset - held + error.start
        offset += len(chunk)
    return None


def _refuse_garble(path: Path, broken_at: int) -> None:
    """Before a file that is not UTF-8 is taken for Windows-1252: does its non-ASCII text look like it?"""
    words = long = sound = broken = 0
    held = b""  # a word that the chunk cuts
    for chunk in _chunks(path):
        whole = (held + chunk).rstrip(_FOREIGN) if chunk else held
        held = (held + chunk)[len(whole) :]
        foreign = whole.translate(_ASCII_TO_SPACE).split()
        text = b" ".join(foreign).decode("utf-8", "replace")
        words += len(foreign)
        long += sum(len(word) >= 4 for word in foreign)
        bad = text.count("\ufffd")
        broken += bad
        sound += len(text) - text.count(" ") - bad
    if sound > broken:  # hardly ever by chance
        raise _undecodable(path, broken_at, "utf-8")
    if long * 2 > words:  # Western accents stand between plain letters; four in a row are another alphabet
        raise _undecodable(path, broken_at, "cp1252")


def _transcode(path: Path, encoding: str, skip: int, scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="utf-8-", dir=scratch)
    decoder = codecs.getincrementaldecoder(encoding)()
    offset = skip
    with os.fdopen(handle, "wb") as copy:
        for chunk in _chunks(path, skip):
            held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise _undecodable(path, offset - held + error.start, encoding) from None
            if "\0" in text:
                before = text[: text.index("\0")].encode(encoding)
                raise _nul(line_at(path, offset - held + len(before), encoding))
            copy.write(text.encode())
            offset += len(chunk)
    return Path(name)


def _chunks(path: Path, skip: int = 0) -> Iterator[bytes]:
    """The file in pieces, then b"" for the end."""
    with path.open("rb") as file:
        file.seek(skip)
        while chunk := file.read(CHUNK):
            yield chunk
    yield b""


def line_at(path: Path, offset: int, encoding: str) -> int:
    """The 1-based physical line (LF, CRLF or CR) of a byte of the file."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=True)
    line = 1
    with path.open("rb") as file:
        while chunk := file.read(min(CHUNK, offset)):
            offset -= len(chunk)
            line += decoder.decode(chunk).count("\n")
    return line + decoder.decode(b"", final=True).count("\n")


def _nul(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file", f"Line {line} has a NUL character. Export the file again as plain text."
    )


def _undecodable(path: Path, offset: int, encoding: str) -> FileRefused:
    spoken = {"utf-8": "UTF-8", "cp1252": "UTF-8 or Windows-1252"}.get(encoding, "UTF-16")
    return FileRefused(
        "bad_encoding",
        f"Line {line_at(path, offset, encoding)} cannot be read as {spoken}. Save the file as UTF-8.",
    )
