"""Called by run_checks.py: the batches of a sheet as views that DuckDB can scan several times.

    records   every record: its raw cells, and the trimmed text of each column that a field uses
    coded     the same for the grain's columns; the cells of the dimensions are replaced by one number, `combo`
    combos    number → the cells of that combination

Names and ids repeat in many records. A number for their combination needs four bytes per record instead of about two
hundred, and the rules for these cells run once per combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.model.progress import Progress
from weighbridge.model.sheet import SPACE, Sheet
from weighbridge.rules import date_sql
from weighbridge.rules.check_plan import CheckPlan

ENOUGH = 2_000  # first records of a large file that decide the locale
SMALL = 10_000  # a file with fewer records is kept in memory and read once
REMEMBERED = 100_000  # combinations in memory

Codes = npt.NDArray[np.int64]


class RecordSource:
    """The records of one sheet. Each method registers a view and returns its name."""

    def __init__(self, plan: CheckPlan, sheet: Sheet, scratch: Path, progress: Progress) -> None:
        self._plan, self._sheet, self._scratch = plan, sheet, scratch
        self.failure: BaseException | None = None  # the exception that was raised while DuckDB was reading
        self.empty_columns = {position for position, name in enumerate(sheet.header) if not name.strip()}
        unread = self._watched(_counted(sheet.batches(), progress))
        self._head = list(_first(unread))
        self.small = sum(batch.num_rows for batch in self._head) < SMALL
        self._unread: Iterator[Any] | None = None if self.small else unread
        self._combos = _Combos(plan, None)

    def _watched(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Remove columns with text from `empty_columns`; after all batches they have neither a name nor text."""
        for batch in batches:
            for position in tuple(self.empty_columns):
                if pc.any(pc.greater(pc.binary_length(batch.column(f"c{position}")), 0)).as_py():
                    self.empty_columns.discard(position)
            yield batch

    def plain_dates(self) -> bool:
        """Are all dates written as 2025-01-31? Only for small files: in a large file, planning time does not matter."""
        cells = self._plan.date_cells
        return (
            self.small
            and bool(cells)
            and all(
                pc.all(pc.match_like(_text(batch.column(f"c{p}"), self._plan, False), date_sql.PLAIN)).as_py()
                is not False
                for p in cells
                for batch in self._head
            )
        )

    def head(self, db: Any) -> str:
        """The first records; all records of a small file."""
        batches = self._head if self.small else [self._head[0].slice(0, ENOUGH)]
        return self._register(db, (_with_texts(batch, self._plan) for batch in batches))

    def records(self, db: Any) -> str:
        return self._register(db, self._read(lambda batch: _with_texts(batch, self._plan)))

    def coded(self, db: Any) -> str:
        self._combos.close()
        self._combos = _Combos(self._plan, None if self.small else self._scratch / "combos.arrow")
        return self._register(db, self._read(self._combos.code), coded=True)

    def combos(self, db: Any) -> Any:
        """The combinations of the last `coded` view, after that was read: registers `combos`, returns the table."""
        table = self._combos.table()
        db.register("combos", table)
        return table

    def _register(self, db: Any, batches: Iterator[Any], *, coded: bool = False) -> str:
        schema = _schema(self._plan, coded=coded)
        name = "coded" if coded else "records"
        db.register(name, pa.RecordBatchReader.from_batches(schema, batches))
        return name

    def _read(self, prepare: Callable[[Any], Any]) -> Iterator[Any]:
        batches: Iterable[Any] = self._head
        if not self.small:
            unread, self._unread = self._unread, None
            batches = chain(self._head, unread) if unread else self._sheet.batches()
        prepared = (prepare(batch) for batch in batches)
        try:
            yield from prepared if self.small else _ahead(prepared)
        except Exception as failure:
            self.failure = failure
            raise


class _Combos:
    """The combinations of the dimensions' cells, each with a number; stored in a file if the sheet is large.

    Most are known from earlier batches. After `REMEMBERED` combinations, a new one gets another number in each batch,
    so that memory does not grow with the file.
    """

    def __init__(self, plan: CheckPlan, path: Path | None) -> None:
        self._plan, self._path = plan, path
        self._next = 0
        self._known = pa.array([], pa.string())
        self._numbers = np.array([], np.int64)  # of the known ones
        self._kept: list[Any] = []
        self._file = pa.ipc.new_file(str(path), self._schema) if path else None

    def code(self, batch: Any) -> Any:
        """The batch with `combo` instead of the dimensions' texts."""
        plan = self._plan
        own = [_text(batch.column(f"c{p}"), plan, p in plan.numeric) for p in plan.grain_positions]
        codes, examples = _combined([batch.column(f"c{p}") for p in plan.dimension_positions], batch.num_rows)
        numbers = self._number(batch.take(pa.array(examples)))
        combo = pa.array(numbers[codes].astype(np.int32))
        return pa.RecordBatch.from_arrays([*batch.columns, *own, combo], schema=_schema(plan, coded=True))

    def table(self) -> Any:
        """All combinations; from the file by memory map."""
        if self._file is None:
            return pa.Table.from_batches(self._kept, self._schema)
        self.close()
        return pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def _schema(self) -> Any:
        return pa.schema(
            [("combo", pa.int32()), *((cell, pa.string()) for cell in self._plan.dimension_cells)]
        )

    def _number(self, distinct: Any) -> Codes:
        """The numbers of these combinations, known or new."""
        keys = _keys([distinct.column(f"c{p}") for p in self._plan.dimension_positions])
        found = pc.index_in(keys, value_set=self._known)
        new = found.is_null()
        fresh = np.arange(self._next, self._next + pc.sum(new).as_py())
        numbers = np.empty(len(keys), np.int64)
        is_new = new.to_numpy(zero_copy_only=False)
        numbers[is_new] = fresh
        numbers[~is_new] = self._numbers[found.drop_null().to_numpy()]
        if len(fresh):
            self._next += len(fresh)
            self._keep(distinct.filter(new), fresh)
            if len(self._known) + len(fresh) <= REMEMBERED:
                self._known = pa.concat_arrays([self._known, keys.filter(new)])
                self._numbers = np.concatenate([self._numbers, fresh])
        return numbers

    def _keep(self, batch: Any, numbers: Codes) -> None:
        texts = {p: _text(batch.column(f"c{p}"), self._plan, False) for p in self._plan.dimension_positions}
        folded = [_folded(texts[p]) for p in self._plan.folded]
        columns = [pa.array(numbers.astype(np.int32)), *texts.values(), *folded]
        kept = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if self._file is None:
            self._kept.append(kept)
        else:
            self._file.write_batch(kept)


def _keys(columns: list[Any]) -> Any:
    """One text for each record: the lengths of its cells, then the cells. Different cells never have equal texts."""
    lengths = [pc.binary_length(column).cast(pa.string()) for column in columns]
    if not columns:
        return pa.array([""], pa.string())
    return pc.binary_join_element_wise(*lengths, *columns, ":", null_handling="replace", null_replacement="-")


def _combined(columns: list[Any], rows: int) -> tuple[Codes, Codes]:
    """A number from 0 for each record, equal if all columns are equal; and the first record of each number."""
    codes, size = np.zeros(rows, np.int64), 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        if size * len(encoded.dictionary) >= 1 << 62:
            codes, size = _renumbered(codes)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        size *= len(encoded.dictionary)
    codes, size = _renumbered(codes)
    examples = np.empty(size, np.int64)
    examples[codes[::-1]] = np.arange(rows - 1, -1, -1)  # the first of each is written last
    return codes, examples


def _renumbered(codes: Codes) -> tuple[Codes, int]:
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Read the next batch while DuckDB works on this one. DuckDB reads a stream with one thread only."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _counted(batches: Iterable[Any], progress: Progress) -> Iterator[Any]:
    for batch in batches:
        progress.add(batch.num_rows)
        yield batch


def _first(batches: Iterator[Any]) -> Iterator[Any]:
    """Enough batches to know whether the file is small."""
    read = 0
    while read < SMALL and (batch := next(batches, None)) is not None:
        read += batch.num_rows
        yield batch


def _with_texts(batch: Any, plan: CheckPlan) -> Any:
    texts = [_text(batch.column(f"c{p}"), plan, p in plan.numeric) for p in plan.positions]
    return pa.RecordBatch.from_arrays([*batch.columns, *texts], schema=_schema(plan, coded=False))


def _schema(plan: CheckPlan, *, coded: bool) -> Any:
    numbers = [(name, pa.int32()) for name in ("row_index", "line", "cells")]
    cells = [(f"c{p}", pa.string()) for p in range(len(plan.layout.header))]
    texts = [(f"t{p}", pa.string()) for p in (plan.grain_positions if coded else plan.positions)]
    combo = [("combo", pa.int32())] if coded else []
    return pa.schema([*numbers, *cells, ("surplus", pa.string()), ("fault", pa.string()), *texts, *combo])


def _text(column: Any, plan: CheckPlan, numeric: bool) -> Any:
    """The trimmed cells, with NULL for empty cells and for texts that mean "no value".

    A numeric field keeps a null marker that is a number, such as 0. Arrow does this several times faster than DuckDB.
    """
    column = pc.utf8_trim(column, SPACE)
    lengths = pc.min_max(pc.binary_length(column)).as_py()
    if lengths["min"] is None:
        return column
    markers = [
        marker
        for marker in ("", *plan.nulls)
        if lengths["min"] <= len(marker.encode()) <= lengths["max"] and not (numeric and marker.isdigit())
    ]
    if not markers:
        return column
    empty = pc.is_in(column, value_set=pa.array(markers, pa.string()))
    return pc.if_else(empty, pa.scalar(None, pa.string()), column)


def _folded(names: Any) -> Any:
    """Names folded for `name:` ids."""
    folded = pc.utf8_lower(pc.utf8_normalize(names, form="NFKC"))
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(folded, pattern=r"\s+", replacement=" "))
