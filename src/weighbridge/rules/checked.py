"""What a check gives: counts, staged rows to copy, rejections. It owns the database; close it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    """The outcome for one file. A context manager: leaving it drops everything."""

    db: Any
    plan: Plan
    scope: Scope
    bins: Bins
    counts: dict[str, int]  # staged rows by entity
    affected_dates: list[date]
    warnings: list[str]
    _known_ids: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def mapping(self) -> dict[str, str]:
        """Field → the header cell it was read from."""
        return self.plan.layout.mapping

    def staged(self, entity: str, after: int = 0) -> Iterator[Any]:
        """Arrow batches of the entity's rows with seq > after, in that order.

        Columns: upload_id, workspace_id, seq, row_index, line; for dimensions id and natural_key_hash; then
        the entity's own.
        """
        if not self.counts[entity]:
            return
        refs = self.plan.pipeline.entity(entity).refs
        ids = {ref.name: self._ids(ref.entity) for ref in refs}
        last = after
        for batch in self._batches(_staged(self.plan, self.scope, entity, after)):
            first, last = last + 1, last + batch.num_rows
            ends = batch.column("seq")[0].as_py(), batch.column("seq")[-1].as_py()
            assert ends == (first, last), f"staged rows out of order: expected {(first, last)}, got {ends}"
            yield _with_ids(batch, ids)

    def rejections(self) -> Iterator[Any]:
        """Arrow batches of row_index, line, column_name, code, message, more, raw, in the order of the file."""
        if self.bins.rejected:
            yield from self._batches("SELECT * FROM rejections")

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ids(self, entity: str) -> Any:
        """The ids of an entity by number; nothing has the number 0."""
        if entity not in self._known_ids:
            ids = pa.nulls(1, pa.binary(16))
            if self.counts[entity]:
                table = dimensions.table(self.plan.pipeline.entity(entity))
                found = self.db.sql(f"SELECT id FROM {table} ORDER BY no").to_arrow_table().column("id")
                ids = pa.concat_arrays([ids, *(chunk.storage for chunk in found.chunks)])
            self._known_ids[entity] = ids
        return self._known_ids[entity]

    def _batches(self, sql: str) -> Iterator[Any]:
        yield from self.db.sql(sql).to_arrow_reader(BATCH_ROWS)


def _with_ids(batch: Any, ids: dict[str, Any]) -> Any:
    """Put ids in the place of numbers. A join would do it too, but not keep the order of the rows."""
    for name, by_number in ids.items():
        place = batch.schema.get_field_index(name)
        column = pa.ExtensionArray.from_storage(pa.uuid(), by_number.take(batch.column(place)))
        batch = batch.set_column(place, pa.field(name, pa.uuid()), column)
    return batch


def _staged(plan: Plan, scope: Scope, name: str, after: int) -> str:
    entity = plan.pipeline.entity(name)
    grain = entity is plan.pipeline.grain
    columns = [
        f"CAST({literal(str(scope.upload_id))} AS UUID) AS upload_id",
        f"CAST({literal(str(scope.workspace_id))} AS UUID) AS workspace_id",
        "CAST(rowid + 1 AS INTEGER) AS seq",
        "row_index",
        "line",
        *(() if grain else ("id", "natural_key_hash")),
        *(f"{_column(plan, entity, column)} AS {quoted(column)}" for column in entity.columns),
    ]
    source = "grain" if grain else dimensions.table(entity)
    return f"SELECT {', '.join(columns)} FROM {source} WHERE rowid >= {after}"


def _column(plan: Plan, entity: Entity, name: str) -> str:
    """A field's value, or a ref's number."""
    held = facts.stored(plan, name) if entity is plan.pipeline.grain else dimensions.stored(plan, entity, name)
    if held is not None:
        return held
    full = f"{entity.name}.{name}"
    constant = plan.layout.constants.get(full)
    sql_type = duck_type(plan.pipeline.fields[full]) if full in plan.pipeline.fields else "INTEGER"
    return f"CAST({'NULL' if constant is None else literal(constant)} AS {sql_type})"
