"""Called by scan.py: the slow path, quote by quote, for a buffer with a quote in an unexpected position."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from weighbridge.formats.record_syntax import CR, LF, LONGEST_RECORD, SPACE, RecordSyntax

SURELY = 0.9  # share of the lines inside quotes that fit the header, from which they are records
_RECORDS_OR_CELL = "records_or_cell"


@dataclass
class SlowScan:
    """Finds the records of one buffer, from quote to quote."""

    buffer: bytes
    syntax: RecordSyntax
    quotes: list[int]
    line_ends: list[int]
    final: bool
    ends: list[int] = field(default_factory=list)
    broken: list[tuple[int, str]] = field(default_factory=list)
    cuts: list[tuple[int, int]] = field(default_factory=list)

    def run(self) -> int:
        """Fill `ends`, `broken` and `cuts`. Returns the end of the last record."""
        start, size = 0, len(self.buffer)
        while start < size:
            start = self._plain_records(start)
            found = self._record(start) if start < size else None
            if found is None:
                break
            end, code = found
            if code == _RECORDS_OR_CELL:
                self._give_up(start, end)
            else:
                end = self._first_line(start) if code else end
                if code:
                    self.broken.append((len(self.ends), code))
                self.ends.append(end)
            start = end
        return start

    def _plain_records(self, start: int) -> int:
        """Add the records before the line of the next quote. Returns the beginning of that line."""
        place = bisect_left(self.quotes, start)
        first = bisect_left(self.line_ends, start)
        quote = self.quotes[place] if place < len(self.quotes) else len(self.buffer)
        last = bisect_left(self.line_ends, quote)
        self.ends += [end + 1 for end in self.line_ends[first:last]]
        start = self.line_ends[last - 1] + 1 if last > first else start
        if quote == len(self.buffer) and self.final and start < quote:
            self.ends.append(quote)
            start = quote
        return start

    def _record(self, start: int) -> tuple[int, str] | None:
        """The end of the record that begins here, and its error code if any; None if it is not complete yet."""
        cuts: list[tuple[int, int]] = []
        position, place = start, bisect_left(self.quotes, start)
        while True:
            line_end = self._line_end(position)
            quote = self.quotes[place] if place < len(self.quotes) else len(self.buffer)
            if quote >= line_end:
                break
            opened = self._opened(start, position, quote)
            if opened is None and self.syntax.strict:
                return self._malformed(start, "quote_in_cell")
            if opened is None:
                position, place = quote + 1, place + 1
                continue
            closing = self._closing(place)
            if closing is None:
                return self._unclosed(start)
            closed = self._closed(self.quotes[closing] + 1)
            if closed is None:
                return self._malformed(start, "text_after_quote")
            cuts += [cut for cut in (opened, closed) if cut[0] < cut[1]]
            position, place = closed[1], closing + 1
        end = line_end + 1 if line_end < len(self.buffer) else line_end
        if line_end == len(self.buffer) and not self.final:
            return None
        if code := self._contains_records(start, end):
            return end, code
        if end - start > LONGEST_RECORD and self._line_end(start) < line_end:
            return start, "open_quote"
        self.cuts += cuts
        return end, ""

    def _opened(self, start: int, position: int, quote: int) -> tuple[int, int] | None:
        """The spaces before a quote that opens a cell; None if this quote opens no cell."""
        first = quote
        while first > position and self.buffer[first - 1] == self._padding:
            first -= 1
        begins = first == start or self.buffer[first - 1] == self.syntax.delimiter
        return (first, quote) if begins else None

    def _closing(self, place: int) -> int | None:
        """The index of the quote that closes the cell which this quote opens. Doubled quotes are part of the cell."""
        place += 1
        while place + 1 < len(self.quotes) and self.quotes[place + 1] == self.quotes[place] + 1:
            place += 2
        return place if place < len(self.quotes) else None

    def _closed(self, position: int) -> tuple[int, int] | None:
        """The spaces after a closing quote; None if other text follows it."""
        last = position
        while last < len(self.buffer) and self.buffer[last] == self._padding:
            last += 1
        ends = last == len(self.buffer) or self.buffer[last] in (self.syntax.delimiter, LF, CR)
        return (position, last) if ends else None

    @property
    def _padding(self) -> int:
        return SPACE if self.syntax.delimiter != SPACE else -1

    def _unclosed(self, start: int) -> tuple[int, str] | None:
        if self.final or len(self.buffer) - start > LONGEST_RECORD:
            return self._malformed(start, "open_quote")
        return None

    def _malformed(self, start: int, code: str) -> tuple[int, str] | None:
        """The record is rejected, up to its first line end; None if that is not in the buffer yet."""
        return (start, code) if self.final or self._line_end(start) < len(self.buffer) else None

    def _contains_records(self, start: int, end: int) -> str:
        """Do lines inside the record, or all of its lines, have as many cells as a record?"""
        bounds = self._bounds(start, end)
        if len(bounds) < 3 or not self.syntax.width:
            return ""
        lines = [self.buffer[a:b] for a, b in pairwise(bounds)]
        fitting = [self._fits(line, continued=place > 0) for place, line in enumerate(lines)]
        inside = fitting[1:-1]
        if self.syntax.width > 1 and len(inside) > 1 and sum(inside) >= SURELY * len(inside):
            return "records_in_quotes"
        return _RECORDS_OR_CELL if any(inside) or (self.syntax.width > 1 and all(fitting)) else ""

    def _fits(self, line: bytes, *, continued: bool) -> bool:
        """May the line be a record, with or without the delimiters inside its quoted cells?

        `continued`: the line begins inside a quoted cell.
        """
        if not line.strip():
            return False
        delimiter, quote = bytes([self.syntax.delimiter]), re.escape(self.syntax.quote)
        before = re.match(rb"(?:[^%b]|%b%b)*%b" % (quote, quote, quote, quote), line) if continued else None
        outside = line[before.end() :] if before else line
        plain = re.sub(rb"%b(?:[^%b]|%b%b)*%b" % (quote, quote, quote, quote, quote), b"", outside)
        cells = (before[0] if before else b"").count(delimiter) + plain.count(delimiter)
        return self.syntax.width - 1 in (line.count(delimiter), cells)

    def _give_up(self, start: int, end: int) -> None:
        """Reject every line of a record separately."""
        for line_end in self._bounds(start, end)[1:]:
            self.broken.append((len(self.ends), "records_in_quotes"))
            self.ends.append(line_end)

    def _bounds(self, start: int, end: int) -> list[int]:
        """The positions at which the physical lines of a record begin, and its end."""
        first, last = bisect_left(self.line_ends, start), bisect_left(self.line_ends, end - 1)
        return [start, *(each + 1 for each in self.line_ends[first:last]), end]

    def _line_end(self, position: int) -> int:
        place = bisect_left(self.line_ends, position)
        return self.line_ends[place] if place < len(self.line_ends) else len(self.buffer)

    def _first_line(self, start: int) -> int:
        return min(self._line_end(start) + 1, len(self.buffer))
