"""Beside the CSV reader: does a file that ends without a line end look cut off?

Many programs write no line end behind the last record, so that alone means nothing. A file that is cut off inside an
earlier cell has too few cells in its last record. One that is cut off inside the last cell shows it only where the
values of that column have a form: a fixed length, a fixed number of decimals, words that repeat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_BLOCK = 4096  # copies and transfers break off at a multiple of this many bytes
_COMPARED = 500  # values of the last column
_ENOUGH = 3  # values, to say that they have a form
_MANY = 10  # the same for their length: a few numbers may have equal lengths by chance
_LAST_PART = re.compile(r"(?<=[-.,:/ ])[^-.,:/ ]*\Z")


@dataclass
class LastRecord:
    """Sees every batch of a file, and keeps the last values of its last column."""

    size: int = 0  # bytes of the file
    _values: list[str] = field(default_factory=list)
    _row: int = -1  # the number of the last record so far
    _misfit: bool = False
    _complete: bool = False

    def look(self, batch: Any, width: int, *, ends: bool) -> None:
        """`ends`: if the last record is in this batch, its last cell is whole."""
        rows = batch.num_rows
        row = batch.column("row_index")[rows - 1].as_py()
        fits = batch.column("fault")[rows - 1].as_py() is None
        if row > self._row:
            self._row, self._misfit, self._complete = row, not fits, ends
        if fits:
            tail = batch.column(f"c{width - 1}").slice(max(0, rows - _COMPARED)).to_pylist()
            self._values = [*self._values, *tail][-_COMPARED:]

    @property
    def looks_cut(self) -> str:
        """What is suspicious about the last record, as a part of a sentence; empty if nothing is."""
        if self._misfit:
            return "its last record does not have the cells of the header"
        if self._complete or not self._values:
            return ""
        *others, last = self._values
        if len(others) >= _ENOUGH and (form := _lacks_form(last, others)):
            return form
        if self.size and self.size % _BLOCK == 0:
            return f"its size is a multiple of {_BLOCK:,} bytes"
        return ""


def _lacks_form(last: str, others: list[str]) -> str:
    """What all the others have and the last value lacks."""
    lengths = {len(value) for value in others}
    if not last:
        return "" if 0 in lengths else "its last cell is empty, other than in the records before it"
    numbers = len(others) >= _MANY and all(any(map(str.isdigit, value)) for value in others)
    if numbers and len(lengths) == 1 and len(last) < min(lengths):
        return "its last cell is shorter than those of the records before it"
    parts = {len(part[0]) if (part := _LAST_PART.search(value)) else -1 for value in others if value}
    own = _LAST_PART.search(last)
    if len(parts) == 1 and -1 not in parts and (len(own[0]) if own else -1) < min(parts):
        return "its last cell ends sooner than those of the records before it"
    repeats = 2 * len(set(others)) <= len(others)
    begins = last not in others and any(value.startswith(last) for value in others)
    if repeats and begins and not any(map(str.isdigit, last)):
        return "its last cell is the beginning of another value"
    return ""
