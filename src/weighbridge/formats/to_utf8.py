"""First step of reading: a file in any known encoding → a file of valid UTF-8 without NULs."""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weighbridge.formats.encoding_messages import (
    EncodingWarnings,
    has_nul,
    is_iso_2022_jp,
    is_utf8,
    other_byte_order_mark,
    undecodable,
    unknown_encoding,
)
from weighbridge.formats.file_bytes import HEAD, Utf8Check, chunks, decode_head, line_at
from weighbridge.model.encodings import ENCODINGS, codec_of

if TYPE_CHECKING:
    from weighbridge.formats.detect_encoding import Guess
    from weighbridge.formats.encoding_evidence import Words

__all__ = ["ENCODINGS", "HEAD", "Utf8File", "as_utf8", "codec_of", "codec_of_head", "decode_head", "utf16_of"]

# UTF-32 little endian begins with the byte order mark of UTF-16. It has many NULs, which are refused.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WORDS = 3000  # distinct words by which the encoding of a file is detected
_WORDS_OF_HEAD = 300  # the same for the first bytes of a file
_JAPANESE_7_BIT = (b"\x1b$@", b"\x1b$B", b"\x1b(J")  # ISO-2022-JP: pure ASCII to every other check


@dataclass(frozen=True)
class Utf8File:
    """Valid UTF-8 from byte `start` on; `encoding` is the codec of the stored file."""

    path: Path
    start: int
    encoding: str
    size: int = 0  # bytes of the stored file
    warnings: Mapping[str, str] = field(default_factory=dict)  # code → sentence


def as_utf8(path: Path, scratch: Path, encoding: str = "", *, show_cell: bool = True) -> Utf8File:
    """The file itself if it is UTF-8, otherwise a copy in `scratch`.

    Without an `encoding` the whole file is checked: a single byte that is not UTF-8, even the last one, means another
    encoding, which is detected from the words of the file (detect_encoding.py). If a second encoding remains possible,
    a warning shows a cell in both, or only the letters that differ if `show_cell` is False. A file that mixes
    encodings is refused, and so is a file whose two likeliest encodings are equally likely.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    mark, marked = next(((mark, codec) for mark, codec in _MARKS if head.startswith(mark)), (b"", ""))
    codec = _chosen(encoding, head, marked)
    findings = EncodingWarnings(path, show_cell, given=bool(encoding))
    if codec == "utf-8" or not codec:
        broken_at = _first_broken_byte(path, findings)
        if broken_at is None:
            name = "utf-8-sig" if mark else "utf-8"
            return Utf8File(path, len(mark), name, path.stat().st_size, findings.warnings())
        if codec:
            raise undecodable(path, broken_at, codec, findings.given)
        guess = _guess(chunks(path), _WORDS)
        findings.use_guess(guess, broken_at)
        codec = guess.codec
    elif not codec.startswith("utf-16"):
        _refuse_utf8(path, codec, encoding)
    copy = _transcode(path, codec, len(mark), scratch, findings)
    return Utf8File(copy, 0, codec, path.stat().st_size, findings.warnings())


def _refuse_utf8(path: Path, codec: str, encoding: str) -> None:
    """Refuse a named encoding for a file that is valid UTF-8 and more plausible as UTF-8.

    Nearly any bytes can be decoded in a single-byte encoding, so no other check would notice.
    """
    if _first_broken_byte(path, EncodingWarnings(path, show_cell=False)) is not None:
        return
    from weighbridge.formats.detect_encoding import reads_as_utf8

    if reads_as_utf8(_words(chunks(path), _WORDS), codec):
        raise is_utf8(encoding)


def _chosen(encoding: str, head: bytes, marked: str) -> str:
    """The codec that the sender names, or that of the byte order mark, or UTF-16 by its zeros; otherwise empty."""
    if not encoding:
        return marked or utf16_of(head) or ""
    codec = codec_of(encoding)
    if codec is None:
        raise unknown_encoding(encoding)
    if codec == "utf-16":
        codec = marked or utf16_of(head) or "utf-16-le"
        if codec == "utf-8":
            raise other_byte_order_mark(marked, encoding)
    if marked and marked != codec:
        raise other_byte_order_mark(marked, encoding)
    return codec


def codec_of_head(head: bytes, *, with_words: bool = True) -> str:
    """The codec of the first bytes of a file, cut anywhere. It may not be able to decode the rest of the file.

    `with_words=False`, for bytes that are not text: windows-1252 unless they are UTF-8 or UTF-16.
    """
    marked = next((codec for mark, codec in _MARKS if head.startswith(mark)), "")
    if found := marked or utf16_of(head):
        return found
    if decode_head(head, "utf-8") is not None:
        return "utf-8"
    return _guess([head[:-3]], _WORDS_OF_HEAD).codec if with_words else "cp1252"


def _guess(pieces: Iterable[bytes], limit: int) -> Guess:
    # Imported here: only a file that is not UTF-8 needs the letter statistics.
    from weighbridge.formats.detect_encoding import guess

    return guess(_words(pieces, limit))


def _words(pieces: Iterable[bytes], limit: int) -> Words:
    from weighbridge.formats.encoding_evidence import Words

    words = Words(limit)
    for piece in pieces:
        words.add(piece)
    words.add(b"")
    return words


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
        # Latin text has a zero in nearly every character. Chinese text has zeros only in delimiters and line
        # ends, but its other bytes are not UTF-8. An ordinary file with one stray NUL is neither.
        if zeros * 4 >= len(head) or ("\n" in text and decode_head(head, "utf-8") is None):
            return name
    return None


def _first_broken_byte(path: Path, findings: EncodingWarnings) -> int | None:
    """The offset of the first byte that is not UTF-8; None if there is none. Refuses NULs."""
    check = Utf8Check()
    offset = 0
    for chunk in chunks(path):
        if (zero := chunk.find(b"\0")) >= 0:
            raise has_nul(line_at(path, offset + zero, "utf-8"))
        if b"\x1b" in chunk and (found := [at for at in map(chunk.find, _JAPANESE_7_BIT) if at >= 0]):
            raise is_iso_2022_jp(path, offset + min(found))
        broken_at = check.broken_at(chunk)
        if broken_at is not None:
            return broken_at
        if not chunk.isascii():
            findings.inspect(chunk)
        offset += len(chunk)
    return None


def _transcode(path: Path, codec: str, skip: int, scratch: Path, findings: EncodingWarnings) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="utf-8-", dir=scratch)
    decoder = codecs.getincrementaldecoder(codec)()
    wide = codec.startswith("utf-16")
    offset = skip
    with os.fdopen(handle, "wb") as copy:
        for chunk in chunks(path, skip):
            held = len(decoder.getstate()[0])
            if not wide and (zero := chunk.find(b"\0")) >= 0:
                raise has_nul(line_at(path, offset + zero, "latin-1"))
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise undecodable(path, offset - held + error.start, codec, findings.given) from None
            if wide and "\0" in text:
                before = text[: text.index("\0")].encode(codec)
                raise has_nul(line_at(path, offset - held + len(before), codec))
            written = text.encode()
            findings.inspect(written)
            copy.write(written)
            offset += len(chunk)
    return Path(name)
