"""Called by the CSV reader: the text of one record → its cells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Dialect:
    delimiter: str
    quote: str = '"'


def split(record: str, dialect: Dialect) -> list[str]:
    """The cells of one record, of any length (Python's csv stops at 128 KB a cell)."""
    if dialect.quote not in record:
        return record.split(dialect.delimiter)
    cells = []
    for cell in _pattern(dialect).finditer(record):
        quoted, plain, end = cell.groups()
        cells.append(plain if quoted is None else quoted.replace(dialect.quote * 2, dialect.quote))
        if not end:
            break
    return cells


@cache
def _pattern(dialect: Dialect) -> re.Pattern[str]:
    """One cell and its end: the text in quotes or the plain text, and the delimiter."""
    q, d = re.escape(dialect.quote), re.escape(dialect.delimiter)
    padding = "" if dialect.delimiter == " " else " *"
    quoted = rf"{padding}{q}((?:[^{q}]++|{q}{q})*+){q}{padding}(?={d}|\Z)"
    return re.compile(rf"(?:{quoted}|([^{d}]*+))({d}|\Z)")
