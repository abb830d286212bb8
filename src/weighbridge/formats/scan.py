"""Under the CSV reader: UTF-8 bytes → whole records, each with its line, counted apart from the reader.

The grammar is that of RFC 4180 as pyarrow and Python's csv read it: LF, CRLF or CR ends a record; a quote
opens a quoted cell only where the cell begins, `""` inside stands for one quote, and what follows the closing
quote is plain text again. So the quote in `5" pipe` is a character like any other.

Vectorised: where every quote that would open does stand at the beginning of a cell (or is the second of a
pair), quotes simply toggle, and a line end is a record's end if an even number of quotes precedes it. Only a
chunk where that does not hold is walked quote by quote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from weighbridge.model.errors import FileRefused

CHUNK = 1 << 21
LONGEST_RECORD = 1 << 20

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LF, CR = 10, 13


@dataclass(frozen=True)
class Block:
    """Whole records: their bytes, where each starts in them, and on which line of the file."""

    text: bytes
    starts: Ints
    lines: Ints


def blocks(file: BinaryIO, delimiter: str, quote: str, line: int) -> Iterator[Block]:
    """The rest of the file, of which the next byte begins a record on the given line.

    Refuses a quote that is never closed and a record longer than LONGEST_RECORD.
    """
    scanner = Scanner(delimiter, quote, line)
    rest = b""
    for chunk in chunks(file):
        ends, next_lines = scanner.feed(chunk)
        if not len(ends):
            rest += chunk
            _check_length(len(rest), line)
            continue
        whole = int(ends[-1])
        starts = np.concatenate(([0], ends[:-1] + len(rest)))
        lines = np.concatenate(([line], next_lines[:-1]))
        sizes = np.diff(starts, append=whole + len(rest))
        longest = int(sizes.argmax())
        _check_length(int(sizes[longest]), int(lines[longest]))
        yield Block(rest + chunk[:whole], starts, lines)
        rest, line = chunk[whole:], int(next_lines[-1])
        _check_length(len(rest), line)
    if scanner.quoted:
        raise never_closed(scanner.opened)
    if rest:
        yield Block(rest, np.zeros(1, np.int64), np.full(1, line))


class Scanner:
    """Finds the ends of records, chunk by chunk. No chunk but the last may end between CR and LF."""

    def __init__(self, delimiter: str, quote: str, line: int = 1) -> None:
        self._delimiter = ord(delimiter)
        self._quote = quote.encode()
        self._line = line  # the line that the next byte is on
        self._before = LF  # the byte before the next one
        self._closed = False  # that byte is a closing quote: another one right after it would be a pair
        self.quoted = False  # the next byte is inside a quoted cell
        self.opened = line  # the line of the quote that opened it

    def feed(self, chunk: bytes) -> tuple[Ints, Ints]:
        """The ends of records in the chunk (first byte after the line end), and the line after each."""
        data = np.frombuffer(chunk, np.uint8)
        line_ends = line_ends_of(chunk, data)
        if self._quote in chunk:
            quotes = self._structural(np.flatnonzero(data == ord(self._quote)), data)
            toggled = np.searchsorted(quotes, line_ends) + self.quoted
            ending = np.flatnonzero(toggled % 2 == 0)
            self._remember(quotes, line_ends, len(data))
        else:
            ending = np.arange(0 if self.quoted else len(line_ends))
            self._closed = False
        ends, next_lines = line_ends[ending] + 1, ending + self._line + 1
        self._line += len(line_ends)
        self._before = int(data[-1])
        return ends, next_lines

    def _remember(self, quotes: Ints, line_ends: Ints, size: int) -> None:
        """What the next chunk must know of this one's quotes."""
        gaps = np.diff(quotes, prepend=-1 if self._closed else -2)
        opening = np.arange(int(self.quoted), len(quotes), 2)
        opening = opening[gaps[opening] > 1]  # the second of a pair opens nothing new
        if len(opening):
            self.opened = self._line + int(np.searchsorted(line_ends, quotes[opening[-1]]))
        self.quoted = (len(quotes) + self.quoted) % 2 == 1
        self._closed = not self.quoted and len(quotes) > 0 and int(quotes[-1]) == size - 1

    def _structural(self, quotes: Ints, data: Bytes) -> Ints:
        """The quotes that open or close a cell or are one of a pair, without those that are mere text."""
        before = data[quotes - 1]
        if quotes[0] == 0:
            before[0] = self._before
        may_open = (before == self._delimiter) | (before == LF) | (before == CR)
        paired = np.empty(len(quotes), np.bool_)
        paired[0] = quotes[0] == 0 and self._closed
        paired[1:] = np.diff(quotes) == 1
        opening = slice(int(self.quoted), None, 2)
        if (may_open | paired)[opening].all():
            return quotes
        return quotes[self._walk(may_open.tolist(), paired.tolist())]

    def _walk(self, may_open: list[bool], paired: list[bool]) -> list[int]:
        """Inside, a quote closes; outside, it opens where a cell begins or right after a closing one."""
        kept = []
        quoted, closed_last = self.quoted, True  # of the first quote, `paired` tells the whole truth
        for index, (at_start, follows) in enumerate(zip(may_open, paired, strict=True)):
            if quoted:
                quoted, closed_last = False, True
                kept.append(index)
            elif at_start or (follows and closed_last):
                quoted, closed_last = True, False
                kept.append(index)
            else:
                closed_last = False
        return kept


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


def _check_length(length: int, line: int) -> None:
    if length > LONGEST_RECORD:
        raise too_long(line)


def too_long(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"The record in line {line} is longer than {LONGEST_RECORD:,} bytes. Is a quote never closed?",
    )


def never_closed(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"The quote opened in line {line} is never closed. "
        "Close it, or double the quote characters inside a quoted cell.",
    )
