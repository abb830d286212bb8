"""Before a batch is written: is production empty where its rows belong? Then they are inserted without ON CONFLICT.

Staged rows are in the order of the production key, so one look into its index answers for a batch, or for all rows
that are left. A guess from earlier batches would be wrong once per file that was loaded before, and each wrong guess
is an error in Postgres's log, a rollback, and dead rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psycopg import sql
from psycopg.rows import TupleRow

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.postgres.pipeline_tables import SCOPE_TYPES, staging_table
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one
from weighbridge.uploads.upsert_sql import SeqRange

# The columns of the unique index whose order is that of the staged rows, with type, and whether both sort alike.
_INDEX = """
SELECT c.name, c.type, c.sorts_alike
FROM (
    SELECT array_agg(a.attname::text ORDER BY k.place) AS names,
           array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY k.place) AS types,
           array_agg(CASE WHEN t.typcategory = 'S' THEN a.attcollation IN ('"C"'::regcollation, '"POSIX"'::regcollation)
                          ELSE t.typcategory IN ('D', 'N') OR a.atttypid = 'uuid'::regtype END
                     ORDER BY k.place) AS alike
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indoption::int2[]) WITH ORDINALITY AS k (attnum, option, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_type t ON t.oid = a.atttypid
    WHERE i.indrelid = to_regclass(%(table)s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
      AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid
    HAVING bool_and(k.option = 0)
) AS x
CROSS JOIN LATERAL unnest(x.names, x.types, x.alike) AS c (name, type, sorts_alike)
WHERE x.names[cardinality(%(lead)s::text[]) + 1:] = %(key)s::text[]
  AND x.names[:cardinality(%(lead)s::text[])] @> %(lead)s::text[]
"""


Index = list[tuple[str, str, bool]]


class Gaps:
    """The ranges of staged rows in which production was found to have no row. For one promotion."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._gap: tuple[str, int, int] | None = None  # entity, after, upto
        self._searched: tuple[str, int] | None = None  # entity, and where the last search ended without a gap
        self._indexes: dict[str, Index] = {}

    def covers(self, entity: Entity, batch: SeqRange) -> bool:
        """Whether the batch is in a range that was found empty."""
        if self._gap is None:
            return False
        name, after, upto = self._gap
        return name == entity.name and after <= batch.after and batch.upto <= upto

    async def search(self, tx: Tx, entity: Entity, batch: SeqRange, last: int) -> bool:
        """Whether production is empty where the batch belongs; first for all rows up to seq `last`, which are left."""
        if self.covers(entity, batch):
            return True
        ends = (
            [batch.upto]
            if self._searched == (entity.name, batch.after)
            else [max(last, batch.upto), batch.upto]
        )
        for upto in dict.fromkeys(ends):
            if await self._is_empty(tx, entity, replace(batch, upto=upto)):
                self._gap = (entity.name, batch.after, upto)
                return True
        self._searched = (entity.name, batch.upto)
        return False

    def forget(self) -> None:
        """Another upload has written into the gap."""
        self._gap = None

    async def _is_empty(self, tx: Tx, entity: Entity, rows: SeqRange) -> bool:
        """Whether production has no row from the first to the last key of these rows; False if that is unknown."""
        if entity.name not in self._indexes:
            self._indexes[entity.name] = await _key_index(tx, entity)
        index = self._indexes[entity.name]
        ends = await _ends(tx, self._pipeline, entity, rows) if index else []
        if not ends:
            return False
        scope = [(name, SCOPE_TYPES[name], rows.scope.value(name)) for name in entity.scope]
        conditions, values = _equal([("workspace_id", "uuid", rows.scope.workspace_id), *scope])
        key = index[-len(entity.key) :]
        equal = next((i for i, pair in enumerate(zip(*ends, strict=True)) if len(set(pair)) > 1), len(key))
        more, first_values = _equal(
            [(name, type_, ends[0][i]) for i, (name, type_, _) in enumerate(key[:equal])]
        )
        conditions, values = conditions + more, values + first_values
        if equal < len(key):
            name, type_, sorts_alike = key[equal]
            low, high = ends[0][equal], ends[-1][equal]
            if sorts_alike and low is not None and high is not None:  # NULL is behind the last value
                column = sql.Identifier(name)
                conditions.append(
                    sql.SQL("t.{0} >= %s::{1} AND t.{0} <= %s::{1}").format(column, sql.SQL(type_))
                )
                values += [low, high]
        # ORDER BY: along this index in every plan, also with wrong statistics about the workspace.
        query = sql.SQL("SELECT FROM {} t WHERE {} ORDER BY {} LIMIT 1").format(
            sql.Identifier("public", entity.table),
            sql.SQL(" AND ").join(conditions),
            sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in index),
        )
        return await fetch_one(tx, query, values) is None


async def _key_index(tx: Tx, entity: Entity) -> Index:
    lead = ["workspace_id", *entity.scope]
    params = {"table": f"public.{entity.table}", "lead": lead, "key": list(entity.key)}
    return [(name, type_, alike) for name, type_, alike in await fetch_all(tx, _INDEX, params)]


async def _ends(tx: Tx, pipeline: Pipeline, entity: Entity, rows: SeqRange) -> list[TupleRow]:
    """The keys of the first and of the last row."""
    query = sql.SQL(
        "SELECT {} FROM {} s WHERE s.upload_id = %s AND s.workspace_id = %s AND s.seq IN (%s, %s) ORDER BY s.seq"
    ).format(
        sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(c)) for c in entity.key),
        staging_table(pipeline, entity),
    )
    return await fetch_all(
        tx, query, (rows.scope.upload_id, rows.scope.workspace_id, rows.after + 1, rows.upto)
    )


def _equal(columns: Sequence[tuple[str, str, object]]) -> tuple[list[sql.Composable], list[object]]:
    """Conditions and their parameters. An index serves `=` or IS NULL, not both at once."""
    conditions: list[sql.Composable] = []
    for name, type_, value in columns:
        test = "t.{} IS NULL" if value is None else "t.{} = %s::{}"
        conditions.append(sql.SQL(test).format(sql.Identifier(name), sql.SQL(type_)))
    return conditions, [value for _, _, value in columns if value is not None]
