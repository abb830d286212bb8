"""Second in reading CSV: the beginning of the text → delimiter, quote, preamble and header row.

The pipeline decides: of all ways to cut the first records into cells, the one in which it knows the most
headers is right. Only among equals does it count how well the rows below fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from weighbridge.formats.scan import LONGEST_RECORD, Scanner, never_closed, too_long
from weighbridge.model.errors import FileRefused

Wanted = Callable[[Sequence[str]], int]

DELIMITERS = (",", "\t", ";", "|")
MOST_COLUMNS = 2000
SAMPLE = 50  # records in which a header is looked for
HEAD = LONGEST_RECORD + 1  # bytes to look at: one more, so that a record that fills them is too long
NO_DATA = re.compile(r"\W*no data available\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    delimiter: str
    quote: str = '"'


@dataclass(frozen=True)
class Layout:
    """Where the header is, and where the first record after it begins."""

    dialect: Dialect
    preamble: tuple[str, ...]
    header: tuple[str, ...]
    header_line: int
    data_offset: int
    data_line: int


class UnknownHeader(FileRefused):
    """No row is a header that the pipeline knows. `columns` are the cells of the likeliest one, `line` where it is,
    `below` the cells of the first records under it.

    They are not repeated here: where no column is known the row may well be a record, and a person's.
    """

    def __init__(self, columns: Sequence[str], line: int, below: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.line = line
        self.below = tuple(below)
        super().__init__("no_header", "No column of the file is known.")


def find_layout(head: bytes, whole: bool, wanted: Wanted) -> Layout:
    """`head` is the first HEAD bytes of the text, or the `whole` of it.

    Raises FileRefused: `empty_file`, `no_data`, `no_header` (UnknownHeader), `malformed_file`.
    """
    if whole and not head.strip():
        raise FileRefused("empty_file", "The file is empty.")
    trials = [_try(head, whole, dialect, wanted) for dialect in _candidates(head)]
    trials = [trial for trial in trials if trial.records]
    if not trials:
        raise too_long(1)
    best = max(trials, key=_Trial.rank)  # the first of equals
    _refuse_no_data(best, whole)
    if not best.known:
        raise _no_header(max(trials, key=_Trial.likelihood))
    row, record = best.row, best.records[best.row]
    refuse_many_columns(len(best.cells[row]))
    return Layout(
        dialect=best.dialect,
        preamble=tuple(before.text for before in best.records[:row]),
        header=tuple(best.cells[row]),
        header_line=record.line,
        data_offset=record.end,
        data_line=record.next_line,
    )


def refuse_many_columns(count: int) -> None:
    """Memory is per column and batch; no export comes near this."""
    if count > MOST_COLUMNS:
        raise FileRefused(
            "malformed_file", f"The header has {count:,} columns; at most {MOST_COLUMNS:,} are read."
        )


def split(record: str, dialect: Dialect) -> list[str]:
    """The cells of one record, of any length (Python's csv stops at 128 KB a cell)."""
    if dialect.quote not in record:
        return record.split(dialect.delimiter)
    cells = []
    for cell in _cell(dialect).finditer(record):
        quoted, plain, end = cell.groups(default="")
        cells.append(quoted.replace(dialect.quote * 2, dialect.quote) + plain)
        if not end:
            break
    return cells


@cache
def _cell(dialect: Dialect) -> re.Pattern[str]:
    q, d = re.escape(dialect.quote), re.escape(dialect.delimiter)
    return re.compile(rf"(?:{q}((?:[^{q}]++|{q}{q})*+)(?:{q}|\Z))?+([^{d}]*+)({d}|\Z)")


def _candidates(head: bytes) -> list[Dialect]:
    """First a delimiter that does not occur, for a file of one column, whose cells may well have commas."""
    found = [delimiter for delimiter in DELIMITERS if delimiter.encode() in head]
    absent = [delimiter for delimiter in DELIMITERS if delimiter not in found][:1]
    in_apostrophes = head.startswith(b"'") or b"\n'" in head or b"\r'" in head
    quotes = ['"', "'"] if in_apostrophes else ['"']
    return [Dialect(delimiter, quote) for quote in quotes for delimiter in absent + found]


@dataclass(frozen=True)
class _Record:
    text: str
    line: int
    end: int
    next_line: int


@dataclass(frozen=True)
class _Trial:
    """The first records as one dialect cuts them, and the row that the pipeline knows best."""

    dialect: Dialect
    records: list[_Record]
    cells: list[list[str]]
    known: int
    row: int
    open_quote: int  # the line of a quote that is open at the end of the file, or 0

    def rank(self) -> tuple[int, bool, float, int]:
        single = self.dialect.quote == "'"
        if single and not self._all_quoted():
            return -1, False, 0.0, 0
        return self.known, single, self._fit(self.row), len(self.cells[self.row])

    def likelihood(self) -> tuple[bool, float, int]:
        width = len(self.cells[self.widest])
        return width > 1 and self.dialect.quote == '"', self._fit(self.widest), width

    @property
    def widest(self) -> int:
        return max(range(len(self.cells)), key=lambda row: len(self.cells[row]))

    def _fit(self, header: int) -> float:
        """The share of the rows below the header that have as many cells as it."""
        rows = [row for row in self.cells[header + 1 :] if row != [""]]
        return sum(len(row) == len(self.cells[header]) for row in rows) / len(rows) if rows else 1.0

    def _all_quoted(self) -> bool:
        """Every header cell stands in this dialect's quotes. Else a `'` is an apostrophe."""
        quote, header = self.dialect.quote, self.cells[self.row]
        written = (quote + cell.replace(quote, quote * 2) + quote for cell in header)
        return self.dialect.delimiter.join(written) == self.records[self.row].text


def _try(head: bytes, whole: bool, dialect: Dialect, wanted: Wanted) -> _Trial:
    scanner = Scanner(dialect.delimiter, dialect.quote)
    records = _first_records(head, whole, scanner)
    cells = [split(record.text, dialect) for record in records]
    scores = [wanted(row) for row in cells] or [0]
    known = max(scores)
    open_quote = scanner.opened if whole and scanner.quoted else 0
    return _Trial(dialect, records, cells, known, scores.index(known), open_quote)


def _first_records(head: bytes, whole: bool, scanner: Scanner) -> list[_Record]:
    sample = head[:-1] if head.endswith(b"\r") and not whole else head  # its LF may be missing
    ends, next_lines = (found[:SAMPLE].tolist() for found in scanner.feed(sample))
    if whole and len(ends) < SAMPLE and (not ends or ends[-1] < len(head)):
        ends.append(len(head))
        next_lines.append(next_lines[-1] + 1 if next_lines else 2)
    records, start, line = [], 0, 1
    for end, next_line in zip(ends, next_lines, strict=True):
        text = head[start:end].decode()
        records.append(_Record(_without_line_end(text), line, end, next_line))
        start, line = end, next_line
    return records


def _without_line_end(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith(("\n", "\r")) else text


def _refuse_no_data(trial: _Trial, whole: bool) -> None:
    """Meta writes one row, `No data available.`, where there is nothing to export, or that under a header."""
    rows = [cells for cells in trial.cells if any(map(str.strip, cells))]
    lonely = len(rows) == 1 or (len(rows) == 2 and len(rows[0]) > 1)
    if whole and lonely and len(rows[-1]) == 1 and NO_DATA.fullmatch(rows[-1][0]):
        raise FileRefused("no_data", "The export is empty: its only row says 'No data available.'")


def _no_header(likely: _Trial) -> FileRefused:
    if likely.open_quote:
        return never_closed(likely.open_quote)
    header = likely.widest
    below = [cell for cells in likely.cells[header + 1 : header + 4] for cell in cells]
    return UnknownHeader(likely.cells[header], likely.records[header].line, below)
