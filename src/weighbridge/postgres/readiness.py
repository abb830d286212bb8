"""Is the database ready for this version and its pipelines? If not, prepares it."""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres import migrate, pipeline_tables, roles
from weighbridge.postgres.pool import Tx, fetch_all
from weighbridge.postgres.queries import load

_SQL = load(__name__)


async def missing(tx: Tx, pipelines: Sequence[Pipeline]) -> list[str]:
    """What `make_ready` would do, as words: migrations, then pipelines whose tables are not made yet."""
    migrations = await migrate.pending(tx)
    if migrations:
        return [f"migration {m.version:04}_{m.name}" for m in migrations]
    known: dict[str, str] = dict(await fetch_all(tx, _SQL["installed_pipelines"]))
    return [
        f"tables of the pipeline {p.name}"
        for p in pipelines
        if known.get(p.name) != pipeline_tables.fingerprint(p)
    ]


async def make_ready(tx: Tx, pipelines: Sequence[Pipeline]) -> list[str]:
    """Bring the database to the newest schema, with tables for these pipelines. All or nothing."""
    await roles.ensure(tx)
    applied = [f"migration {m.version:04}_{m.name}" for m in await migrate.migrate(tx)]
    made = await pipeline_tables.install(tx, list(pipelines))
    return [*applied, *(f"tables of the pipeline {name}" for name in made)]
