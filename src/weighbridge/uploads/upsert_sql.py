"""Builds and runs the SQL that writes staged rows to production: one statement per batch, from the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from uuid import UUID

from psycopg import sql

from weighbridge.model.columns import NO_COLUMNS, ColumnReport
from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Changes, Scope
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.pipeline_tables import SCOPE_TYPES, staging_table
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one


@dataclass(frozen=True)
class SeqRange:
    """The staged rows after `after` up to and including `upto`, by seq."""

    scope: Scope
    after: int
    upto: int
    lost: tuple[UUID, ...] = ()  # ids of dimension rows that are not in production
    column_report: ColumnReport = NO_COLUMNS  # the columns of the file
    faults: Mapping[int, RowFault] = field(default_factory=dict)  # rows that are not written, by seq

    @property
    def size(self) -> int:
        return self.upto - self.after

    @property
    def skipped(self) -> list[int]:
        return [seq for seq in self.faults if self.after < seq <= self.upto]


class StagingLost(Exception):
    """Staged rows are missing: Postgres crashed, or their retention period is over. Parse the file again."""


async def upsert(
    tx: Tx, pipeline: Pipeline, entity: Entity, batch: SeqRange, *, fresh: bool = False
) -> Changes:
    """Write a batch. A row that exists with the same values is not touched and counts as unchanged.

    `fresh` inserts a batch that is all new without ON CONFLICT, in half the time. If another upload has written such a
    row just now, this raises RowFault("unique_violation"): write the batch again without `fresh`.
    """
    row = await fetch_one(
        tx,
        upsert_sql(pipeline, entity, batch.column_report.filled_of(entity.name), fresh=fresh),
        batch_values(batch),
    )
    assert row is not None
    rows, inserted, updated = row
    if rows != batch.size:
        raise StagingLost(f"{rows} of {batch.size} staged rows of {entity.name} are there")
    return Changes(inserted, updated, rows - len(batch.skipped) - inserted - updated)


def batch_values(batch: SeqRange) -> dict[str, object]:
    """The parameters of a statement that writes the batch."""
    return {
        "upload": batch.scope.upload_id,
        "workspace": batch.scope.workspace_id,
        "client_id": batch.scope.client_id,
        "platform": batch.scope.platform,
        "project_id": batch.scope.project_id,
        "after": batch.after,
        "upto": batch.upto,
        "lost": list(batch.lost),
        "skipped": batch.skipped,
    }


async def missing(tx: Tx, entity: Entity, scope: Scope) -> set[UUID]:
    """Ids that staging_id_resolution has for an entity's rows but that production does not have."""
    # One look into the primary key per id. As a join, and by statistics that do not know the workspace, the planner
    # would expect one row of it, and compare each id with all of its rows. Never prepared: an old plan may be of a time
    # when the table was empty.
    query = sql.SQL(
        "SELECT r.production_id FROM public.staging_id_resolution r"
        " LEFT JOIN LATERAL (SELECT t.id FROM {} t WHERE t.workspace_id = r.workspace_id AND t.id = r.production_id"
        " LIMIT 1) t ON true"
        " WHERE r.upload_id = %s AND r.entity_type = %s AND r.workspace_id = %s AND t.id IS NULL"
    ).format(sql.Identifier("public", entity.table))
    params = (scope.upload_id, entity.name, scope.workspace_id)
    rows = await (await tx.execute(query, params, prepare=False)).fetchall()
    return {row[0] for row in rows}


async def rows_without_parent(
    tx: Tx, pipeline: Pipeline, entity: Entity, scope: Scope, lost: set[UUID]
) -> list[int]:
    """Seqs of rows whose key references a missing parent: without it they would be different rows."""
    found: list[int] = []
    for ref in (ref for ref in entity.refs if ref.name in entity.key):
        query = sql.SQL(
            "SELECT seq FROM {} WHERE upload_id = %s AND workspace_id = %s AND {} = ANY (%s)"
        ).format(staging_table(pipeline, entity), sql.Identifier(ref.name))
        rows = await (await tx.execute(query, (scope.upload_id, scope.workspace_id, list(lost)))).fetchall()
        found += [row[0] for row in rows]
    return sorted(set(found))


async def overwriting(
    tx: Tx, pipeline: Pipeline, scope: Scope, filled: frozenset[str] | None
) -> dict[int, UUID]:
    """Fixed records that would change a row which another record of their original file has loaded.

    By seq, with the upload of the original file. Its staged rows show which rows it loaded; after their retention
    period, the rows that it was the last to change.
    """
    # The planner cannot know how long a chain of links is: other joins would read the rows of all workspaces.
    await tx.execute(
        "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"
    )
    entity = pipeline.grain
    no_scope = tuple(name for name in entity.scope if scope.value(name) is None)
    values = {
        "upload": scope.upload_id,
        "workspace": scope.workspace_id,
        "client_id": scope.client_id,
        "platform": scope.platform,
        "project_id": scope.project_id,
    }
    patterns = await fetch_all(
        tx,
        sql.SQL(
            "SELECT DISTINCT {} FROM {} s WHERE s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s"
        ).format(
            sql.SQL(", ").join(sql.SQL("s.{} IS NULL").format(sql.Identifier(c)) for c in entity.key),
            staging_table(pipeline, entity),
        ),
        values,
    )
    found: dict[int, UUID] = {}
    for pattern in patterns:
        no_key = tuple(c for c, empty in zip(entity.key, pattern, strict=True) if empty)
        found |= dict(await fetch_all(tx, overwriting_sql(pipeline, filled, no_scope, no_key), values))
    return found


@cache
def overwriting_sql(
    pipeline: Pipeline, filled: frozenset[str] | None, no_scope: tuple[str, ...], no_key: tuple[str, ...]
) -> bytes:
    """For rows whose key columns `no_key` are empty: an index serves `=` or IS NULL, not both at once.

    The staged row has the alias `excluded`, as in an upsert, so that the same comparison can be used.
    """
    entity = pipeline.grain

    def of_scope(column: str) -> sql.Composed:
        if column in no_scope:
            return sql.SQL("t.{} IS NULL").format(sql.Identifier(column))
        return sql.SQL("t.{} = %({})s::{}").format(
            sql.Identifier(column), sql.SQL(column), sql.SQL(SCOPE_TYPES[column])
        )

    def same_key(row: str) -> list[sql.Composed]:
        return [
            sql.SQL(
                "{0}.{1} IS NULL AND excluded.{1} IS NULL" if c in no_key else "{0}.{1} = excluded.{1}"
            ).format(sql.SQL(row), sql.Identifier(c))
            for c in entity.key
        ]

    return (
        sql.SQL(
            "WITH RECURSIVE originals AS ("
            " SELECT f.row_index, f.original_upload, f.original_row FROM weighbridge.upload_fixes f"
            " WHERE f.upload_id = %(upload)s"
            " UNION SELECT o.row_index, f.original_upload, f.original_row FROM originals o"
            " JOIN weighbridge.upload_fixes f ON f.upload_id = o.original_upload AND f.row_index = o.original_row)"
            " SELECT DISTINCT ON (excluded.seq) excluded.seq, o.original_upload FROM originals o"
            " JOIN {staged} AS excluded ON excluded.upload_id = %(upload)s AND excluded.workspace_id = %(workspace)s"
            " AND excluded.row_index = o.row_index"
            " JOIN {target} AS t ON t.workspace_id = %(workspace)s AND {key}"
            " WHERE ({differs}) AND (t.upload_id = o.original_upload OR EXISTS ("
            " SELECT FROM {staged} AS s WHERE s.upload_id = o.original_upload AND s.workspace_id = %(workspace)s"
            " AND {same} AND NOT EXISTS (SELECT FROM public.upload_rejections r"
            " WHERE r.upload_id = s.upload_id AND r.row_index = s.row_index)))"
            " ORDER BY excluded.seq, o.original_upload"
        )
        .format(
            staged=staging_table(pipeline, entity),
            target=sql.Identifier("public", entity.table),
            key=sql.SQL(" AND ").join([*map(of_scope, entity.scope), *same_key("t")]),
            same=sql.SQL(" AND ").join(same_key("s")),
            differs=differs(entity, filled) if updates(entity, filled) else other_values(entity, filled),
        )
        .as_bytes(None)
    )


async def rows_naming(
    tx: Tx, pipeline: Pipeline, entity: Entity, batch: SeqRange
) -> list[tuple[int, int, str]]:
    """Rows of the batch that reference a missing parent outside their key: row index, line and the ref."""
    found: list[tuple[int, int, str]] = []
    for ref in (ref for ref in entity.refs if ref.name not in entity.key):
        query = sql.SQL(
            "SELECT row_index, line FROM {} WHERE upload_id = %s AND workspace_id = %s"
            " AND seq > %s AND seq <= %s AND {} = ANY (%s)"
        ).format(staging_table(pipeline, entity), sql.Identifier(ref.name))
        scope = batch.scope
        params = (scope.upload_id, scope.workspace_id, batch.after, batch.upto, list(batch.lost))
        found += [(*row, ref.name) for row in await (await tx.execute(query, params)).fetchall()]
    return found


async def staged_lines(
    tx: Tx, pipeline: Pipeline, entity: Entity, batch: SeqRange
) -> list[tuple[int, int, int]]:
    """Seq, row index and line of the batch's rows, in order."""
    query = sql.SQL(
        "SELECT seq, row_index, line FROM {} WHERE upload_id = %s AND workspace_id = %s AND seq > %s AND seq <= %s"
        " ORDER BY seq"
    ).format(staging_table(pipeline, entity))
    scope = batch.scope
    rows = await (
        await tx.execute(query, (scope.upload_id, scope.workspace_id, batch.after, batch.upto))
    ).fetchall()
    return [(seq, index, line) for seq, index, line in rows]


@cache
def upsert_sql(
    pipeline: Pipeline, entity: Entity, filled: frozenset[str] | None, *, fresh: bool = False
) -> bytes:
    """The statement that writes a batch of an entity's rows and returns the counts.

    `filled` are the columns that the file has; an existing row keeps its values in all others.
    """
    parts = insert_parts(pipeline, entity)
    conflict: sql.Composable = sql.SQL("")
    if fresh:
        pass
    elif not updates(entity, filled):
        conflict = sql.SQL("ON CONFLICT ({}) DO NOTHING").format(parts["key"])
    else:
        assignments = sql.SQL(", ").join(
            [
                *(
                    sql.SQL("{} = {}").format(sql.Identifier(c), changed(entity, c))
                    for c in writable_columns(entity, filled)
                ),
                sql.SQL(
                    "upload_id = excluded.upload_id, line = excluded.line, updated_at = excluded.updated_at"
                ),
            ]
        )
        conflict = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {} WHERE {}").format(
            parts["key"], assignments, differs(entity, filled)
        )
    composed = sql.SQL(
        "WITH written AS ("
        " INSERT INTO {target} AS t ({columns})"
        " SELECT {sources} FROM {staged} s"
        " WHERE s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s AND s.seq > %(after)s AND s.seq <= %(upto)s"
        " AND s.seq <> ALL (%(skipped)s::int[])"
        " ORDER BY s.seq {conflict}"
        " RETURNING (xmax = 0) AS inserted)"
        " SELECT (SELECT count(*) FROM {staged} s WHERE s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s"
        " AND s.seq > %(after)s AND s.seq <= %(upto)s),"
        " count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted) FROM written"
    ).format(**{name: parts[name] for name in ("target", "columns", "sources", "staged")}, conflict=conflict)
    return composed.as_bytes(None)


def insert_parts(pipeline: Pipeline, entity: Entity) -> dict[str, sql.Composable]:
    """Parts of a statement that inserts staged rows: staged, target, its columns, their sources and its key."""
    staged = staging_table(pipeline, entity)
    target = sql.Identifier("public", entity.table)
    lead = ["workspace_id", *entity.scope]
    own = [] if entity is pipeline.grain else ["id"]
    refs = {r.name for r in entity.refs}
    file = [entity.source_file] if entity.source_file else []
    columns = [*lead, *own, *entity.columns, *file, "upload_id", "line", "created_at", "updated_at"]

    def source(column: str) -> sql.Composable:
        if column in entity.scope:
            return sql.SQL("%({})s::{}").format(sql.SQL(column), sql.SQL(SCOPE_TYPES[column]))
        if column in refs:
            # A missing parent becomes NULL; the list is almost always empty.
            return sql.SQL("CASE WHEN s.{0} = ANY (%(lost)s::uuid[]) THEN NULL ELSE s.{0} END").format(
                sql.Identifier(column)
            )
        if column in file:
            return sql.SQL("(SELECT u.filename FROM public.data_uploads u WHERE u.id = %(upload)s)")
        if column in ("created_at", "updated_at"):
            return sql.SQL("(SELECT weighbridge.now())")
        return sql.SQL("s.{}").format(sql.Identifier(column))

    return {
        "staged": staged,
        "target": target,
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "sources": sql.SQL(", ").join(source(c) for c in columns),
        "key": sql.SQL(", ").join(map(sql.Identifier, [*lead, *entity.key])),
    }


def writable_columns(entity: Entity, filled: frozenset[str] | None) -> list[str]:
    """The columns that a row of the file may change: those that the file has."""
    return [column for column in entity.values if filled is None or column in filled]


def updates(entity: Entity, filled: frozenset[str] | None) -> bool:
    """Whether an existing row may be changed at all."""
    return entity.upsert.update is not None and bool(writable_columns(entity, filled))


def changed(entity: Entity, column: str) -> sql.Composed:
    """The new value of a column when the row `excluded` meets the existing row `t`."""
    update = entity.upsert.update
    assert update is not None
    return sql.SQL(update).format(
        old=sql.SQL("t.{}").format(sql.Identifier(column)),
        new=sql.SQL("excluded.{}").format(sql.Identifier(column)),
    )


def other_values(entity: Entity, filled: frozenset[str] | None) -> sql.Composed:
    """Whether the existing row has other values than the new row."""
    columns = writable_columns(entity, filled)
    return sql.SQL(" OR ").join(
        [
            sql.SQL("false"),
            *(sql.SQL("t.{0} IS DISTINCT FROM excluded.{0}").format(sql.Identifier(c)) for c in columns),
        ]
    )


def differs(entity: Entity, filled: frozenset[str] | None) -> sql.Composed:
    """Whether the upsert would change the existing row."""
    columns = writable_columns(entity, filled)
    return sql.SQL("({}) IS DISTINCT FROM ({})").format(
        sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(c)) for c in columns),
        sql.SQL(", ").join(changed(entity, c) for c in columns),
    )
