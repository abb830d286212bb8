"""Migrations: forward only, and equal to schema.sql."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from weighbridge.model.errors import ConfigError
from weighbridge.postgres import migrate, schema
from weighbridge.postgres.pool import Database

SCHEMA = Path(__file__).parents[2] / "src" / "weighbridge" / "postgres" / "schema.sql"


def test_the_migrations_equal_schema_sql(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "DROP VIEW staging_rows"
        )  # declared, not migrated; what it reads would be dumped first
    assert schema.dump(database_url) == SCHEMA.read_text(), "run: make schema"


async def test_migrating_twice_changes_nothing(db: Database) -> None:
    async with db.tx() as tx:
        assert await migrate.migrate(tx) == []


async def test_an_edited_migration_is_refused(db: Database, query: Any) -> None:
    query("UPDATE weighbridge_migrations.applied SET checksum = 'other' WHERE version = 1")
    with pytest.raises(ConfigError, match="0001_engine was applied with another text"):
        async with db.tx() as tx:
            await migrate.pending(tx)


async def test_a_database_from_the_future_is_refused(db: Database, query: Any) -> None:
    query("INSERT INTO weighbridge_migrations.applied VALUES (9999, 'later', 'x')")
    with pytest.raises(ConfigError, match="Upgrade Weighbridge"):
        async with db.tx() as tx:
            await migrate.pending(tx)


async def test_processes_that_migrate_at_once_wait_for_each_other(postgres: str) -> None:
    name = "test_migrating_at_once"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        db = Database(postgres.replace("/postgres?", f"/{name}?"))
        await db.open()

        async def once() -> int:
            async with db.tx() as tx:
                return len(await migrate.migrate(tx))

        applied = await asyncio.gather(*(once() for _ in range(4)))
        await db.close()
        assert sorted(applied) == [0, 0, 0, len(migrate.migrations())]
    finally:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
