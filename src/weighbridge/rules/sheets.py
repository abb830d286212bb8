"""Between file and database: the batches of a sheet, with trimmed and folded text beside the raw cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.model.sheet import Sheet
from weighbridge.rules.plan import SPACE, Plan

ENOUGH = 2_000  # records, for a first guess
SMALL = 10_000  # records; up to here a file is held in memory and read once


class Source:
    """The records of a sheet as something DuckDB can scan, any number of times."""

    def __init__(self, plan: Plan, sheet: Sheet, on_rows: Callable[[int], None]) -> None:
        self._plan, self._sheet = plan, sheet
        self.failure: BaseException | None = None  # what went wrong while DuckDB was reading
        unread = _counted(sheet.batches(), on_rows)
        head = list(_first(unread))
        self.small = sum(batch.num_rows for batch in head) < SMALL
        self._head = [_prepare(batch, plan) for batch in head]
        self._unread: Iterator[Any] | None = unread

    def head(self, db: Any) -> str:
        """The first records only; all of them if the file is small."""
        return self._register(db, self._head if self.small else [self._head[0].slice(0, ENOUGH)])

    def records(self, db: Any) -> str:
        """All records, from the start."""
        if self.small:
            return self._register(db, self._head)
        if self._unread is None:
            return self._register(db, self._prepared(self._sheet.batches()))
        unread, self._unread = self._unread, None
        return self._register(db, chain(self._head, self._prepared(unread)))

    def _register(self, db: Any, batches: Iterable[Any]) -> str:
        db.register("sheet", pa.RecordBatchReader.from_batches(_schema(self._plan), batches))
        return "sheet"

    def _prepared(self, batches: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from _ahead(_prepare(batch, self._plan) for batch in batches)
        except Exception as failure:
            self.failure = failure
            raise


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Read the next batch while DuckDB, which takes a stream with one thread only, works on this one."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _counted(batches: Iterable[Any], on_rows: Callable[[int], None]) -> Iterator[Any]:
    read = 0
    for batch in batches:
        read += batch.num_rows
        on_rows(read)
        yield batch


def _first(batches: Iterator[Any]) -> Iterator[Any]:
    """Enough batches to know whether the file is small."""
    read = 0
    while read < SMALL and (batch := next(batches, None)) is not None:
        read += batch.num_rows
        yield batch


def _prepare(batch: Any, plan: Plan) -> Any:
    """Arrow trims and folds several times faster than DuckDB."""
    numeric = {p for column in plan.columns if column.numeric for p in column.cells}
    texts = {p: _text(batch.column(f"c{p}"), plan, p in numeric) for p in _used(plan)}
    folded = [_fold(texts[p]) for p in plan.folded]
    return pa.RecordBatch.from_arrays([*batch.columns, *texts.values(), *folded], schema=_schema(plan))


def _text(column: Any, plan: Plan, numeric: bool) -> Any:
    """The cells without outer space, NULL where they are empty or hold a null marker.

    A marker that is a number, such as 0, is a value to a field that holds numbers.
    """
    column = pc.utf8_trim(column, SPACE)
    lengths = pc.min_max(pc.binary_length(column)).as_py()
    if lengths["min"] is None:
        return column
    markers = [
        marker
        for marker in ("", *(plan.profile.nulls if plan.profile else ()))
        if lengths["min"] <= len(marker.encode()) <= lengths["max"] and not (numeric and marker.isdigit())
    ]
    if not markers:
        return column
    empty = pc.is_in(column, value_set=pa.array(markers, pa.string()))
    return pc.if_else(empty, pa.scalar(None, pa.string()), column)


def _fold(column: Any) -> Any:
    """A name as `name:` ids see it. Names repeat, so each is folded once a batch."""
    names = column.dictionary_encode()
    folded = pc.utf8_lower(pc.utf8_normalize(names.dictionary, form="NFKC"))
    folded = pc.utf8_trim_whitespace(pc.replace_substring_regex(folded, pattern=r"\s+", replacement=" "))
    return folded.take(names.indices)


def _schema(plan: Plan) -> Any:
    numbers = [(name, pa.int32()) for name in ("row_index", "line", "cells")]
    texts = [f"c{p}" for p in range(len(plan.layout.header))] + ["surplus"]
    texts += [f"t{p}" for p in _used(plan)] + [f"k{p}" for p in plan.folded]
    return pa.schema([*numbers, *((name, pa.string()) for name in texts)])


def _used(plan: Plan) -> list[int]:
    used = {position for positions in plan.layout.columns.values() for position in positions}
    return sorted(used | ({plan.layout.ends} if plan.layout.ends is not None else set()))
