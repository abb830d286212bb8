"""What a check gives: counts, staged rows to copy, rejections. It owns a database; close it."""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from weighbridge.model.pipeline import Entity
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules import dimensions, facts
from weighbridge.rules.plan import Plan, duck_type, literal, quoted

BATCH_ROWS = 50_000


@dataclass(frozen=True)
class Checked:
    """The outcome for one file. A context manager: leaving it drops everything.

    Its iterators are for one thread at a time, and one after the other: DuckDB streams one result at once.
    """

    db: Any
    plan: Plan
    scope: Scope
    bins: Bins
    counts: dict[str, int]  # staged rows by entity
    affected_dates: list[date]
    warnings: list[str]

    @property
    def mapping(self) -> dict[str, str]:
        """Field → the header cell it was read from."""
        return self.plan.layout.mapping

    def staged(self, entity: str, after: int = 0) -> Iterator[Any]:
        """Arrow batches of the entity's rows with seq > after, in that order.

        Columns: upload_id, workspace_id, seq, row_index, line; for dimensions id and natural_key_hash; then
        the entity's own.
        """
        declared = self.plan.pipeline.entity(entity)
        grain = declared is self.plan.pipeline.grain
        ids = {ref.name: self._ids(ref.entity) for ref in declared.refs} if grain else {}
        if not self.counts[entity]:
            return
        columns = f"{_same(self.scope)}, {_grain(self.plan) if grain else _dimension(declared, self.plan)}"
        last = after
        for batch in self.select(f"SELECT {columns} WHERE seq > {after}"):
            first, last = last + 1, last + batch.num_rows
            ends = batch.column("seq")[0].as_py(), batch.column("seq")[-1].as_py()
            assert ends == (first, last), f"staged rows out of order: expected {(first, last)}, got {ends}"
            yield _with_ids(batch, ids)

    def rejections(self) -> Iterator[Any]:
        """Arrow batches of row_index, line, column_name, code, message, more, raw, as in the file."""
        if self.bins.rejected:
            yield from self.select("SELECT * FROM rejections")

    def select(self, sql: str) -> Iterator[Any]:
        """Arrow batches of any query over the checked rows."""
        yield from self.db.sql(sql).to_arrow_reader(BATCH_ROWS)

    def staged_sql(self, entity: str) -> str:
        """SELECT the same rows as `staged`, in any order."""
        declared = self.plan.pipeline.entity(entity)
        if declared is not self.plan.pipeline.grain:
            return f"SELECT {_same(self.scope)}, {_dimension(declared, self.plan)}"
        columns, joins = [f"rows.* EXCLUDE ({', '.join(quoted(ref.name) for ref in declared.refs)})"], []
        for ref in declared.refs:
            parent = self.plan.pipeline.entity(ref.entity)
            if parent in dimensions.entities(self.plan):
                columns.append(f"{quoted(f'{ref.name} row')}.id AS {quoted(ref.name)}")
                joins.append(
                    f"LEFT JOIN ({dimensions.by_number(parent)}) AS {quoted(f'{ref.name} row')}"
                    f" ON {quoted(f'{ref.name} row')}.no = rows.{quoted(ref.name)}"
                )
            else:
                columns.append(f"NULL::UUID AS {quoted(ref.name)}")
        rows = f"(SELECT {_same(self.scope)}, {_grain(self.plan)}) AS rows"
        return f"SELECT {', '.join(columns)} FROM {rows} {' '.join(joins)}"

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ids(self, name: str) -> Any:
        """The ids of an entity by number; nothing has the number 0."""
        nothing = pa.nulls(1, pa.binary(16))
        if not self.counts[name]:
            return nothing
        ids = self.db.sql(
            f"{dimensions.by_number(self.plan.pipeline.entity(name))} ORDER BY no"
        ).to_arrow_table()
        return pa.concat_arrays([nothing, *(chunk.storage for chunk in ids.column("id").chunks)])


def _with_ids(batch: Any, ids: dict[str, Any]) -> Any:
    """Put ids in the place of numbers. A join would do it too, but not keep the order of the rows."""
    for name, by_number in ids.items():
        place = batch.schema.get_field_index(name)
        column = pa.ExtensionArray.from_storage(pa.uuid(), by_number.take(batch.column(place)))
        batch = batch.set_column(place, pa.field(name, pa.uuid()), column)
    return batch


def _same(scope: Scope) -> str:
    upload_id, workspace_id = (
        f"CAST({literal(str(id_))} AS UUID)" for id_ in (scope.upload_id, scope.workspace_id)
    )
    return f"{upload_id} AS upload_id, {workspace_id} AS workspace_id"


def _grain(plan: Plan) -> str:
    columns = [f"{_value(plan, name)} AS {quoted(name)}" for name in plan.pipeline.grain.columns]
    return f"CAST(rowid + 1 AS INTEGER) AS seq, row_index, line, {', '.join(columns)} FROM grain"


def _dimension(entity: Entity, plan: Plan) -> str:
    key = ", ".join(f"{quoted(name)} NULLS LAST" for name in entity.key)
    seq = f"CAST(row_number() OVER (ORDER BY {key}) AS INTEGER) AS seq"
    rows = f"SELECT {seq}, * FROM ({dimensions.rows(entity, plan)})"
    return f"* FROM (SELECT * FROM ({rows}) ORDER BY seq)"


def _value(plan: Plan, name: str) -> str:
    """A column of the grain: a field's value, or a ref's number."""
    held = facts.stored(plan, name)
    if held is not None:
        return held
    full = f"{plan.pipeline.grain.name}.{name}"
    constant = plan.layout.constants.get(full)
    sql_type = duck_type(plan.pipeline.fields[full]) if full in plan.pipeline.fields else "INTEGER"
    return f"CAST({'NULL' if constant is None else literal(constant)} AS {sql_type})"
