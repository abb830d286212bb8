"""Third in reading CSV: UTF-8 text of a known layout → batches of text columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from weighbridge.formats import batch
from weighbridge.formats.dialect import HEAD, Dialect, Layout, Wanted, find_layout, split
from weighbridge.formats.encoding import Utf8File
from weighbridge.formats.scan import Block, blocks
from weighbridge.model.errors import FileRefused


def open_delimited(
    text: Utf8File, wanted: Wanted, *, cut: bool = False, delimiter: str = ""
) -> DelimitedSheet:
    """Find the layout; the rows are read with `batches()`."""
    with text.path.open("rb") as file:
        file.seek(text.start)
        head = file.read(HEAD)
    return DelimitedSheet(text, find_layout(head, len(head) < HEAD and not cut, wanted))


@dataclass
class DelimitedSheet:
    """A CSV file. `batches()` refuses what only shows further down: an open quote, an endless record."""

    text: Utf8File
    layout: Layout
    kind: str = "csv"
    extra_cells: int = 0
    records: int = field(default=0, init=False)

    @property
    def encoding(self) -> str:
        return self.text.encoding

    @property
    def warnings(self) -> Mapping[str, str]:
        return self.text.warnings

    @property
    def delimiter(self) -> str:
        return self.layout.dialect.delimiter

    @property
    def header(self) -> tuple[str, ...]:
        return self.layout.header

    @property
    def header_line(self) -> int:
        return self.layout.header_line

    @property
    def preamble(self) -> tuple[str, ...]:
        return self.layout.preamble

    def batches(self) -> Iterator[Any]:
        """Rows in the order of the file, block by block; a block's misfits follow in a batch of their own."""
        layout, dialect = self.layout, self.layout.dialect
        before = self.records = len(layout.preamble) + 1
        with self.text.path.open("rb") as file:
            file.seek(self.text.start + layout.data_offset)
            for block in blocks(file, dialect.delimiter, dialect.quote, layout.data_line):
                first = self.records - before
                self.records += len(block.lines)
                fitting, misfits = _read(block, len(layout.header), dialect)
                wrong = np.array([misfit.number - 1 for misfit in misfits], np.int64)
                right = np.delete(np.arange(len(block.lines)), wrong)
                if fitting.num_rows != len(right):
                    raise _uncountable(block, fitting.num_rows + len(wrong))
                if len(right):
                    columns = [column.chunk(0) for column in fitting.columns]
                    yield batch.build(first + right, block.lines[right], len(columns), columns, None)
                if len(wrong):
                    yield _misfits(misfits, first + wrong, block.lines[wrong], layout)


def _read(block: Block, width: int, dialect: Dialect) -> tuple[Any, list[Any]]:
    """The rows with the right number of cells as a table, the others as pyarrow hands them over."""
    misfits: list[Any] = []

    def set_aside(row: Any) -> str:
        misfits.append(row)
        return "skip"

    names = batch.column_names(width)
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block.text),
        # One block: the cut between records is ours already.
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, column_names=names, block_size=len(block.text) + 1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=set_aside,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=False,
            check_utf8=False,  # encoding.py did
        ),
    )
    return table, misfits


def _misfits(rows: list[Any], row_index: batch.Numbers, line: batch.Numbers, layout: Layout) -> Any:
    """Short records end in NULLs; what long ones have too much, if there is any text in it, is surplus."""
    width, delimiter = len(layout.header), layout.dialect.delimiter
    cells = [split(row.text, layout.dialect) for row in rows]
    columns = [
        pa.array([row[position] if position < len(row) else None for row in cells], pa.string())
        for position in range(width)
    ]
    surplus = [delimiter.join(row[width:]) if any(row[width:]) else None for row in cells]
    counts = np.array([len(row) for row in cells], np.int64)
    return batch.build(row_index, line, counts, columns, pa.array(surplus, pa.string()))


def _uncountable(block: Block, read: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"Lines {block.lines[0]} to {block.lines[-1]} hold {len(block.lines)} records by one count "
        f"and {read} by another. Check the quotes there.",
    )
