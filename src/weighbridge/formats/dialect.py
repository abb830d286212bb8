"""Second step of reading CSV: the first bytes of the text → delimiter, quote, preamble, header row and width.

The pipeline decides: of all ways to split the first records into cells, the one with the most known headers is used.
If several have the same number, the one whose records fit the header best is used.

A record has as many cells as the header. Empty cells beyond the header are accepted only if nearly all records have
them, and empty names at the end of the header are kept only if the records have cells for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weighbridge.formats.cells import Dialect, split
from weighbridge.formats.invisible_characters import visible
from weighbridge.formats.preamble import Line, possible_records
from weighbridge.formats.record_syntax import CR, LF, LONGEST_RECORD, RecordSyntax, ScanResult, too_long
from weighbridge.formats.scan import scan
from weighbridge.formats.unnamed_columns import refuse_unnamed
from weighbridge.model.errors import FileRefused
from weighbridge.model.rejects_layout import UPLOAD

CountFields = Callable[[Sequence[str]], int]

DELIMITERS = (",", "\t", ";", "|")
MOST_COLUMNS = 2000
SAMPLE = 50  # records in which the header is searched
MEASURED = 1000  # records whose cells are counted
NEARLY_ALL = 0.9
ENOUGH = 3  # records that are needed to decide that the header has the wrong width
HEAD = (
    LONGEST_RECORD + 1
)  # bytes to read: one more than a record may have, to notice a record that is too long
_FIRST_LOOK = 1 << 16  # bytes that nearly always contain the first records
_IN_QUOTES = re.compile(rb'(?:^|[\r\n,;\t|]) *"[^"\r\n]*" *(?=[\r\n,;\t|]|$)')
_IN_APOSTROPHES = re.compile(rb"(?:^|[\r\n,;\t|]) *'[^'\r\n]*' *(?=[\r\n,;\t|]|$)")
OWN_COLUMNS = UPLOAD.encode()
NO_DATA = re.compile(r"\W*no data available\W*", re.IGNORECASE)


@dataclass(frozen=True)
class CsvLayout:
    """The position of the header and of the first record after it, and how records are separated."""

    dialect: Dialect
    preamble: tuple[str, ...]
    header: tuple[str, ...]
    header_line: int
    header_offset: int
    data_offset: int
    data_line: int
    extra_cells: int = 0  # empty cells that nearly every record has beyond the header
    empty_name_after: str = (
        ""  # the column after which the header has an empty name without a cell in any record
    )
    quotes_cells: bool = False  # decided from the whole file (quoting.py)
    stray: int = 0  # LF or CR: the character that is not a line end of this file
    invisible: int = 0  # invisible characters that were removed from the header
    doubtful: tuple[Line, ...] = ()  # lines of the preamble that may be records

    @property
    def syntax(self) -> RecordSyntax:
        width = len(self.header) + self.extra_cells
        return RecordSyntax(
            ord(self.dialect.delimiter), self.dialect.quote.encode(), width, self.quotes_cells, self.stray
        )


class UnknownHeader(FileRefused):
    """No row has a column that the pipeline recognises. `columns` are the cells of the likeliest header row, `line` is
    its
    line, `below` are the cells of the first records after it.

    The message does not show them: if no column is recognised, the row may be a record with personal data.
    """

    def __init__(self, columns: Sequence[str], line: int, below: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.line = line
        self.below = tuple(below)
        super().__init__("no_header", "No column of the file is known.")


def find_layout(head: bytes, whole: bool, count_fields: CountFields, delimiter: str = "") -> CsvLayout:
    """`head` has the first HEAD bytes of the text, or all of it if `whole`. A given delimiter is used as it is.

    Raises FileRefused: `empty_file`, `no_data`, `no_header` (UnknownHeader), `malformed_file`.
    """
    if whole and not head.strip():
        raise FileRefused("empty_file", "The file is empty.")
    trials = [_try(head, whole, dialect, count_fields) for dialect in _candidates(head, delimiter)]
    trials = [trial for trial in trials if trial.records]
    if not trials:
        raise too_long(1)
    best = max(trials, key=_Trial.rank)  # the first of equals
    _refuse_no_data(best, whole)
    if not best.known:
        raise _no_header(max(trials, key=_Trial.likelihood))
    row, record = best.row, best.records[best.row]
    refuse_many_columns(len(best.cells[row]))
    doubtful = possible_records(best.lines[:row], best.lines[row], count_fields)
    _refuse_other_delimiters(best, trials)
    below = _first_records(head[record.end :], whole, best.dialect, MEASURED)
    rows = [split(each.text, best.dialect) for each in below]
    fitted = _fitted(best.cells[row], rows)
    refuse_unnamed(fitted.header, rows)
    return CsvLayout(
        dialect=best.dialect,
        preamble=tuple(before.text for before in best.records[:row]),
        header=fitted.header,
        header_line=record.line,
        header_offset=best.records[row - 1].end if row else 0,
        data_offset=record.end,
        data_line=record.next_line,
        extra_cells=fitted.extra_cells,
        empty_name_after=fitted.empty_name_after,
        stray=_stray(record, below),
        invisible=record.invisible,
        doubtful=doubtful,
    )


def refuse_many_columns(count: int) -> None:
    """Every batch needs memory per column; no real export has so many."""
    if count > MOST_COLUMNS:
        raise FileRefused(
            "malformed_file", f"The header has {count:,} columns; at most {MOST_COLUMNS:,} are read."
        )


def _candidates(head: bytes, given: str) -> list[Dialect]:
    """The dialects to try. First a delimiter that does not occur, for a file of one column whose cells have commas."""
    found = [delimiter for delimiter in DELIMITERS if delimiter.encode() in head]
    absent = [delimiter for delimiter in DELIMITERS if delimiter not in found][:1]
    if given:
        absent, found = [], [given]
    first = head[:_FIRST_LOOK]
    in_apostrophes, in_quotes = len(_IN_APOSTROPHES.findall(first)), len(_IN_QUOTES.findall(first))
    ours = OWN_COLUMNS in first  # a rejects file, which we quote
    quotes = ['"', "'"] if in_apostrophes > in_quotes and not ours else ['"']
    return [Dialect(delimiter, quote) for quote in quotes for delimiter in absent + found]


@dataclass(frozen=True)
class _Record:
    text: str
    line: int
    end: int
    next_line: int
    old_mac: bool  # its line end is CR
    invisible: int  # invisible characters that were removed


@dataclass(frozen=True)
class _Trial:
    """The first records, split by one dialect, and the row with the most known columns."""

    dialect: Dialect
    records: list[_Record]
    cells: list[list[str]]
    known: int
    row: int

    def rank(self) -> tuple[int, bool, float, int]:
        single = self.dialect.quote == "'"
        if single and not self._quotes_its_header():
            return -1, False, 0.0, 0
        return self.known, single, self._fit(self.row), len(self.cells[self.row])

    def likelihood(self) -> tuple[bool, float, int]:
        width = len(self.cells[self.widest])
        return width > 1 and self.dialect.quote == '"', self._fit(self.widest), width

    @property
    def lines(self) -> list[Line]:
        pairs = zip(self.records, self.cells, strict=True)
        return [Line(record.line, record.text, cells) for record, cells in pairs]

    @property
    def widest(self) -> int:
        return max(range(len(self.cells)), key=lambda row: len(self.cells[row]))

    def _fit(self, header: int) -> float:
        """The share of the rows below the header that have as many cells as the header."""
        rows = [row for row in self.cells[header + 1 :] if row != [""]]
        return sum(len(row) == len(self.cells[header]) for row in rows) / len(rows) if rows else 1.0

    def _quotes_its_header(self) -> bool:
        """Is a header cell in the quotes of this dialect? Otherwise a `'` is an apostrophe."""
        quote, text = self.dialect.quote, self.records[self.row].text
        enclosed = [cell for cell in self.cells[self.row] if f"{quote}{cell}{quote}" in text]
        return any(any(map(str.isalnum, cell)) for cell in enclosed)


def _try(head: bytes, whole: bool, dialect: Dialect, count_fields: CountFields) -> _Trial:
    records = _first_records(head, whole, dialect, SAMPLE)
    cells = [split(record.text, dialect) for record in records]
    scores = [count_fields(row) for row in cells] or [0]
    known = max(scores)
    return _Trial(dialect, records, cells, known, scores.index(known))


def _first_records(head: bytes, whole: bool, dialect: Dialect, most: int) -> list[_Record]:
    syntax = RecordSyntax.of(dialect.delimiter, dialect.quote)
    part = head[:_FIRST_LOOK]
    found = _scan(part, syntax, final=whole and len(part) == len(head))
    if len(found.ends) <= most and len(part) < len(head):
        part = head
        found = _scan(part, syntax, final=whole)
    ends = [int(end) for end in found.ends[: most + 1]]
    lines = [int(line) for line in np.searchsorted(found.line_ends, ends) + 1]
    records, start, line = [], 0, 1
    for end, next_line in zip(ends[:most], lines, strict=False):
        seen, invisible = visible(part[start:end])
        text = seen.decode()
        old_mac = text.endswith("\r")
        records.append(_Record(_without_line_end(text), line, end, next_line, old_mac, invisible))
        start, line = end, next_line
    return records


def _scan(part: bytes, syntax: RecordSyntax, *, final: bool) -> ScanResult:
    return scan(
        part[:-1] if part.endswith(b"\r") and not final else part, syntax, final=final
    )  # LF may follow


@dataclass(frozen=True)
class _Fitted:
    """A header with as many cells as the records."""

    header: tuple[str, ...]
    extra_cells: int = 0
    empty_name_after: str = ""


def _fitted(header: list[str], rows: list[list[str]]) -> _Fitted:
    """Adapt the header if nearly all records have another number of cells and the difference is only empty cells.

    One or two records are enough if all of them agree and the difference is at the end.

    Raises FileRefused: `header_width`, if the difference is more than empty cells.
    """
    rows = [row for row in rows if any(map(str.strip, row))]
    as_it_is = _Fitted(tuple(header))
    if not rows:
        return as_it_is
    [(width, count)] = Counter(map(len, rows)).most_common(1)
    if 2 * count <= len(rows) or width == len(header):
        return as_it_is
    if count < NEARLY_ALL * len(rows):
        pass
    elif width > len(header):
        empty_there = sum(len(row) == width and not any(row[len(header) :]) for row in rows)
        if empty_there >= NEARLY_ALL * len(rows):
            return _Fitted(tuple(header), width - len(header))
    elif not any(map(str.strip, header[width:])):
        return _Fitted(tuple(header[:width]))
    elif len(rows) >= ENOUGH:
        empty = [place for place, cell in enumerate(header) if not cell.strip()]
        if len(empty) == 1 and width == len(header) - 1 and empty != [0]:
            [place] = empty  # the header has one separator too many
            return _Fitted((*header[:place], *header[place + 1 :]), 0, header[place - 1])
    # A few records are no evidence against the header. Records of one cell are text, or have another delimiter.
    if width == 1 or len(rows) < ENOUGH:
        return as_it_is
    raise FileRefused(
        "header_width",
        f"The header has {len(header)} cells, most records have {width}, so cells cannot be assigned to names. "
        "Check the separators and quotes of the header.",
    )


def _stray(header: _Record, below: Sequence[_Record]) -> int:
    """The character that is not a line end of this file: CR, or LF if the header and most records end with CR.

    The last record is ignored: it may be the last one of the file, which may have no line end.
    """
    ends = [each.old_mac for each in below[:-1]]
    return LF if header.old_mac and 2 * sum(ends) >= len(ends) else CR


def _without_line_end(text: str) -> str:
    return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith(("\n", "\r")) else text


def _refuse_no_data(trial: _Trial, whole: bool) -> None:
    """Meta writes the row `No data available.`, with or without a header, if there is nothing to export."""
    rows = [cells for cells in trial.cells if any(map(str.strip, cells))]
    lonely = len(rows) == 1 or (len(rows) == 2 and len(rows[0]) > 1)
    if whole and lonely and len(rows[-1]) == 1 and NO_DATA.fullmatch(rows[-1][0]):
        raise FileRefused("no_data", "The export is empty: its only row is 'No data available.'")


def _refuse_other_delimiters(best: _Trial, trials: list[_Trial]) -> None:
    """Refuse a second table with another delimiter: it would be read as titles or as malformed records."""
    header = best.records[best.row]
    width = len(best.cells[best.row])
    for other in trials:
        same_delimiter = other.dialect.delimiter == best.dialect.delimiter
        if same_delimiter or other.dialect.quote != best.dialect.quote:
            continue
        record = other.records[other.row]
        if other.known > 1 and record.line != header.line:
            raise FileRefused(
                "several_tables",
                f"Lines {header.line} and {record.line} are different headers, and the delimiter of line {record.line} "
                f"is {other.dialect.delimiter!r}: the file has several tables. "
                "Split it and load each table separately.",
            )
        above = [
            each
            for each, cells in zip(other.records, other.cells, strict=True)
            if each.line < header.line and len(cells) == width > 2
        ]
        if len(above) > 1:
            raise FileRefused(
                "records_above_header",
                f"Lines {above[0].line} and {above[1].line} look like records with the delimiter "
                f"{other.dialect.delimiter!r}, and the header is below them, on line {header.line}. Expected the "
                "header first and one delimiter. Correct these lines, or split the file.",
            )


def _no_header(likely: _Trial) -> FileRefused:
    header = likely.widest
    below = [cell for cells in likely.cells[header + 1 : header + 4] for cell in cells]
    return UnknownHeader(likely.cells[header], likely.records[header].line, below)
