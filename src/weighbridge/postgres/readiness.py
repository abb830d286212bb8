"""Is the database ready for this version and its pipelines? If not, prepares it."""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres import migrate, pipeline_tables
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


async def missing(tx: Tx, pipelines: Sequence[Pipeline]) -> list[str]:
    """What `make_ready` would do, in words: migrations, SQL functions, then pipelines whose tables are missing."""
    if pending := await migrate.pending(tx):
        return pending
    return [f"tables of the pipeline {name}" for name in await missing_pipelines(tx, pipelines)]


async def missing_pipelines(tx: Tx, pipelines: Sequence[Pipeline]) -> list[str]:
    """Pipelines whose tables do not exist, or were made for another declaration."""
    made: dict[str, str] = dict(await fetch_all(tx, _SQL["installed_pipelines"]))
    return [each.name for each in pipelines if made.get(each.name) != pipeline_tables.fingerprint(each)]


async def make_ready(tx: Tx, pipelines: Sequence[Pipeline], *, reapply: bool = False) -> list[str]:
    """Bring the database to this version's schema, with tables for these pipelines. All or nothing."""
    applied = await migrate.migrate(tx, reapply=reapply)
    made = await pipeline_tables.install(tx, list(pipelines))
    if applied:
        await pipeline_tables.fill_lanes(tx, pipelines)
    return [*applied, *(f"tables of the pipeline {name}" for name in made)]
