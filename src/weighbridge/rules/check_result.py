"""After the checks: the result of one file, with counts, staged rows and rejections. It owns a database: close it."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from weighbridge.model.columns import ColumnReport
from weighbridge.model.pipeline import Entity
from weighbridge.model.read_as import UNDECIDED, ReadAs
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules import accepted_rows, dimensions
from weighbridge.rules.check_plan import CheckPlan, duck_type, literal, quoted
from weighbridge.rules.check_tables import Tables

BATCH_ROWS = 20_000


@dataclass(frozen=True)
class CheckResult:
    """The result for one file. A context manager that closes its database.

    Use one iterator at a time, in one thread: DuckDB streams one result per connection.
    """

    db: Tables
    plan: CheckPlan
    scope: Scope
    bins: Bins
    counts: dict[str, int]  # staged rows by entity
    affected_dates: list[date]
    warnings: dict[str, str]  # about the whole file: code → sentence
    column_report: ColumnReport
    header_line: int
    linked: bool = False  # the file is a fixed rejects file
    summed: bool = False  # records were added up
    read_as: ReadAs = UNDECIDED

    @property
    def mapping(self) -> dict[str, str]:
        """Field → the header of its column."""
        return self.plan.layout.mapping

    def staged(self, entity: str, after: int = 0) -> Iterator[Any]:
        """Arrow batches of the entity's rows with seq > after, in that order.

        Columns: upload_id, workspace_id, seq, row_index, line; for dimensions id and natural_key_hash; then the columns
        of the entity.
        """
        declared = self.plan.pipeline.entity(entity)
        grain = declared is self.plan.pipeline.grain
        ids = {ref.name: self._ids(ref.entity) for ref in declared.refs} if grain else {}
        if not self.counts[entity]:
            return
        last = after
        resumed = f" WHERE rowid >= {after}" if after else ""
        for batch in self.select(f"{self._rows(declared)}{resumed}"):
            first, last = last + 1, last + batch.num_rows
            ends = batch.column("seq")[0].as_py(), batch.column("seq")[-1].as_py()
            assert ends == (first, last), f"staged rows out of order: expected {(first, last)}, got {ends}"
            yield _with_ids(batch, ids)

    def rejections(self) -> Iterator[Any]:
        """Arrow batches of row_index, line, column_name, code, message, more, raw, in the order of the file."""
        if self.bins.rejected:
            yield from self.select("SELECT * FROM rejections")

    def fixes(self) -> Iterator[Any]:
        """Arrow batches of row_index, original_upload, original_row: the rejected records that these records fix."""
        if self.linked:
            yield from self.select("SELECT * FROM fixes")

    def parts(self) -> Iterator[Any]:
        """Arrow batches of first, row_index, line: the records that were added up, and the record with their sum."""
        if self.summed:
            yield from self.select("SELECT * FROM parts ORDER BY row_index")

    def select(self, sql: str) -> Iterator[Any]:
        """Arrow batches of any query over the checked rows."""
        yield from self.db.batches(sql, BATCH_ROWS)

    def staged_sql(self, entity: str) -> str:
        """SELECT the same rows as `staged`, in any order."""
        declared = self.plan.pipeline.entity(entity)
        rows = self._rows(declared)
        if declared is not self.plan.pipeline.grain:
            return rows
        columns, joins = [], []
        for ref in declared.refs:
            ids = f"SELECT row_number() OVER (ORDER BY id) AS no, id FROM {self._table(ref.entity)}"
            name, parent = quoted(ref.name), quoted(f"{ref.name} row")
            columns.append(f"{parent}.id AS {name}")
            joins.append(f"LEFT JOIN ({ids}) AS {parent} ON {parent}.no = rows.{name}")
        replaced = f"REPLACE ({', '.join(columns)})" if columns else ""
        return f"SELECT rows.* {replaced} FROM ({rows}) AS rows {' '.join(joins)}"

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ids(self, entity: str) -> Any:
        """The ids of an entity, indexed by number. Numbers begin at 1."""
        ids = self.select(f"SELECT id FROM {self._table(entity)} ORDER BY id")
        return pa.concat_arrays([pa.nulls(1, pa.binary(16)), *(batch.column("id").storage for batch in ids)])

    def _rows(self, entity: Entity) -> str:
        """SELECT the rows of an entity. The position of a row in its table is its seq."""
        columns = [
            *(f"CAST({self.db.value(name)} AS UUID) AS {name}" for name in ("upload_id", "workspace_id")),
            "CAST(rowid + 1 AS INTEGER) AS seq",
            "row_index",
            "line",
        ]
        if entity is self.plan.pipeline.grain:
            columns += [f"{_value(self.plan, name)} AS {quoted(name)}" for name in entity.columns]
            table = "grain"
        else:
            columns += ["id", "natural_key_hash", *map(quoted, entity.columns)]
            table = dimensions.table(entity)
        return f"SELECT {', '.join(columns)} FROM {self.db.numbered(table)}"

    def _table(self, entity: str) -> str:
        found = self.counts[entity]
        return (
            dimensions.table(self.plan.pipeline.entity(entity))
            if found
            else "(SELECT NULL::UUID AS id LIMIT 0)"
        )


def _with_ids(batch: Any, ids: dict[str, Any]) -> Any:
    """Replace numbers by ids. A join would not keep the order of the rows."""
    for name, by_number in ids.items():
        place = batch.schema.get_field_index(name)
        column = pa.ExtensionArray.from_storage(pa.uuid(), by_number.take(batch.column(place)))
        batch = batch.set_column(place, pa.field(name, pa.uuid()), column)
    return batch


def _value(plan: CheckPlan, name: str) -> str:
    """SQL for a column of the grain: the value of a field, or the number of a referenced entity."""
    held = accepted_rows.grain_column(plan, name)
    if held is not None:
        return held
    full = f"{plan.pipeline.grain.name}.{name}"
    constant = plan.layout.constants.get(full)
    sql_type = duck_type(plan.pipeline.fields[full]) if full in plan.pipeline.fields else "INTEGER"
    return f"CAST({'NULL' if constant is None else literal(constant)} AS {sql_type})"
