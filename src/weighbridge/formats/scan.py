"""Under the CSV reader: UTF-8 bytes → whole records with their lines, and the lines that cannot be read.

Quotes are read by RFC 4180: a quote opens a quoted cell where the cell begins, `""` inside stands for one quote, and
after the closing quote the cell ends. Spaces between a delimiter and a quote are dropped. LF, CRLF or CR ends a record;
in a file with LF or CRLF a lone CR does only where whole records stand before and after it (line_ends.py).
A quote inside an unquoted cell, as in `5" pipe`, is text in a file that quotes no cell; in one that does, its writer
would have quoted that cell, and the record is damaged.

A record is malformed if text follows a closing quote, if a quote is never closed, or if its quoted cells contain whole
records. Only its first physical line is given up; reading continues at the next line, so that nothing is swallowed.
Where lines in quotes may be records or one cell, each of these lines is given up.

Vectorised: where every quote stands where it may, quotes simply toggle, and a line end is the end of a record if an
even number of quotes precedes it. Only a chunk where that does not hold is walked quote by quote (walk.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from weighbridge.formats.invisible import cut_character, visible
from weighbridge.formats.line_ends import without_stray_ends
from weighbridge.formats.rawbytes import END_OF_FILE
from weighbridge.formats.record_rules import CR, LF, LONGEST_RECORD, Ints, Rules, Scan, too_long
from weighbridge.formats.walk import Walk

CHUNK = 1 << 21

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Broken:
    """A physical line that cannot be read as a record; `code` is one of model.sheet.FAULTS."""

    place: int  # among the records of its block
    code: str
    text: str


@dataclass(frozen=True)
class Block:
    """Records in the order of the file. `text` holds those that can be read, and `starts` where each begins in it."""

    text: bytes
    starts: Ints
    lines: Ints  # the line of every record, the broken ones included
    broken: list[Broken] = field(default_factory=list)
    invisible: int = 0  # characters that were removed
    ends_line: bool = True  # a line end follows its last record


def blocks(file: BinaryIO, rules: Rules, line: int) -> Iterator[Block]:
    """The rest of the file, of which the next byte begins a record on the given line.

    Refuses a physical line longer than LONGEST_RECORD.
    """
    rest, removed = b"", 0
    for chunk, invisible, final in _chunks(file):
        buffer, removed = rest + chunk if rest else chunk, removed + invisible
        found = scan(buffer, rules, final=final)
        if len(found.ends):
            yield _block(buffer, found, line, removed)
            line, removed = line + int(np.searchsorted(found.line_ends, found.end)), 0
        rest = buffer[found.end :]
        if len(rest) > LONGEST_RECORD:
            raise too_long(line)


def scan(buffer: bytes, rules: Rules, *, final: bool) -> Scan:
    """`final`: the file ends with the buffer."""
    found = _scan(buffer, rules, final=final)
    if rules.stray and bytes([rules.stray]) in buffer:
        return without_stray_ends(buffer, found, rules, final=final)
    return found


def _scan(buffer: bytes, rules: Rules, *, final: bool) -> Scan:
    data = np.frombuffer(buffer, np.uint8)
    line_ends = line_ends_of(buffer, data)
    if rules.quote not in buffer:
        return _plain(line_ends, line_ends + 1, len(buffer), final)
    quotes = np.flatnonzero(data == rules.quote[0])
    if _all_in_place(quotes, data, rules.delimiter):
        inside = np.searchsorted(quotes, line_ends) % 2 == 1
        suspicious = inside.any() and _has_records_inside(data, line_ends, inside, rules)
        unclosed = len(quotes) % 2 == 1 and final
        found = _plain(line_ends, line_ends[~inside] + 1, len(buffer), final)
        longest = np.diff(found.ends, prepend=0, append=len(buffer)).max()
        if not suspicious and not unclosed and longest <= LONGEST_RECORD:
            return found
    walk = Walk(buffer, rules, quotes.tolist(), line_ends.tolist(), final)
    end = walk.run()
    return Scan(walk.ends, end, line_ends, walk.broken, walk.cuts)


def line_ends_of(chunk: bytes, data: Bytes) -> Ints:
    """The last byte of every physical line's end."""
    feeds = data == LF
    if b"\r" in chunk:
        returns = data == CR
        returns[:-1] &= ~feeds[1:]
        feeds |= returns
    return np.flatnonzero(feeds)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The file in pieces, none of which parts CR from LF."""
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
    """Pieces without invisible characters, how many were removed, and whether it is the last one."""
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


def _plain(line_ends: Ints, ends: Ints, size: int, final: bool) -> Scan:
    whole = int(ends[-1]) if len(ends) else 0
    if final and whole < size:
        ends, whole = np.append(ends, size), size
    return Scan(ends, whole, line_ends)


def _all_in_place(quotes: Ints, data: Bytes, delimiter: int) -> bool:
    """Does every other quote open a cell, and the others close one, but for pairs?"""
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


def _has_records_inside(data: Bytes, line_ends: Ints, inside: npt.NDArray[np.bool_], rules: Rules) -> bool:
    """May a quoted cell contain whole records? Each record that spans lines is then looked at by itself."""
    if not rules.width:
        return False
    delimiters = np.flatnonzero(data == rules.delimiter)
    behind = np.searchsorted(delimiters, line_ends)
    counts = np.diff(behind, prepend=0)
    fitting = counts >= rules.width - 1  # delimiters in quoted cells of the line count here, too
    continued = np.append(False, inside[:-1])  # the line begins inside quotes
    whole = continued & inside
    if (fitting & whole).any():
        return True
    return rules.width > 1 and bool((fitting & (continued | inside)).any())


def _block(buffer: bytes, found: Scan, line: int, removed: int) -> Block:
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
    # A line that is left out must not let the CR before it and the LF behind it become one line end.
    line_ends = ends - 1
    text[line_ends[text[line_ends] == CR]] = LF
    readable = np.delete(starts, [each.place for each in broken])
    moved = np.concatenate(([0], np.cumsum(kept)))
    return Block(text[kept].tobytes(), moved[readable], lines, broken, removed, ends_line)
