"""Third step of reading CSV: UTF-8 text of a known layout → batches of text columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from weighbridge.formats import arrow_batch, invisible_characters, preamble
from weighbridge.formats.cells import split
from weighbridge.formats.dialect import HEAD, CountFields, CsvLayout, find_layout
from weighbridge.formats.quoting import quotes_a_cell
from weighbridge.formats.scan import Block, blocks
from weighbridge.formats.to_utf8 import Utf8File
from weighbridge.formats.truncation import TruncationCheck
from weighbridge.formats.unnamed_columns import reject_unnamed
from weighbridge.formats.unreadable_records import unreadable
from weighbridge.model.counts import counted
from weighbridge.model.errors import FileRefused


def open_delimited(
    text: Utf8File,
    count_fields: CountFields,
    *,
    head_only: bool = False,
    delimiter: str = "",
    show_cell: bool = True,
) -> DelimitedSheet:
    """Find the layout; `batches()` reads the rows. A warning may show a cell only if `show_cell`."""
    with text.path.open("rb") as file:
        file.seek(text.start)
        head = file.read(HEAD)
        layout = find_layout(head, len(head) < HEAD and not head_only, count_fields, delimiter)
        file.seek(text.start + layout.header_offset)
        quotes_cells = quotes_a_cell(file, layout.dialect, len(layout.header))
    return DelimitedSheet(text, replace(layout, quotes_cells=quotes_cells), show_cell)


@dataclass
class DelimitedSheet:
    """A CSV file. A record that does not fit the header, or that cannot be read, has a `fault`."""

    text: Utf8File
    layout: CsvLayout
    show_cell: bool
    kind: str = "csv"
    records: int = field(default=0, init=False)
    invisible: int = field(default=0, init=False)  # invisible characters that were removed
    cut_line: int = field(default=0, init=False)  # the last line, if the file may be cut off there
    _last: TruncationCheck = field(default_factory=TruncationCheck, init=False)

    @property
    def encoding(self) -> str:
        return self.text.encoding

    @property
    def warnings(self) -> Mapping[str, str]:
        """Complete after batches() has ended."""
        found = dict(self.text.warnings)
        if self.extra_cells:
            found["extra_cells"] = (
                f"Records have {counted(self.extra_cells, 'empty cell')} more than the header; "
                f"{'it was' if self.extra_cells == 1 else 'they were'} ignored."
            )
        if self.layout.empty_name_after:
            found["empty_header_ignored"] = (
                f"The header has an empty name after {self.layout.empty_name_after!r}, and the records have no cell "
                "for it; it was ignored."
            )
        if self.cut_line:
            found["no_final_line_end"] = (
                f"The file may be cut off: it does not end with a line end, and {self._last.looks_cut}. Compare the "
                f"record on line {self.cut_line} with its source."
            )
        skipped = sum(bool(line.strip()) for line in self.preamble)
        found |= preamble.warning(self.layout.doubtful, skipped, show_cell=self.show_cell)
        return found | invisible_characters.warning(self.invisible)

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

    @property
    def extra_cells(self) -> int:
        return self.layout.extra_cells

    def batches(self) -> Iterator[Any]:
        """Rows in the order of the file, block by block; records that do not fit follow in a separate batch."""
        layout = self.layout
        before = self.records = len(layout.preamble) + 1
        self.invisible, self.cut_line = layout.invisible, 0
        self._last = TruncationCheck(self.text.size)
        with self.text.path.open("rb") as file:
            file.seek(self.text.start + layout.data_offset)
            for block in blocks(file, layout.syntax, layout.data_line):
                first = self.records - before
                self.records += len(block.lines)
                self.invisible += block.invisible
                # A delimiter or a quote after the last cell shows that the cell is complete.
                ends = layout.extra_cells > 0 or block.text.endswith(layout.dialect.quote.encode())
                for each in _batches(block, first, layout):
                    rows = reject_unnamed(each, layout.header)
                    self._last.look(rows, len(layout.header), ends=ends)
                    yield rows
                if not block.ends_line and self._last.looks_cut:
                    self.cut_line = int(block.lines[-1])


def _batches(block: Block, first: int, layout: CsvLayout) -> Iterator[Any]:
    """The records of a block: first the fitting ones, then those with another cell count, then the unreadable ones."""
    broken = np.array([each.place for each in block.broken], np.int64)
    readable = np.delete(np.arange(len(block.lines)), broken)
    fitting, misfits = _read(block, layout)
    wrong = readable[[misfit.number - 1 for misfit in misfits]] if misfits else broken[:0]
    right = np.setdiff1d(readable, wrong, assume_unique=True)
    if fitting.num_rows != len(right):
        raise _uncountable(block, fitting.num_rows + len(wrong) + len(broken))
    if len(right):
        yield from _fitting(fitting, first + right, block.lines[right], layout)
    if len(wrong):
        cells = [split(misfit.text, layout.dialect) for misfit in misfits]
        yield _misfits(cells, first + wrong, block.lines[wrong], layout)
    if block.broken:
        yield unreadable(block, first, len(layout.header))


def _read(block: Block, layout: CsvLayout) -> tuple[Any, list[Any]]:
    """The rows with the right number of cells as a table, and the others as pyarrow's InvalidRow."""
    misfits: list[Any] = []

    def set_aside(row: Any) -> str:
        misfits.append(row)
        return "skip"

    names = arrow_batch.column_names(layout.syntax.width)
    if not block.text:
        return pa.table({name: pa.array([], pa.string()) for name in names}), misfits
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block.text),
        # One block: the buffer already ends between two records.
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, column_names=names, block_size=len(block.text) + 1
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=layout.dialect.delimiter,
            quote_char=layout.dialect.quote,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=set_aside,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=False,
            check_utf8=False,  # to_utf8.py did
        ),
    )
    return table, misfits


def _fitting(
    table: Any, row_index: arrow_batch.Numbers, line: arrow_batch.Numbers, layout: CsvLayout
) -> Iterator[Any]:
    """The columns of the header. Records with text beyond the header are rejected."""
    width = len(layout.header)
    columns = [column.chunk(0) for column in table.columns]
    filled = np.zeros(len(row_index), np.bool_)
    for beyond in columns[width:]:
        filled |= pc.greater(pc.binary_length(beyond), 0).to_numpy(zero_copy_only=False)
    if not filled.any():
        yield arrow_batch.build(row_index, line, width, columns[:width], None)
        return
    empty = pa.array(~filled)
    if not filled.all():
        yield arrow_batch.build(
            row_index[~filled], line[~filled], width, [each.filter(empty) for each in columns[:width]], None
        )
    cells = [list(row.values()) for row in table.filter(pa.array(filled)).to_pylist()]
    yield _misfits(cells, row_index[filled], line[filled], layout)


def _misfits(
    cells: list[list[str]], row_index: arrow_batch.Numbers, line: arrow_batch.Numbers, layout: CsvLayout
) -> Any:
    """Records with too few cells end in NULLs; extra cells go into `surplus`, if they have any text."""
    width, delimiter = len(layout.header), layout.dialect.delimiter
    columns = [
        pa.array([row[position] if position < len(row) else None for row in cells], pa.string())
        for position in range(width)
    ]
    surplus = [delimiter.join(row[width:]) if any(row[width:]) else None for row in cells]
    counts = np.array([len(row) for row in cells], np.int64)
    fault = pa.array(["wrong_cell_count"] * len(cells), pa.string())
    return arrow_batch.build(row_index, line, counts, columns, pa.array(surplus, pa.string()), fault)


def _uncountable(block: Block, read: int) -> FileRefused:
    return FileRefused(
        "malformed_file",
        f"Two counts of the records in lines {block.lines[0]} to {block.lines[-1]} differ: "
        f"{len(block.lines)} and {read}. Check the quotes in these lines.",
    )
