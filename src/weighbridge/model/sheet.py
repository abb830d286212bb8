"""A file as text columns: what `formats` produces and `rules` checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Sheet(Protocol):
    """A file whose encoding, delimiter and header are known.

    Each batch (an Arrow RecordBatch) has the columns `row_index`, `line`, `cells`, then `c0` … `cN`, one
    per header cell, then `surplus`. `row_index` counts the records after the header from 0, `line` is the
    physical line a record starts on, `cells` how many cells it really had. A cell is '' when empty and NULL when the
    record has none there. `surplus` holds what stands beyond the last header cell.
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

    def batches(self) -> Iterator[Any]: ...

    @property
    def records(self) -> int:
        """Physical records of the whole file, counted apart from the reader; known when batches() is through."""
        ...
