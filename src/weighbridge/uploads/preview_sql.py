"""Builds the SQL for preview_rows from the declaration of a pipeline.

The staged rows have the alias `excluded`, as in ON CONFLICT, so that the expressions of the upsert can be reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from psycopg import sql

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Upload
from weighbridge.postgres.pipeline_tables import SCOPE_TYPES, staging_table
from weighbridge.postgres.transactions import Tx, fetch_all
from weighbridge.uploads.upsert_sql import changed, differs, updates, writable_columns

Span = tuple[int, int]  # staged rows with first < seq <= second


@dataclass(frozen=True)
class ComparisonShape:
    """What the SQL of a comparison depends on, in addition to the declaration."""

    types: tuple[tuple[str, str], ...]  # column → its type in production, to which an insert would cast
    no_scope: tuple[str, ...]  # scope columns that are empty in this upload
    no_key: tuple[str, ...] = ()  # key columns that are empty in these rows
    filled: frozenset[str] | None = None  # the columns that the file has


async def shapes(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload, spans: Sequence[Span]
) -> list[ComparisonShape]:
    """One for each set of key columns that are empty in some rows: an index serves `=` or IS NULL, not both at once."""
    types = await fetch_all(
        tx,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attname = ANY (%s) ORDER BY attname",
        (f"public.{entity.table}", list(entity.columns)),
    )
    scope = tuple(name for name in entity.scope if upload.scope.value(name) is None)
    patterns = await fetch_all(
        tx,
        sql.SQL("SELECT DISTINCT {} FROM {}").format(
            sql.SQL(", ").join(sql.SQL("s.{} IS NULL").format(sql.Identifier(c)) for c in entity.key),
            _staged(pipeline, entity),
        ),
        params(upload, spans),
    )
    return [
        ComparisonShape(
            tuple(types),
            scope,
            tuple(c for c, empty in zip(entity.key, pattern, strict=True) if empty),
            upload.column_report.filled_of(entity.name),
        )
        for pattern in patterns
    ]


def params(upload: Upload, spans: Sequence[Span]) -> dict[str, Any]:
    scope = upload.scope
    return {
        "upload": scope.upload_id,
        "workspace": scope.workspace_id,
        "client_id": scope.client_id,
        "platform": scope.platform,
        "project_id": scope.project_id,
        "after": [after for after, _ in spans],
        "upto": [upto for _, upto in spans],
    }


@cache
def count_sql(pipeline: Pipeline, entity: Entity, shape: ComparisonShape) -> bytes:
    query = sql.SQL("SELECT count(*), count(*) FILTER (WHERE {}), count(*) FILTER (WHERE {}) {}").format(
        _is("inserted", entity, shape), _is("updated", entity, shape), _compared(pipeline, entity, shape)
    )
    return query.as_bytes(None)


@cache
def rows_sql(pipeline: Pipeline, entity: Entity, shape: ComparisonShape, kind: str) -> bytes:
    """Seq, line, the key columns, and for each value the old and the new one; NULL if it does not change."""

    def compared(column: str) -> sql.Composable:
        name = sql.Identifier(column)
        if kind == "inserted":
            return sql.SQL(
                "CASE WHEN excluded.{0} IS NOT NULL THEN ARRAY[NULL, excluded.{0}::text] END"
            ).format(name)
        if (
            kind == "updated"
            and column in writable_columns(entity, shape.filled)
            and updates(entity, shape.filled)
        ):
            return sql.SQL(
                "CASE WHEN t.{0} IS DISTINCT FROM {1} THEN ARRAY[t.{0}::text, ({1})::text] END"
            ).format(name, changed(entity, column))
        return sql.SQL("NULL::text[]")

    columns = [
        sql.SQL("excluded.seq, excluded.line"),
        *(sql.SQL("excluded.{}::text").format(sql.Identifier(c)) for c in entity.key),
        *(compared(c) for c in entity.values),
    ]
    query = sql.SQL("SELECT {} {} WHERE {} ORDER BY excluded.seq LIMIT %(limit)s").format(
        sql.SQL(", ").join(columns), _compared(pipeline, entity, shape), _is(kind, entity, shape)
    )
    return query.as_bytes(None)


def _is(kind: str, entity: Entity, shape: ComparisonShape) -> sql.Composable:
    if kind == "inserted":
        return sql.SQL("t.workspace_id IS NULL")
    may_change = updates(entity, shape.filled)
    differ: sql.Composable = differs(entity, shape.filled) if may_change else sql.SQL("false")
    same = sql.SQL("NOT " if kind == "unchanged" else "")
    return sql.SQL("t.workspace_id IS NOT NULL AND {}({})").format(same, differ)


def _compared(pipeline: Pipeline, entity: Entity, shape: ComparisonShape) -> sql.Composed:
    """Staged rows of some spans with the same empty key columns, each joined to the production row with its key."""
    empty = set(shape.no_key)

    def present(column: str) -> sql.Composable:
        is_null = sql.SQL("IS NULL") if column in empty else sql.SQL("IS NOT NULL")
        return sql.SQL("s.{} {}").format(sql.Identifier(column), is_null)

    def same(column: str) -> sql.Composable:
        name = sql.Identifier(column)
        if column in empty or column in shape.no_scope:
            return sql.SQL("t.{} IS NULL").format(name)
        if column in entity.scope:
            return sql.SQL("t.{} = %({})s::{}").format(name, sql.SQL(column), sql.SQL(SCOPE_TYPES[column]))
        return sql.SQL("t.{0} = excluded.{0}").format(name)

    cast = [
        sql.SQL("s.{0}::{1} AS {0}").format(sql.Identifier(column), sql.SQL(type_))
        for column, type_ in shape.types
    ]
    return sql.SQL(
        "FROM (SELECT s.seq, s.line, {columns}"
        " FROM {staged} WHERE {present}) AS excluded"
        # One index lookup per row: LIMIT keeps the planner, which has no statistics on rows that were just staged,
        # from choosing another kind of join.
        " LEFT JOIN LATERAL (SELECT t.* FROM {target} t WHERE t.workspace_id = %(workspace)s AND {same} LIMIT 1) t"
        " ON true"
    ).format(
        columns=sql.SQL(", ").join(cast),
        staged=_staged(pipeline, entity),
        present=sql.SQL(" AND ").join(present(c) for c in entity.key),
        target=sql.Identifier("public", entity.table),
        same=sql.SQL(" AND ").join(same(c) for c in (*entity.scope, *entity.key)),
    )


def _staged(pipeline: Pipeline, entity: Entity) -> sql.Composed:
    return sql.SQL(
        "unnest(%(after)s::int[], %(upto)s::int[]) AS r (after, upto) JOIN {} s"
        " ON s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s AND s.seq > r.after AND s.seq <= r.upto"
    ).format(staging_table(pipeline, entity))
