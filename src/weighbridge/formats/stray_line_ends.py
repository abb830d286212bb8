"""Called by scan.py: decides whether a line end of another kind ends a record or is text inside a cell.

A lone CR in a file with LF or CRLF, or a lone LF in a file with CR, may be a line break inside a cell, or the end of a
record that was pasted from another file. If every part of the line has as many cells as a record, the parts are
records. Otherwise a part that happens to fit may be a record whose last cell is cut off: it is rejected together with
the part next to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from weighbridge.formats.cells import Dialect, split
from weighbridge.formats.record_syntax import CR, LF, LONGEST_RECORD, Ints, RecordSyntax, ScanResult


def without_stray_ends(buffer: bytes, found: ScanResult, syntax: RecordSyntax, *, final: bool) -> ScanResult:
    """The same records, except that parts which a stray line end has separated become one broken record."""
    ends = np.asarray(found.ends, np.int64)
    parted = _parted(buffer, ends, syntax.stray)
    parted[[place for place, _ in found.broken]] = False  # already rejected alone, wherever the buffer ends
    if final and len(parted):
        parted[-1] = False  # nothing follows
    if not parted.any():
        return found
    whole = np.flatnonzero(~parted) + 1  # after the last part of each line
    complete = int(whole[-1]) if len(whole) else 0
    if complete < len(ends):  # the last line continues after the buffer
        start = int(ends[complete - 1]) if complete else 0
        if len(buffer) - start > LONGEST_RECORD and complete < len(ends) - 1:
            whole, complete = np.append(whole, len(ends) - 1), len(ends) - 1
        ends = ends[:complete]
    if not complete:
        return ScanResult(ends, 0, found.line_ends)
    return _joined(buffer, replace(found, ends=ends, end=int(ends[-1])), whole, syntax)


def _parted(buffer: bytes, ends: Ints, stray: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the records end with a stray line end?"""
    data = np.frombuffer(buffer, np.uint8)
    last = data[ends - 1]
    if stray == CR:
        return np.asarray(last == CR)
    return np.asarray((last == LF) & (data[np.maximum(ends - 2, 0)] != CR))


def _joined(buffer: bytes, found: ScanResult, whole: Ints, syntax: RecordSyntax) -> ScanResult:
    """Join the parts of each line. `whole`: the record numbers after which a line is complete."""
    starts = np.concatenate(([0], found.ends[:-1])).astype(np.int64)
    faults = dict(found.broken)
    firsts = np.concatenate(([0], whole[:-1]))
    kept = np.ones(len(starts), np.bool_)
    for line in np.flatnonzero(whole - firsts > 1):
        first = int(firsts[line])
        texts = [buffer[starts[part] : found.ends[part]] for part in range(first, int(whole[line]))]
        fits = [_fits(text, syntax) and first + at not in faults for at, text in enumerate(texts)]
        for start, last in _torn(texts, fits):
            kept[first + start : first + last] = False  # the last part has the end of the joined record
            faults[first + last] = "stray_line_end"
    moved = np.cumsum(kept) - 1
    broken = sorted((int(moved[place]), code) for place, code in faults.items())
    return replace(found, ends=np.asarray(found.ends)[kept], broken=broken)


def _torn(texts: list[bytes], fits: list[bool]) -> Iterator[tuple[int, int]]:
    """The (first, last) parts of a line that form one broken record: the parts that do not fit, and their neighbours.

    A part that fits, between parts that fit, is a record: of the parts of one record at most one has the full number
    of cells.
    """
    filled = [bool(text.strip()) for text in texts]
    if sum(filled) < 2 or all(fit for fit, has_text in zip(fits, filled, strict=True) if has_text):
        return  # CR CR LF only adds a blank line
    doubtful = [not all(fits[max(0, at - 1) : at + 2]) for at in range(len(fits))]
    at = 0
    for is_doubtful, run in groupby(doubtful):
        size = len(list(run))
        if is_doubtful:
            yield at, at + size - 1
        at += size


def _fits(part: bytes, syntax: RecordSyntax) -> bool:
    """Does it have as many cells as a record? False in a file of one column, where every text would fit."""
    dialect = Dialect(chr(syntax.delimiter), syntax.quote.decode())
    return syntax.width > 1 and len(split(part.decode().rstrip("\r\n"), dialect)) == syntax.width
