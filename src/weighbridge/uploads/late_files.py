"""Called by promote_entity: writes rows of a late file, when rows of later files are in production already.

A file is late if the later ones did not wait for it: an operator retries it, or it had to wait for the store
(uploads/functions.sql, lane_head). The result must be as if the files had been promoted in the order of their arrival,
so a row of a late file does not replace a row that a later file has written or confirmed: it is superseded.
Upsert.late is what it may do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from psycopg import sql

from weighbridge.model.columns import ColumnReport
from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Changes, Scope, Upload
from weighbridge.postgres.pipeline_tables import staging_table
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one
from weighbridge.uploads.upsert_sql import (
    SeqRange,
    StagingLost,
    batch_values,
    changed,
    insert_parts,
    writable_columns,
)

_SQL = load(__name__)
_WRITTEN = sql.SQL(
    " AND NOT EXISTS (SELECT FROM public.upload_rejections r"
    " WHERE r.upload_id = e.upload_id AND r.row_index = e.row_index AND r.stage = 'promote')"
)
_WRITTEN_LATER = sql.SQL(
    "EXISTS (SELECT FROM public.data_uploads u WHERE u.id = t.upload_id AND u.position > %(position)s)"
)


@dataclass(frozen=True)
class LaterFile:
    scope: Scope
    column_report: ColumnReport


@dataclass(frozen=True)
class LaterFiles:
    """The later files with rows in production."""

    files: tuple[LaterFile, ...]
    groups: tuple[str, ...]  # of rows that they confirmed without staging them

    def columns(self, entity: Entity) -> frozenset[str]:
        """The columns that at least one of them fills."""
        found: set[str] = set()
        for file in self.files:
            filled = file.column_report.filled_of(entity.name)
            found |= set(entity.values if filled is None else filled)
        return frozenset(found)

    def with_scope_of(self, entity: Entity, scope: Scope) -> list[UUID]:
        """Those whose rows can have the same keys."""
        return [
            each.scope.upload_id
            for each in self.files
            if all(each.scope.value(name) == scope.value(name) for name in entity.scope)
        ]


async def later_files(tx: Tx, upload: Upload) -> LaterFiles:
    files, groups = [], set()
    for id_, client, platform, project, report, confirmed in await fetch_all(
        tx, _SQL["later_uploads"], (upload.id,)
    ):
        scope = Scope(id_, upload.workspace_id, client, platform, project)
        files.append(LaterFile(scope, ColumnReport.of(report)))
        groups |= set(confirmed)
    return LaterFiles(tuple(files), tuple(sorted(groups)))


async def confirmed(
    tx: Tx, pipeline: Pipeline, entity: Entity, scope: Scope, later: LaterFiles
) -> frozenset[int]:
    """Seqs of rows whose key a later file has as well, according to its staged rows. It may have changed nothing."""
    key = sql.SQL(", ")
    rows = await fetch_all(
        tx,
        sql.SQL(
            "SELECT DISTINCT s.seq FROM {staged} s JOIN {staged} e ON ROW({own})::text = ROW({other})::text"
            " WHERE s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s"
            " AND e.upload_id = ANY (%(later)s) AND e.workspace_id = %(workspace)s"
            "{written}"
        ).format(
            written=_WRITTEN if entity is pipeline.grain else sql.SQL(""),
            staged=staging_table(pipeline, entity),
            own=key.join(sql.SQL("s.{}").format(sql.Identifier(name)) for name in entity.key),
            other=key.join(sql.SQL("e.{}").format(sql.Identifier(name)) for name in entity.key),
        ),
        {
            "upload": scope.upload_id,
            "workspace": scope.workspace_id,
            "later": later.with_scope_of(entity, scope),
        },
    )
    return frozenset(seq for (seq,) in rows)


async def upsert_late(
    tx: Tx,
    pipeline: Pipeline,
    entity: Entity,
    batch: SeqRange,
    *,
    position: int,
    later: LaterFiles,
    confirmed: Collection[int],
) -> Changes:
    """Write a batch as upsert_sql.upsert does. Rows that a later file has written or confirmed count as superseded."""
    filled = batch.column_report.filled_of(entity.name)
    values = {
        **batch_values(batch),
        "position": position,
        "groups": list(later.groups),
        "confirmed": [seq for seq in confirmed if batch.after < seq <= batch.upto],
    }
    total, rows = Changes(), 0
    for is_confirmed in (False, True):
        statement = late_sql(pipeline, entity, filled, later.columns(entity), is_confirmed)
        row = await fetch_one(tx, statement, values)
        assert row is not None
        rows, inserted, updated, superseded = row
        total += Changes(inserted, updated, 0, superseded)
    if rows != batch.size:
        raise StagingLost(f"{rows} of {batch.size} staged rows of {entity.name} are there")
    unchanged = rows - len(batch.skipped) - total.inserted - total.updated - total.superseded
    return total + Changes(unchanged=unchanged)


@cache
def late_sql(
    pipeline: Pipeline,
    entity: Entity,
    filled: frozenset[str] | None,
    later_columns: frozenset[str],
    is_confirmed: bool,
) -> bytes:
    """The statement for the rows that a later file confirmed, or for the others.

    A superseded row is written again with its own values, so that RETURNING shows it. It stays a row of the later file.
    """
    parts = insert_parts(pipeline, entity)
    columns = writable_columns(entity, filled)
    takes_over = (
        entity.upsert.update is None
    )  # the row of the first file counts, and this file may have come first
    later: sql.Composable = _WRITTEN_LATER
    if not takes_over:
        later = sql.SQL("true") if is_confirmed else _is_later(pipeline, entity)

    def value(column: str) -> sql.Composed:
        late = column in later_columns or takes_over
        return sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(
            later, _late(entity, column) if late else _in_order(entity, column), _in_order(entity, column)
        )

    def listed(values: list[sql.Composed]) -> sql.Composed:
        return sql.SQL(", ").join(values)

    old = listed([sql.SQL("t.{}").format(sql.Identifier(name)) for name in columns])
    wanted = [_late(entity, name) if takes_over else changed(entity, name) for name in columns]
    conflict: sql.Composable = sql.SQL("DO NOTHING")
    if columns:
        owner = sql.SQL("false") if takes_over else later
        assigned = [sql.SQL("{} = {}").format(sql.Identifier(name), value(name)) for name in columns]
        assigned += [
            sql.SQL("{0} = CASE WHEN {1} THEN t.{0} ELSE excluded.{0} END").format(
                sql.Identifier(name), owner
            )
            for name in ("upload_id", "line")
        ]
        assigned.append(
            sql.SQL(
                "updated_at = CASE WHEN ({}) IS DISTINCT FROM ({}) THEN excluded.updated_at ELSE t.updated_at END"
            ).format(old, listed([value(name) for name in columns]))
        )
        conflict = sql.SQL("DO UPDATE SET {} WHERE ({}) IS DISTINCT FROM ({}){}").format(
            listed(assigned),
            old,
            listed(wanted),
            sql.SQL(" AND {}").format(later) if takes_over else sql.SQL(""),
        )
    rows = sql.SQL(
        "s.seq = ANY (%(confirmed)s::int[])" if is_confirmed else "s.seq <> ALL (%(confirmed)s::int[])"
    )
    return (
        sql.SQL(
            "WITH written AS ("
            " INSERT INTO {target} AS t ({columns}) SELECT {sources} FROM {staged} s"
            " WHERE s.upload_id = %(upload)s AND s.workspace_id = %(workspace)s AND s.seq > %(after)s"
            " AND s.seq <= %(upto)s AND s.seq <> ALL (%(skipped)s::int[]) AND {rows}"
            " ORDER BY s.seq ON CONFLICT ({key}) {conflict}"
            " RETURNING (xmax = 0) AS inserted, t.upload_id = %(upload)s AS own)"
            " SELECT (SELECT count(*) FROM {staged} s WHERE s.upload_id = %(upload)s"
            " AND s.workspace_id = %(workspace)s AND s.seq > %(after)s AND s.seq <= %(upto)s),"
            " count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted AND own),"
            " count(*) FILTER (WHERE NOT inserted AND NOT own) FROM written"
        )
        .format(**parts, rows=rows, conflict=conflict)
        .as_bytes(None)
    )


def _is_later(pipeline: Pipeline, entity: Entity) -> sql.Composable:
    """Whether a later file has written the existing row, or has confirmed its group."""
    if entity is not pipeline.grain or not pipeline.grouped or pipeline.affected is None:
        return _WRITTEN_LATER
    return sql.SQL("({} OR t.{}::text = ANY (%(groups)s::text[]))").format(
        _WRITTEN_LATER, sql.Identifier(pipeline.affected)
    )


def _late(entity: Entity, column: str) -> sql.Composed:
    return _filled_in(entity.upsert.late, column)


def _in_order(entity: Entity, column: str) -> sql.Composed:
    return _filled_in(entity.upsert.update or "{old}", column)


def _filled_in(expression: str, column: str) -> sql.Composed:
    return sql.SQL(expression).format(
        old=sql.SQL("t.{}").format(sql.Identifier(column)),
        new=sql.SQL("excluded.{}").format(sql.Identifier(column)),
    )
