"""Called by delimited.py: does a file without a final line end look cut off?

Many programs write no line end after the last record, so that alone is no evidence. A file that is cut off before the
last cell has too few cells in its last record. A file that is cut off inside the last cell can be recognised only if
the values of that column have a form: a fixed length, a fixed number of decimals, or words that repeat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_BLOCK = 4096  # interrupted copies and transfers often end at a multiple of this many bytes
_COMPARED = 500  # values of the last column that are compared
_ENOUGH = 3  # values that are needed to recognise a form
_MANY = 10  # the same for a fixed length: a few numbers may have equal lengths by chance
_LAST_PART = re.compile(r"(?<=[-.,:/ ])[^-.,:/ ]*\Z")


@dataclass
class TruncationCheck:
    """Inspects every batch of a file and keeps the last values of its last column."""

    size: int = 0  # bytes of the file
    _values: list[str] = field(default_factory=list)
    _row: int = -1  # row index of the last record so far
    _misfit: bool = False
    _complete: bool = False

    def look(self, batch: Any, width: int, *, ends: bool) -> None:
        """`ends`: if the last record of the file is in this batch, its last cell is complete."""
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
        """Why the last record looks incomplete, as a part of a sentence; empty if it does not."""
        if self._misfit:
            return "its last record has another number of cells than the header"
        if self._complete or not self._values:
            return ""
        *others, last = self._values
        if len(others) >= _ENOUGH and (form := _lacks_form(last, others)):
            return form
        if self.size and self.size % _BLOCK == 0:
            return f"its size is a multiple of {_BLOCK:,} bytes"
        return ""


def _lacks_form(last: str, others: list[str]) -> str:
    """The difference between the last value and the form of all others; empty if there is none."""
    lengths = {len(value) for value in others}
    if not last:
        return "" if 0 in lengths else "its last cell is empty, unlike in the records before it"
    numbers = len(others) >= _MANY and all(any(map(str.isdigit, value)) for value in others)
    if numbers and len(lengths) == 1 and len(last) < min(lengths):
        return "its last cell is shorter than in the records before it"
    parts = {len(part[0]) if (part := _LAST_PART.search(value)) else -1 for value in others if value}
    own = _LAST_PART.search(last)
    if len(parts) == 1 and -1 not in parts and (len(own[0]) if own else -1) < min(parts):
        return "its last cell has fewer characters after its last separator than in the records before it"
    repeats = 2 * len(set(others)) <= len(others)
    begins = last not in others and any(value.startswith(last) for value in others)
    if repeats and begins and not any(map(str.isdigit, last)):
        return "its last cell is the first part of another value"
    return ""
