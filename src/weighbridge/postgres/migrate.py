"""Brings a database to the newest schema: numbered files, forward only, all in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import LiteralString

from psycopg.errors import DuplicateSchema, DuplicateTable

from weighbridge.model.errors import ConfigError
from weighbridge.postgres.pool import Tx, fetch_all

_LEDGER = """
CREATE SCHEMA IF NOT EXISTS weighbridge_migrations;
CREATE TABLE IF NOT EXISTS weighbridge_migrations.applied (
    version int PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: LiteralString

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


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


async def pending(tx: Tx) -> list[Migration]:
    """What migrate would apply. Raises ConfigError where an applied file has changed since."""
    version = tx.info.server_version
    if version < 150000:
        raise ConfigError(
            f"Expected PostgreSQL 15 or newer, got {version // 10000}. Point DATABASE_URL at a newer one."
        )
    await tx.execute("SELECT pg_advisory_xact_lock(hashtext('weighbridge.migrate'))")
    await tx.execute(_LEDGER)
    rows = await fetch_all(tx, "SELECT version, checksum FROM weighbridge_migrations.applied")
    done: dict[int, str] = dict(rows)
    known = migrations()
    for migration in known:
        if done.get(migration.version, migration.checksum) != migration.checksum:
            raise ConfigError(
                f"Migration {migration.version:04}_{migration.name} was applied with another text. "
                "Migrations are never edited: undo the edit and add a new one."
            )
    newer = set(done) - {m.version for m in known}
    if newer:
        raise ConfigError(
            f"The database has migration {max(newer)}, this version of Weighbridge ends at {known[-1].version}. "
            "Upgrade Weighbridge."
        )
    return [m for m in known if m.version not in done]


async def migrate(tx: Tx) -> list[Migration]:
    """Apply what is missing; concurrent callers wait for each other. All or nothing."""
    missing = await pending(tx)
    for migration in missing:
        try:
            await tx.execute(migration.sql)
        except (DuplicateTable, DuplicateSchema) as error:
            raise ConfigError(
                f"Migration {migration.version:04}_{migration.name} cannot be applied: {error.diag.message_primary}, "
                "and it is not Weighbridge's. Rename yours, then run it again; nothing was changed."
            ) from error
        await tx.execute(
            "INSERT INTO weighbridge_migrations.applied (version, name, checksum) VALUES (%s, %s, %s)",
            (migration.version, migration.name, migration.checksum),
        )
    return missing
