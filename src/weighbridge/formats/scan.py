"""Called by delimited.py and headerless_list.py: UTF-8 bytes → records with their lines, and the unreadable lines.

Quotes follow RFC 4180: a quote at the beginning of a cell opens a quoted cell, `""` inside it stands for one quote, and
the cell ends after the closing quote. Spaces between a delimiter and a quote are removed. LF, CRLF or CR ends a record;
in a file with LF or CRLF, a lone CR ends a record only if complete records are before and after it
(stray_line_ends.py). A quote inside an unquoted cell, as in `5" pipe`, is text in a file that quotes no cell; in a file
that quotes cells, that cell should have been quoted, so the record is malformed.

A record is malformed if text follows a closing quote, if a quote is never closed, or if its quoted cells contain whole
records. Only its first physical line is rejected, and reading continues at the next line, so that no other record is
lost. If lines in quotes may be records or one cell, each of these lines is rejected.

Vectorised: if all quotes are in expected positions, they only alternate, and a line end is the end of a record if the
number of quotes before it is even. Only other chunks are scanned quote by quote (slow_scan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from weighbridge.formats.file_bytes import END_OF_FILE
from weighbridge.formats.invisible_characters import cut_character, visible
from weighbridge.formats.record_syntax import CR, LF, LONGEST_RECORD, Ints, RecordSyntax, ScanResult, too_long
from weighbridge.formats.slow_scan import SlowScan
from weighbridge.formats.stray_line_ends import without_stray_ends

CHUNK = 1 << 21

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Broken:
    """A physical line that cannot be read as a record; `code` is one of model.sheet.FAULTS."""

    place: int  # index among the records of its block
    code: str
    text: str


@dataclass(frozen=True)
class Block:
    """Records in the order of the file. `text` has the readable ones; `starts` are their positions in it."""

    text: bytes
    starts: Ints
    lines: Ints  # the line of every record, including the broken ones
    broken: list[Broken] = field(default_factory=list)
    invisible: int = 0  # invisible characters that were removed
    ends_line: bool = True  # a line end follows the last record


def blocks(file: BinaryIO, syntax: RecordSyntax, line: int) -> Iterator[Block]:
    """The records of the rest of the file. Its next byte begins a record on the given line.

    Refuses a physical line longer than LONGEST_RECORD.
    """
    rest, removed = b"", 0
    for chunk, invisible, final in _chunks(file):
        buffer, removed = rest + chunk if rest else chunk, removed + invisible
        found = scan(buffer, syntax, final=final)
        if len(found.ends):
            yield _block(buffer, found, line, removed)
            line, removed = line + int(np.searchsorted(found.line_ends, found.end)), 0
        rest = buffer[found.end :]
        if len(rest) > LONGEST_RECORD:
            raise too_long(line)


def scan(buffer: bytes, syntax: RecordSyntax, *, final: bool) -> ScanResult:
    """`final`: the file ends with the buffer."""
    found = _scan(buffer, syntax, final=final)
    if syntax.stray and bytes([syntax.stray]) in buffer:
        return without_stray_ends(buffer, found, syntax, final=final)
    return found


def _scan(buffer: bytes, syntax: RecordSyntax, *, final: bool) -> ScanResult:
    data = np.frombuffer(buffer, np.uint8)
    line_ends = line_ends_of(buffer, data)
    if syntax.quote not in buffer:
        return _plain(line_ends, line_ends + 1, len(buffer), final)
    quotes = np.flatnonzero(data == syntax.quote[0])
    if _all_in_place(quotes, data, syntax.delimiter):
        inside = np.searchsorted(quotes, line_ends) % 2 == 1
        suspicious = inside.any() and _has_records_inside(data, line_ends, inside, syntax)
        unclosed = len(quotes) % 2 == 1 and final
        found = _plain(line_ends, line_ends[~inside] + 1, len(buffer), final)
        longest = np.diff(found.ends, prepend=0, append=len(buffer)).max()
        if not suspicious and not unclosed and longest <= LONGEST_RECORD:
            return found
    slow = SlowScan(buffer, syntax, quotes.tolist(), line_ends.tolist(), final)
    end = slow.run()
    return ScanResult(slow.ends, end, line_ends, slow.broken, slow.cuts)


def line_ends_of(chunk: bytes, data: Bytes) -> Ints:
    """The position of the last byte of each physical line end."""
    feeds = data == LF
    if b"\r" in chunk:
        returns = data == CR
        returns[:-1] &= ~feeds[1:]
        feeds |= returns
    return np.flatnonzero(feeds)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The file in chunks. CR and LF of one line end are always in the same chunk."""
    held = b""
    while chunk := file.read(CHUNK):
        chunk = held + chunk
        held = b"\r" if chunk.endswith(b"\r") else b""
        if held:
            chunk = chunk[:-1]
        if chunk:
            yield chunk
    if held:
        yield held


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int, bool]]:
    """Chunks without invisible characters, the number of removed characters, and whether it is the last chunk."""
    held, before = b"", None
    for chunk in chunks(file):
        if before is not None:
            yield *before, False
        chunk = held + chunk
        held = b""
        if cut := cut_character(chunk):
            chunk, held = chunk[: -len(cut)], cut
        before = visible(chunk)
    if before is not None:
        text, removed = before
        yield END_OF_FILE.sub(b"", text + held), removed, True


def _plain(line_ends: Ints, ends: Ints, size: int, final: bool) -> ScanResult:
    whole = int(ends[-1]) if len(ends) else 0
    if final and whole < size:
        ends, whole = np.append(ends, size), size
    return ScanResult(ends, whole, line_ends)


def _all_in_place(quotes: Ints, data: Bytes, delimiter: int) -> bool:
    """Do quotes alternately open and close a cell, apart from doubled quotes?"""
    before, after = data[quotes - 1], data[np.minimum(quotes + 1, len(data) - 1)]
    if quotes[0] == 0:
        before[0] = LF
    if quotes[-1] == len(data) - 1:
        after[-1] = LF
    pairs = np.diff(quotes) == 1
    opening = (before == delimiter) | (before == LF) | (before == CR)
    opening[1:] |= pairs
    closing = (after == delimiter) | (after == LF) | (after == CR)
    closing[:-1] |= pairs
    return bool(opening[::2].all() and closing[1::2].all())


def _has_records_inside(
    data: Bytes, line_ends: Ints, inside: npt.NDArray[np.bool_], syntax: RecordSyntax
) -> bool:
    """May a quoted cell contain whole records? Then the slow scan checks each record of several lines."""
    if not syntax.width:
        return False
    delimiters = np.flatnonzero(data == syntax.delimiter)
    behind = np.searchsorted(delimiters, line_ends)
    counts = np.diff(behind, prepend=0)
    fitting = counts >= syntax.width - 1  # includes delimiters in quoted cells of the line
    continued = np.append(False, inside[:-1])  # the line begins inside quotes
    whole = continued & inside
    if (fitting & whole).any():
        return True
    return syntax.width > 1 and bool((fitting & (continued | inside)).any())


def _block(buffer: bytes, found: ScanResult, line: int, removed: int) -> Block:
    ends = np.asarray(found.ends, np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    ends_line = buffer[found.end - 1] in (LF, CR)
    if ends_line and len(ends) == np.searchsorted(found.line_ends, found.end):  # every line is a record
        lines = np.arange(line, line + len(ends))
    else:
        lines = np.searchsorted(found.line_ends, starts) + line
    sizes = ends - starts
    longest = int(sizes.argmax())
    if int(sizes[longest]) > LONGEST_RECORD:
        raise too_long(int(lines[longest]))
    if not found.broken and not found.cuts:
        return Block(buffer[: found.end], starts, lines, [], removed, ends_line)
    broken = [
        Broken(place, code, buffer[starts[place] : ends[place]].decode().rstrip("\r\n"))
        for place, code in found.broken
    ]
    dropped = [(int(starts[each.place]), int(ends[each.place])) for each in broken] + found.cuts
    kept = np.ones(found.end, np.bool_)
    for first, last in dropped:
        kept[first:last] = False
    text = np.frombuffer(buffer, np.uint8)[: found.end].copy()
    # After a line is removed, the CR before it and the LF after it must not become one line end.
    line_ends = ends - 1
    text[line_ends[text[line_ends] == CR]] = LF
    readable = np.delete(starts, [each.place for each in broken])
    moved = np.concatenate(([0], np.cumsum(kept)))
    return Block(text[kept].tobytes(), moved[readable], lines, broken, removed, ends_line)
