"""Last step of reading: a fixed rejects file → the columns of the original file.

Removes the added columns and the apostrophes of the spreadsheet-safe form, and collects the link of each record to the
rejected record. A record that is still unreadable keeps its text and gets the fault `not_fixed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.formats import arrow_batch
from weighbridge.formats.unnamed_columns import reject_unnamed
from weighbridge.model.rejects_layout import ESCAPED, RAW, ROW, SAFE, UPLOAD, YES, added_columns, unescape
from weighbridge.model.sheet import SPACE, Sheet

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_NUMBER = r"^[1-9][0-9]{0,8}$"
_LINKS = pa.schema(
    [("row_index", pa.int32()), ("original_upload", pa.string()), ("original_row", pa.int32())]
)
_NOTHING = pa.scalar(None, pa.string())


def without_added_columns(sheet: Sheet) -> Sheet:
    """The sheet without the columns that Weighbridge added; the same sheet if there are none."""
    added = added_columns(sheet.header)
    return FixedSheet(sheet, added) if added else sheet


@dataclass
class FixedSheet:
    """A rejects file with the columns of its original file."""

    sheet: Sheet
    added: Mapping[str, int]  # the names of the added columns and their positions
    links: Any = field(default_factory=_LINKS.empty_table, init=False)

    @property
    def kind(self) -> str:
        return self.sheet.kind

    @property
    def encoding(self) -> str:
        return self.sheet.encoding

    @property
    def delimiter(self) -> str | None:
        return self.sheet.delimiter

    @property
    def header(self) -> tuple[str, ...]:
        cells = [self.sheet.header[position] for position in self._own]
        return tuple(map(unescape, cells) if SAFE in self.added else cells)

    @property
    def header_line(self) -> int:
        return self.sheet.header_line

    @property
    def preamble(self) -> tuple[str, ...]:
        return self.sheet.preamble

    @property
    def warnings(self) -> Mapping[str, str]:
        return self.sheet.warnings

    @property
    def extra_cells(self) -> int:
        return self.sheet.extra_cells

    @property
    def records(self) -> int:
        return self.sheet.records

    def batches(self) -> Iterator[Any]:
        """The same records, each with the cells of the original columns only."""
        links = []
        for each in self.sheet.batches():
            own, link = self._narrowed(each)
            links.append(link)
            yield reject_unnamed(own, self.header)
        self.links = pa.Table.from_batches(links, _LINKS)

    def originals(self) -> list[str]:
        """The ids of the uploads that the records are linked to."""
        for _ in self.batches():
            pass
        return sorted(self.links.column("original_upload").unique().to_pylist())

    @property
    def _own(self) -> list[int]:
        ours = set(self.added.values())
        return [position for position in range(len(self.sheet.header)) if position not in ours]

    def _narrowed(self, batch: Any) -> tuple[Any, Any]:
        """The batch without the added columns, and the links of its records."""
        fits = self._fits(batch)
        marked = pc.and_(fits, self._is_yes(batch))
        own = [_unescaped(batch.column(f"c{position}"), marked) for position in self._own]
        empty = _all_empty(own, batch.num_rows)
        raw = _unescaped(self._cells_of(RAW, batch), marked)
        open_ = pc.and_(pc.and_(fits, empty), pc.invert(_all_empty([raw], batch.num_rows)))
        cells = pc.if_else(open_, pa.scalar(0, pa.int32()), self._count(batch, fits))
        narrowed = arrow_batch.build(
            batch.column("row_index").to_numpy(),
            batch.column("line").to_numpy(),
            cells.to_numpy(),
            [pc.if_else(open_, _NOTHING, column) for column in own],
            pc.if_else(open_, raw, self._surplus(batch, fits)),
            pc.if_else(open_, pa.scalar("not_fixed"), pc.if_else(fits, _NOTHING, batch.column("fault"))),
        )
        counts = pc.and_(fits, pc.or_(open_, pc.invert(empty)))
        return narrowed, self._links_of(batch, counts)

    def _fits(self, batch: Any) -> Any:
        """Which records fit the header.

        A CSV row that a person added may end after the original columns. In any other short row, cells are shifted.
        """
        fits, own = pc.is_null(batch.column("fault")), self._own
        if self.kind != "csv" or own != list(range(len(own))):
            return fits
        short = pc.and_(_is_misfit(batch), pc.equal(batch.column("cells"), len(own)))
        return pc.or_(fits, short)

    def _count(self, batch: Any, fits: Any) -> Any:
        """The number of cells that each record has in the original columns: too few if it does not fit."""
        cells, width, own = batch.column("cells"), len(self.sheet.header), len(self._own)
        without = pc.subtract(cells, pa.scalar(width - own, pa.int32()))
        fitting = pc.max_element_wise(without, pa.scalar(own, pa.int32()))
        short = pc.if_else(pc.less(cells, own), cells, pc.max_element_wise(without, pa.scalar(0, pa.int32())))
        return pc.if_else(fits, fitting, short)

    def _surplus(self, batch: Any, fits: Any) -> Any:
        """The cells beyond the columns; for a CSV row that does not fit, also the cells of the added columns."""
        surplus = batch.column("surplus")
        if self.kind != "csv" or pc.all(fits).as_py():
            return surplus
        broken = pc.and_(pc.invert(fits), _is_misfit(batch))
        names = [f"c{position}" for position in sorted(self.added.values())]
        rest = [
            (self.delimiter or ",").join(cell for cell in row.values() if cell is not None) or None
            for row in batch.select([*names, "surplus"]).filter(broken).to_pylist()
        ]
        return pc.replace_with_mask(surplus, broken, pa.array(rest, pa.string()))

    def _is_yes(self, batch: Any) -> Any:
        marks = pc.utf8_lower(pc.utf8_trim(self._cells_of(SAFE, batch), SPACE))
        return pc.fill_null(pc.equal(marks, YES), fill_value=False)

    def _links_of(self, batch: Any, counts: Any) -> Any:
        """The links of the records that have a valid upload id and row number."""
        upload = pc.utf8_trim(self._cells_of(UPLOAD, batch), SPACE)
        row = pc.utf8_trim(self._cells_of(ROW, batch), SPACE)
        named = pc.and_(pc.match_substring_regex(upload, _UUID), pc.match_substring_regex(row, _NUMBER))
        chosen = pc.fill_null(pc.and_(counts, named), fill_value=False)
        return pa.RecordBatch.from_arrays(
            [
                batch.column("row_index").filter(chosen),
                pc.utf8_lower(upload.filter(chosen)),
                pc.subtract(row.filter(chosen).cast(pa.int32()), pa.scalar(1, pa.int32())),
            ],
            schema=_LINKS,
        )

    def _cells_of(self, name: str, batch: Any) -> Any:
        position = self.added.get(name)
        return pa.nulls(batch.num_rows, pa.string()) if position is None else batch.column(f"c{position}")


def _is_misfit(batch: Any) -> Any:
    return pc.fill_null(pc.equal(batch.column("fault"), "wrong_cell_count"), fill_value=False)


def _unescaped(column: Any, marked: Any) -> Any:
    if not pc.any(marked).as_py():
        return column
    return pc.if_else(marked, pc.replace_substring_regex(column, ESCAPED, r"\1"), column)


def _all_empty(columns: list[Any], rows: int) -> Any:
    empty = pa.array([True] * rows)
    for column in columns:
        empty = pc.and_(empty, pc.fill_null(pc.equal(pc.utf8_trim(column, SPACE), ""), fill_value=True))
    return empty
