"""What a held upload would do to production: its staged rows beside those that are there, judged as promotion does.

The staged rows are called `excluded` here, as in ON CONFLICT, so that the very expressions of the upsert decide. What
only the write itself can tell, a constraint or a trigger of the table that refuses a row, is not foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any
from uuid import UUID

from psycopg import sql

from weighbridge.db import receipts
from weighbridge.db.declared import SCOPE_TYPES, staging_table
from weighbridge.db.pool import Tx, fetch_all, fetch_one
from weighbridge.db.production import StagingGone, changed, differs, updates
from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Changes, Upload

KINDS = ("inserted", "updated", "unchanged")
WINDOW = 20_000  # staged rows that are looked through at once for a page

Span = tuple[int, int]  # staged rows after the one seq, up to and including the other


@dataclass(frozen=True)
class Change:
    """A column's value before and after, as text. A personal one says only whether there is any."""

    column: str
    old: str | None
    new: str | None
    personal: bool = False


@dataclass(frozen=True)
class Row:
    """A record of the file, as a row of one table."""

    seq: int
    line: int
    key: dict[str, str | None]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class _Shape:
    """What the SQL of a comparison depends on, besides the declaration."""

    types: tuple[tuple[str, str], ...]  # column → its type in production, to which an insert would cast
    no_scope: tuple[str, ...]  # of the scope, what the upload does not say
    no_key: tuple[str, ...] = ()  # of the key, what these rows do not have


async def counts(tx: Tx, pipeline: Pipeline, upload: Upload) -> dict[str, Changes]:
    """By entity, over all staged rows. StagingGone where they are not all there."""
    if upload.staged.get(pipeline.grain.name) != upload.bins.accepted:
        raise StagingGone("other rows are staged than were accepted")
    return {entity.name: await _count(tx, pipeline, entity, upload) for entity in pipeline.entities}


async def _count(tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload) -> Changes:
    spans, known = await _spans(tx, pipeline, entity, upload)
    total, seen = Changes(unchanged=known), 0
    if spans:
        for shape in await _shapes(tx, pipeline, entity, upload):
            row = await fetch_one(tx, _count_sql(pipeline, entity, shape), _params(upload, spans))
            assert row is not None
            rows, inserted, updated = row
            total += Changes(inserted, updated, rows - inserted - updated)
            seen += rows
    if seen != sum(upto - after for after, upto in spans):
        raise StagingGone(f"{seen} staged rows of {entity.name} are there")
    return total


@dataclass(frozen=True)
class Page:
    """Which rows are wanted."""

    entity: str
    kind: str  # of KINDS
    after: int = 0  # a seq
    limit: int = 50


async def rows(tx: Tx, pipeline: Pipeline, upload: Upload, page: Page) -> list[Row]:
    """A page of the rows of one kind, in the order in which they would be written.

    Days that a receipt knows are not staged: among the unchanged ones they are counted, but not here.
    """
    entity = pipeline.entity(page.entity)
    spans, _ = await _spans(tx, pipeline, entity, upload)
    shapes = await _shapes(tx, pipeline, entity, upload)
    found: list[Row] = []
    for window in _windows(spans, page.after):
        of_each = [
            await fetch_all(
                tx,
                _rows_sql(pipeline, entity, shape, page.kind),
                {**_params(upload, [window]), "limit": page.limit - len(found)},
            )
            for shape in shapes
        ]
        merged = sorted(chain.from_iterable(of_each), key=lambda row: int(row[0]))
        found += [_row(entity, page.kind, row) for row in merged[: page.limit - len(found)]]
        if len(found) == page.limit:
            break
    return await _with_names(tx, pipeline, entity, upload, found)


async def _spans(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload
) -> tuple[list[Span], int]:
    """What has to be compared, and how many rows need not be, as receipts say that they are in production."""
    last = upload.staged.get(entity.name, 0)
    runs = await receipts.standing_runs(tx, pipeline, upload.scope) if entity is pipeline.grain else []
    edges = [0, *chain.from_iterable(runs), last]
    between = zip(edges[::2], edges[1::2], strict=True)
    return [(after, upto) for after, upto in between if after < upto], sum(b - a for a, b in runs)


def _windows(spans: Iterable[Span], after: int) -> Iterator[Span]:
    for start, end in spans:
        for first in range(max(start, after), end, WINDOW):
            yield first, min(first + WINDOW, end)


async def _shapes(tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload) -> list[_Shape]:
    """One for each set of key columns that are empty in some rows: an index finds `=` and IS NULL, not both at once."""
    types = await fetch_all(
        tx,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attname = ANY (%s) ORDER BY attname",
        (f"public.{entity.table}", list(entity.columns)),
    )
    scope = tuple(name for name in entity.scope if upload.scope.value(name) is None)
    patterns = await fetch_all(
        tx,
        sql.SQL("SELECT DISTINCT {} FROM {} s WHERE s.upload_id = %s AND s.workspace_id = %s").format(
            sql.SQL(", ").join(sql.SQL("s.{} IS NULL").format(sql.Identifier(c)) for c in entity.key),
            staging_table(pipeline, entity),
        ),
        (upload.id, upload.workspace_id),
    )
    return [
        _Shape(tuple(types), scope, tuple(c for c, empty in zip(entity.key, pattern, strict=True) if empty))
        for pattern in patterns
    ]


def _params(upload: Upload, spans: Sequence[Span]) -> dict[str, Any]:
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
def _count_sql(pipeline: Pipeline, entity: Entity, shape: _Shape) -> bytes:
    query = sql.SQL("SELECT count(*), count(*) FILTER (WHERE {}), count(*) FILTER (WHERE {}) {}").format(
        _is("inserted", entity), _is("updated", entity), _compared(pipeline, entity, shape)
    )
    return query.as_bytes(None)


@cache
def _rows_sql(pipeline: Pipeline, entity: Entity, shape: _Shape, kind: str) -> bytes:
    """Seq, line, the key's columns, and for each value what was and what will be, NULL where it stays."""

    def told(column: str) -> sql.Composable:
        name = sql.Identifier(column)
        if kind == "inserted":
            return sql.SQL(
                "CASE WHEN excluded.{0} IS NOT NULL THEN ARRAY[NULL, excluded.{0}::text] END"
            ).format(name)
        if kind == "updated" and updates(entity):
            return sql.SQL(
                "CASE WHEN t.{0} IS DISTINCT FROM {1} THEN ARRAY[t.{0}::text, ({1})::text] END"
            ).format(name, changed(entity, column))
        return sql.SQL("NULL::text[]")

    columns = [
        sql.SQL("excluded.seq, excluded.line"),
        *(sql.SQL("excluded.{}::text").format(sql.Identifier(c)) for c in entity.key),
        *(told(c) for c in entity.values),
    ]
    query = sql.SQL("SELECT {} {} WHERE {} ORDER BY excluded.seq LIMIT %(limit)s").format(
        sql.SQL(", ").join(columns), _compared(pipeline, entity, shape), _is(kind, entity)
    )
    return query.as_bytes(None)


def _is(kind: str, entity: Entity) -> sql.Composable:
    there, differ = sql.SQL("t.workspace_id IS NOT NULL"), sql.SQL("false")
    if kind == "inserted":
        return sql.SQL("t.workspace_id IS NULL")
    differ_ = differs(entity) if updates(entity) else differ
    word = sql.SQL("") if kind == "updated" else sql.SQL("NOT ")
    return sql.SQL("{} AND {}({})").format(there, word, differ_)


def _compared(pipeline: Pipeline, entity: Entity, shape: _Shape) -> sql.Composed:
    """Staged rows of some spans that lack the same parts of the key, and beside each the row that it would meet."""
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
        " FROM unnest(%(after)s::int[], %(upto)s::int[]) AS r (after, upto) JOIN {staged} s"
        " ON s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s AND s.seq > r.after AND s.seq <= r.upto"
        " WHERE {present}) AS excluded"
        " LEFT JOIN {target} t ON t.workspace_id = %(workspace)s AND {same}"
    ).format(
        columns=sql.SQL(", ").join(cast),
        staged=staging_table(pipeline, entity),
        present=sql.SQL(" AND ").join(present(c) for c in entity.key),
        target=sql.Identifier("public", entity.table),
        same=sql.SQL(" AND ").join(same(c) for c in (*entity.scope, *entity.key)),
    )


def _row(entity: Entity, kind: str, row: Sequence[Any]) -> Row:
    seq, line, *rest = row
    personal = {declared.name for declared in entity.fields if declared.personal}
    key = dict(zip(entity.key, rest, strict=False))
    told = zip(entity.values, rest[len(entity.key) :], strict=True)
    hidden = "…"
    return Row(
        seq,
        line,
        {column: hidden if value and column in personal else value for column, value in key.items()},
        tuple(
            Change(column, pair[0] and hidden, pair[1] and hidden, personal=True)
            if column in personal
            else Change(column, *pair)
            for column, pair in told
            if pair is not None
        ),
    )


async def _with_names(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload, found: list[Row]
) -> list[Row]:
    """Ids of other rows as people know them: by their name, or by their key."""
    names: dict[str, dict[str, str]] = {}
    for ref in entity.refs:
        ids = {row.key.get(ref.name) for row in found}
        for row in found:
            ids |= {told for c in row.changes if c.column == ref.name for told in (c.old, c.new)}
        wanted = [UUID(each) for each in ids if each]
        names[ref.name] = await _names(tx, pipeline, pipeline.entity(ref.entity), upload, wanted)

    def name(column: str, value: str | None) -> str | None:
        return names.get(column, {}).get(value or "", value)

    return [
        replace(
            row,
            key={column: name(column, value) for column, value in row.key.items()},
            changes=tuple(replace(c, old=name(c.column, c.old), new=name(c.column, c.new)) for c in row.changes),
        )
        for row in found
    ]


async def _names(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload, ids: Sequence[UUID]
) -> dict[str, str]:
    open_ = [f.name for f in entity.fields if not f.personal]
    shown = [c for c in ("name", *entity.key) if c in open_]
    if not ids or not shown:
        return {}
    query = sql.SQL(
        "SELECT id::text, coalesce({0}) FROM {1} WHERE workspace_id = %(workspace)s AND id = ANY (%(ids)s)"
        " UNION ALL"
        " SELECT id::text, coalesce({0}) FROM {2}"
        " WHERE upload_id = %(upload)s AND workspace_id = %(workspace)s AND id = ANY (%(ids)s)"
    ).format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c)) for c in shown),
        sql.Identifier("public", entity.table),
        staging_table(pipeline, entity),
    )
    params = {"workspace": upload.workspace_id, "upload": upload.id, "ids": list(ids)}
    return {id_: name for id_, name in await fetch_all(tx, query, params) if name}
