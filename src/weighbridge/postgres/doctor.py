"""Queries of `weighbridge doctor`: the state of the schema, the rights of each role, the clock.

Nothing here changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres import migrate, roles
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)

# Triggers that the state machine, import runs and alerts depend on, by table.
GUARDS = {
    "guard_status": "public.data_uploads",
    "alert_on_status": "public.data_uploads",
    "trg_import_runs_status_guard": "ingest.import_runs",
}
_ASKED = 5  # times; the fastest answer measures the clock best


@dataclass(frozen=True)
class Key:
    """A unique key that a table should have."""

    table: str
    columns: str
    nulls_differ: bool = False  # uploads without a batch name are not duplicates

    @property
    def definition(self) -> str:
        return f"UNIQUE {'' if self.nulls_differ else 'NULLS NOT DISTINCT '}({self.columns})"


@dataclass(frozen=True)
class Guard:
    """A trigger that does not fire."""

    table: str
    name: str
    missing: bool  # else it is only disabled


@dataclass(frozen=True)
class Rights:
    """Privileges of a role on a table that it should not have."""

    role: str
    table: str
    rights: str


@dataclass(frozen=True)
class Readable:
    """A table or view that tenants may read, and what leaves it open to other workspaces."""

    table: str
    fault: str | None  # open, no_policy, wide_policy, owners_view


@dataclass(frozen=True)
class GrowingTable:
    """A table that grows with use."""

    name: str
    rows: int  # estimated
    bytes: int  # with indexes
    oldest_days: int | None  # None: it is empty, or too large to look


@dataclass(frozen=True)
class Skew:
    """How far the database's clock is ahead of this machine's, in seconds, and the uncertainty."""

    seconds: float
    doubt: float


def version(tx: Tx) -> int:
    return tx.info.server_version // 10000


async def missing_migrations(tx: Tx) -> list[str]:
    """ConfigError if the database belongs to another version."""
    async with tx.transaction(force_rollback=True):  # the query creates the ledger if there is none
        return await migrate.pending(tx)


async def missing_keys(tx: Tx, pipelines: Sequence[Pipeline]) -> list[Key]:
    """Unique keys that guarantee that a row is written once, of uploads and of every pipeline."""
    wanted = [Key("public.data_uploads", "workspace_id, source_batch_id", nulls_differ=True)]
    for pipeline in pipelines:
        wanted += [
            Key(f"public.{entity.table}", ", ".join(("workspace_id", *entity.scope, *entity.key)))
            for entity in pipeline.entities
        ]
        if pipeline.staged_as:
            table = f"staging.{pipeline.name}_{pipeline.grain.name}"
            wanted.append(Key(table, ", ".join(("upload_id", *pipeline.grain.key))))
    params = {"tables": [key.table for key in wanted], "columns": [key.columns for key in wanted]}
    missing = await fetch_all(tx, _SQL["missing_keys"], params)
    return [key for key in wanted if (key.table, key.columns) in missing]


async def idle_triggers(tx: Tx) -> list[Guard]:
    params = {"tables": list(GUARDS.values()), "names": list(GUARDS)}
    return [Guard(*row) for row in await fetch_all(tx, _SQL["idle_triggers"], params)]


async def unusable_roles(tx: Tx) -> list[str]:
    """Roles that do not exist, or that the login cannot SET ROLE to."""
    return [*await roles.missing(tx), *await roles.closed(tx)]


async def privileged_roles(tx: Tx) -> dict[str, str]:
    """Roles with more power than privileges show, and why."""
    return dict(await fetch_all(tx, _SQL["privileged_roles"], {"roles": list(roles.NAMES)}))


async def excess_rights(tx: Tx, pipelines: Sequence[Pipeline]) -> list[Rights]:
    production = sorted({entity.table for pipeline in pipelines for entity in pipeline.entities})
    params = {"roles": list(roles.NAMES), "production": production}
    return [Rights(*row) for row in await fetch_all(tx, _SQL["excess_rights"], params)]


async def missing_login_rights(tx: Tx) -> list[str]:
    return [right for (right,) in await fetch_all(tx, _SQL["missing_login_rights"])]


async def tenant_tables(tx: Tx) -> list[Readable]:
    return [Readable(*row) for row in await fetch_all(tx, _SQL["tenant_tables"])]


async def growing_tables(tx: Tx) -> list[GrowingTable]:
    """The largest first."""
    return [GrowingTable(*row) for row in await fetch_all(tx, _SQL["growing_tables"])]


async def days_since_retention(tx: Tx) -> int | None:
    [(days,)] = await fetch_all(tx, _SQL["days_since_retention"])
    return None if days is None else int(days)


async def skew(tx: Tx) -> Skew:
    """Measured around the round trip. Compares with the machine's own clock."""
    found = []
    for _ in range(_ASKED):
        before = time.time()
        [(there,)] = await fetch_all(tx, _SQL["database_time"])
        after = time.time()
        found.append(Skew(there.timestamp() - (before + after) / 2, (after - before) / 2))
    return min(found, key=lambda each: each.doubt)


async def clock_shift(tx: Tx) -> float:
    """Seconds by which a test has moved the database's clock."""
    [(seconds,)] = await fetch_all(tx, _SQL["clock_shift"])
    return float(seconds)
