"""A file as text columns: what `formats` produces and `rules` checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

# Why a record could not be read, and what people are told of it.
FAULTS: Mapping[str, str] = {
    "text_after_quote": "There is text after a closing quote.",
    "open_quote": "A quote is opened and never closed.",
    "records_in_quotes": "A quoted cell contains whole records: a quote is opened that should not be.",
    "bad_json": "The line is not valid JSON.",
    "duplicate_key": "A key appears more than once.",
    "not_a_record": "Expected an object with named values.",
    "bad_text": "It contains a NUL or half of a character.",
    "not_fixed": (
        "The original file has a record here that could not be read, and its columns are still empty. "
        "Put its values into the columns, or remove the row."
    ),
}


class Sheet(Protocol):
    """A file whose encoding, delimiter and header are known.

    Each batch (an Arrow RecordBatch) has the columns `row_index`, `line`, `cells`, then `c0` … `cN`, one
    per header cell, then `surplus`. `row_index` counts the records after the header from 0, `line` is the
    physical line a record starts on, `cells` how many cells it really had. A cell is '' when empty and NULL when the
    record has none there. `surplus` holds what stands beyond the last header cell.

    `fault` is NULL for a record that could be read. Otherwise it is a code (FAULTS), the record has no cells, and
    `surplus` holds its first physical line as it stands in the file.
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
    def warnings(self) -> Mapping[str, str]: ...  # what was assumed in reading it: code → sentence
    @property
    def extra_cells(self) -> int: ...  # empty cells that nearly every record has beyond the header

    def batches(self) -> Iterator[Any]: ...

    @property
    def records(self) -> int:
        """Physical records of the whole file, counted apart from the reader; known when batches() is through."""
        ...


@runtime_checkable
class Linked(Protocol):
    """A sheet whose records may fix rejected records of earlier uploads."""

    @property
    def links(self) -> Any:
        """An Arrow table of row_index, original_upload, original_row; complete when batches() is through."""
        ...

    def originals(self) -> Sequence[str]:
        """The ids of the uploads that the records are linked to. Reads the whole file."""
        ...
