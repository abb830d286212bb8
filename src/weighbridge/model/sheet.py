"""A file as text columns: the output of `formats` and the input of `rules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

# Characters around the text of a cell that do not belong to it.
SPACE = " \t\r\n\u00a0\u2007\u202f\u200b\ufeff"

# Why a record could not be read: the message, and the hint.
_QUOTES = "Double a quote that belongs to a quoted cell, and remove one that does not."
FAULTS: Mapping[str, tuple[str, str]] = {
    "wrong_cell_count": ("It has more or fewer cells than the header", "Check its quotes and separators."),
    "unnamed_cell": (
        "Expected an empty cell where the end of the header has an empty name, got text",
        "The record may have a cell too many: check its quotes and separators, or add the name to the header.",
    ),
    "text_after_quote": ("Expected a separator after a closing quote, got text", _QUOTES),
    "quote_in_cell": ("Expected quotes around a cell that has a quote in it, got none", _QUOTES),
    "open_quote": ("Expected a closing quote, got none", _QUOTES),
    "records_in_quotes": ("Expected one cell in quotes, got whole records", _QUOTES),
    "stray_line_end": (
        "Expected the line end that the other records have, got another one inside the record",
        "Remove that line break, or put the cell in quotes.",
    ),
    "bad_json": ("Expected a JSON object on the line", ""),
    "duplicate_key": ("Expected every key once, got a nested key twice", "Rename or remove one of them."),
    "not_a_record": ("Expected an object with the keys of the first records", ""),
    "bad_text": ("Expected text, got a NUL or half of a character", "Export the file again."),
    "not_fixed": (
        "The original file has a record here that could not be read, and its columns are still empty",
        "Put its values into the columns, or remove the row.",
    ),
}


class Sheet(Protocol):
    """A file whose encoding, delimiter and header are known.

    Each batch (an Arrow RecordBatch) has the columns `row_index`, `line`, `cells`, then `c0` … `cN`, one
    per header cell, then `surplus`. `row_index` counts the records after the header from 0, `line` is the
    physical line a record starts on, `cells` the number of its cells. A cell is '' when empty and NULL when the
    record has none there. `surplus` holds the cells beyond the last header cell.

    `fault` is NULL for a record that fits the header. Otherwise it is a code (FAULTS). A record that could not be read
    at all has no cells, and `surplus` holds its first physical line as it is in the file.
    """

    @property
    def kind(self) -> str: ...  # "csv" or "json"
    @property
    def encoding(self) -> str: ...
    @property
    def delimiter(self) -> str | None: ...
    @property
    def header(self) -> tuple[str, ...]: ...  # the file's own cells, in its own order, duplicates included
    @property
    def header_line(self) -> int: ...  # 1-based; 0 where the format has no header line
    @property
    def preamble(self) -> tuple[str, ...]: ...  # the text before the header, a string per record

    @property
    def warnings(self) -> Mapping[str, str]: ...  # assumptions made in reading it: code → sentence
    @property
    def extra_cells(self) -> int: ...  # empty cells that nearly every record has beyond the header

    def batches(self) -> Iterator[Any]: ...

    @property
    def records(self) -> int:
        """Physical records of the whole file, counted independently of the reader; known after batches() has ended."""
        ...


@runtime_checkable
class WithNumbers(Protocol):
    """A sheet of a format that has numbers, not only text."""

    @property
    def fraction(self) -> str:
        """A number with a decimal point; empty if there is none. Known after batches() has ended."""
        ...


@runtime_checkable
class WithLateKeys(Protocol):
    """A sheet of a format whose records may have keys that the header lacks."""

    @property
    def late(self) -> Iterable[str]:
        """These keys. Known after batches() has ended."""
        ...


@runtime_checkable
class WithNested(Protocol):
    """A sheet of a format whose values may be objects or lists."""

    @property
    def nested(self) -> Mapping[str, int]:
        """Header → the first line that has an object or a list there. Known after batches() has ended."""
        ...


@runtime_checkable
class Linked(Protocol):
    """A sheet whose records may fix rejected records of earlier uploads."""

    @property
    def links(self) -> Any:
        """An Arrow table of row_index, original_upload, original_row; complete after batches() has ended."""
        ...

    def originals(self) -> Sequence[str]:
        """The ids of the uploads that the records are linked to. Reads the whole file."""
        ...
