"""Queries of the staging tables. Rows are staged in the order of the production key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Scope
from weighbridge.postgres.copy import copy_batches
from weighbridge.postgres.pipeline_tables import staging_table
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one

_SQL = load(__name__)


async def add(tx: Tx, pipeline: Pipeline, entity: Entity, batches: Sequence[Any]) -> int:
    """Append Arrow batches of an entity's rows."""
    return await copy_batches(tx, staging_table(pipeline, entity), batches)


async def resolve_ids(tx: Tx, pipeline: Pipeline, entity: Entity, scope: Scope) -> None:
    """Record the production id of every staged dimension row; it is derived from the hash of the natural key."""
    await tx.execute(
        sql.SQL(
            "INSERT INTO public.staging_id_resolution"
            " (upload_id, workspace_id, entity_type, natural_key_hash, production_id)"
            " SELECT upload_id, workspace_id, {}, natural_key_hash, id FROM {}"
            " WHERE upload_id = %s AND workspace_id = %s ON CONFLICT DO NOTHING"
        ).format(sql.Literal(entity.name), staging_table(pipeline, entity)),
        (scope.upload_id, scope.workspace_id),
    )


async def add_groups(tx: Tx, batches: Sequence[Any]) -> int:
    """Append the groups of the grain's rows, with their digests."""
    return await copy_batches(tx, sql.Identifier("weighbridge", "staging_groups"), batches)


async def add_rejected_rows(tx: Tx, scope: Scope, batches: Sequence[Any]) -> None:
    """Append rows that parsing rejected. As JSON, because COPY does not work under row-level security."""
    for batch in batches:
        rows = Jsonb(batch.to_pylist())
        await tx.execute(_SQL["add_rejected_rows"], (scope.upload_id, scope.workspace_id, rows))


async def expired(tx: Tx, days: int, pipelines: Sequence[Pipeline]) -> list[UUID]:
    """Finished uploads of these pipelines whose staged rows are past their retention period."""
    await tx.execute("SET LOCAL enable_seqscan = off")  # both branches have an index
    rows = await fetch_all(
        tx,
        _SQL["expired_staging"],
        {"days": days, "pipelines": [pipeline.name for pipeline in pipelines]},
    )
    return [row[0] for row in rows]


async def expire(tx: Tx, upload: UUID, days: int) -> bool:
    """Record that an upload has no staged rows, if it is still finished and old enough; locks it until commit."""
    row = await fetch_one(tx, _SQL["expire_staging"], (upload, days))
    return bool(row and row[0])


async def purge(tx: Tx, pipelines: Sequence[Pipeline], upload: UUID) -> int:
    """Delete the staged rows of an upload. Returns the number of deleted rows."""
    deleted = 0
    tables = [staging_table(p, e) for p in pipelines for e in p.entities]
    tables += [
        sql.Identifier("public", "staging_id_resolution"),
        sql.Identifier("weighbridge", "staging_groups"),
    ]
    for table in tables:
        done = await tx.execute(sql.SQL("DELETE FROM {} WHERE upload_id = %s").format(table), (upload,))
        deleted += done.rowcount
    return deleted
