"""Brings a database to this version's schema: tables by numbered migrations, forward only, then the SQL functions.

The schema weighbridge_migrations records each migration with its checksum, and the SQL functions with their digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import LiteralString

from psycopg.errors import DuplicateSchema, DuplicateTable

from weighbridge.model.errors import ConfigError
from weighbridge.postgres import apply_functions, replaced_migrations, roles
from weighbridge.postgres.transactions import Tx, fetch_all

_LEDGER = """
CREATE SCHEMA IF NOT EXISTS weighbridge_migrations;
CREATE TABLE IF NOT EXISTS weighbridge_migrations.applied (
    version int PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS weighbridge_migrations.functions (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_FUNCTIONS = "the current SQL functions"


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: LiteralString

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()

    def __str__(self) -> str:
        return f"migration {self.version:04}_{self.name}"


def migrations() -> list[Migration]:
    """All migrations of this version, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            # The files are part of the program, so their text is as literal as any string in it.
            found.append(Migration(int(number), name, file.read_text()))
    return sorted(found, key=lambda m: m.version)


async def pending(tx: Tx) -> list[str]:
    """What `migrate` would apply, in words. Raises ConfigError if an applied file has changed since."""
    missing = await _pending_migrations(tx)
    current = not missing and await apply_functions.are_current(tx)
    return [*map(str, missing), *([] if current else [_FUNCTIONS])]


async def migrate(tx: Tx, *, reapply: bool = False) -> list[str]:
    """Apply what is missing; concurrent callers wait for each other. All or nothing.

    `reapply`: also the SQL functions, triggers and views, although none has changed.
    """
    await roles.ensure(tx)
    missing = await _pending_migrations(tx)
    if await replaced_migrations.is_last(tx):
        await replaced_migrations.adopt(tx, migrations()[0].checksum)
    if not missing and await apply_functions.are_current(tx) and not reapply:
        return []
    for migration in missing:
        await _apply(tx, migration)
    await apply_functions.apply(tx)
    return [*map(str, missing), _FUNCTIONS]


async def _pending_migrations(tx: Tx) -> list[Migration]:
    version = tx.info.server_version
    if version < 150000:
        raise ConfigError(
            f"Expected PostgreSQL 15 or newer, got {version // 10000}. Point DATABASE_URL at a newer one."
        )
    await tx.execute("SET LOCAL lock_timeout = 0")  # until the other migration has ended
    await tx.execute("SELECT pg_advisory_xact_lock(hashtext('weighbridge.migrate'))")
    await tx.execute(_LEDGER)
    known = migrations()
    if await replaced_migrations.is_last(tx):
        return known[1:]
    rows = await fetch_all(tx, "SELECT version, checksum FROM weighbridge_migrations.applied")
    done: dict[int, str] = dict(rows)
    for migration in known:
        if done.get(migration.version, migration.checksum) != migration.checksum:
            raise ConfigError(
                f"Migration {migration.version:04}_{migration.name} was changed after it was applied. "
                "Undo the change, and put it into a new migration."
            )
    newer = set(done) - {m.version for m in known}
    if newer:
        raise ConfigError(
            f"The database has migration {max(newer)}, but this version of Weighbridge has only {known[-1].version}. "
            "Upgrade Weighbridge."
        )
    return [m for m in known if m.version not in done]


async def _apply(tx: Tx, migration: Migration) -> None:
    try:
        if migration.version == 1:
            await apply_functions.refuse_names_in_use(tx)
            await tx.execute("CREATE SCHEMA weighbridge")
        await apply_functions.define_first(tx)
        await tx.execute(migration.sql)
    except (DuplicateTable, DuplicateSchema) as error:
        raise ConfigError(
            f"Migration {migration.version:04}_{migration.name} cannot be applied: {error.diag.message_primary}. "
            "The existing object does not belong to Weighbridge. Rename it, then run the command again. "
            "Nothing was changed."
        ) from error
    await tx.execute(
        "INSERT INTO weighbridge_migrations.applied (version, name, checksum) VALUES (%s, %s, %s)",
        (migration.version, migration.name, migration.checksum),
    )
