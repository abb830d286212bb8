"""Between file and database: the batches of a sheet, with trimmed and folded text beside the raw cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.model.sheet import Sheet
from weighbridge.rules.plan import SPACE, Plan

ENOUGH = 2_000  # records, for a first guess
SMALL = 20_000  # records; up to here a file is held in memory and read once


class Source:
    """The records of a sheet as something DuckDB can scan, any number of times."""

    def __init__(self, plan: Plan, sheet: Sheet, on_rows: Callable[[int], None]) -> None:
        self._plan, self._sheet, self._on_rows = plan, sheet, on_rows
        self._failure: BaseException | None = None
        unread = self._counted(sheet.batches())
        self._head: list[Any] = []
        while sum(batch.num_rows for batch in self._head) < SMALL:
            batch = next(unread, None)
            if batch is None:
                break
            self._head.append(batch)
        else:
            self._unread: Iterator[Any] | None = unread
            self.small = False
            return
        self._unread, self.small = None, True

    def head(self, db: Any) -> str:
        """The first records only; all of them if the file is small."""
        return self._register(db, iter(self._head if self.small else [self._head[0].slice(0, ENOUGH)]))

    def records(self, db: Any) -> str:
        """All records, from the start."""
        if self.small:
            return self._register(db, iter(self._head))
        unread, self._unread = self._unread, None
        return self._register(db, chain(self._head, unread) if unread else self._sheet.batches())

    def run(self, db: Any, sql: str) -> Any:
        """Execute SQL over a source. What goes wrong while reading is raised as itself, not as DuckDB's."""
        try:
            return db.execute(sql)
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _register(self, db: Any, batches: Iterable[Any]) -> str:
        db.register("sheet", pa.RecordBatchReader.from_batches(_schema(self._plan), self._prepared(batches)))
        return "sheet"

    def _counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        read = 0
        for batch in batches:
            read += batch.num_rows
            self._on_rows(read)
            yield batch

    def _prepared(self, batches: Iterable[Any]) -> Iterator[Any]:
        try:
            for batch in batches:
                yield _prepare(batch, self._plan)
        except BaseException as failure:
            self._failure = failure
            raise


def _prepare(batch: Any, plan: Plan) -> Any:
    """Arrow trims and folds several times faster than DuckDB."""
    trimmed = {p: pc.utf8_trim(batch.column(f"c{p}"), SPACE) for p in _used(plan)}
    folded = [_fold(trimmed[plan.layout.columns[name][0]]) for name in plan.folded]
    return pa.RecordBatch.from_arrays([*batch.columns, *trimmed.values(), *folded], schema=_schema(plan))


def _fold(column: Any) -> Any:
    """A name as `name:` ids see it. Names repeat, so each is folded once a batch."""
    names = column.dictionary_encode()
    folded = pc.utf8_lower(pc.utf8_normalize(names.dictionary, form="NFKC"))
    folded = pc.utf8_trim_whitespace(pc.replace_substring_regex(folded, pattern=r"\s+", replacement=" "))
    return folded.take(names.indices)


def _schema(plan: Plan) -> Any:
    numbers = [(name, pa.int32()) for name in ("row_index", "line", "cells")]
    texts = [f"c{p}" for p in range(len(plan.layout.header))] + ["surplus"]
    texts += [f"t{p}" for p in _used(plan)] + [f"k{plan.layout.columns[name][0]}" for name in plan.folded]
    return pa.schema([*numbers, *((name, pa.string()) for name in texts)])


def _used(plan: Plan) -> list[int]:
    used = {position for positions in plan.layout.columns.values() for position in positions}
    return sorted(used | ({plan.layout.ends} if plan.layout.ends is not None else set()))
