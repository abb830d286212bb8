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
    known: dict[str, str] = dict(await fetch_all(tx, _SQL["installed_pipelines"]))
    return [
        f"tables of the pipeline {p.name}"
        for p in pipelines
        if known.get(p.name) != pipeline_tables.fingerprint(p)
    ]


async def make_ready(tx: Tx, pipelines: Sequence[Pipeline], *, reapply: bool = False) -> list[str]:
    """Bring the database to this version's schema, with tables for these pipelines. All or nothing."""
    applied = await migrate.migrate(tx, reapply=reapply)
    made = await pipeline_tables.install(tx, list(pipelines))
    return [*applied, *(f"tables of the pipeline {name}" for name in made)]
