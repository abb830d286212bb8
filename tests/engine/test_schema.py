"""Migrations and SQL functions: forward only, applied when they change, with the same result by every path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest

from weighbridge.model.errors import ConfigError
from weighbridge.postgres import apply_functions, migrate, roles, schema
from weighbridge.postgres.transactions import Database

BEFORE_INITIAL = Path(__file__).parent / "database_at_0022.sql"
FUNCTIONS = ["the current SQL functions"]
EVERYTHING = [*map(str, migrate.migrations()), *FUNCTIONS]


@pytest.fixture
async def empty(postgres: str) -> AsyncIterator[str]:
    """The URL of a database without our schema."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield postgres.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def old_database(empty: str) -> str:
    """A database at the last migration before 0001_initial."""
    with psycopg.connect(empty) as connection:
        connection.execute("SET check_function_bodies = off")
        connection.execute(BEFORE_INITIAL.read_bytes())
    return empty


@pytest.fixture
def changed_files(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Apply other texts of apply_functions.sql: `changed_files(engine=lambda text: …)`."""

    def change(**edits: Callable[[str], str]) -> None:
        texts = tuple(
            replace(each, sql=cast(LiteralString, edits[each.subject](each.sql)))
            if each.subject in edits
            else each
            for each in apply_functions.sources()
        )
        monkeypatch.setattr(apply_functions, "sources", lambda: texts)

    return change


async def migrated(url: str, **options: bool) -> list[str]:
    db = Database(url, size=1)
    await db.open()
    try:
        async with db.tx() as tx:
            return await migrate.migrate(tx, **options)
    finally:
        await db.close()


# Migrations ---------------------------------------------------------------------------------------------------


async def test_migrating_twice_changes_nothing(db: Database) -> None:
    async with db.tx() as tx:
        assert await migrate.pending(tx) == []
        assert await migrate.migrate(tx) == []


async def test_an_edited_migration_is_refused(db: Database, query: Any) -> None:
    query("UPDATE weighbridge_migrations.applied SET checksum = 'other' WHERE version = 1")
    with pytest.raises(ConfigError, match="0001_initial was changed after it was applied"):
        async with db.tx() as tx:
            await migrate.pending(tx)


async def test_a_database_with_a_newer_schema_is_refused(db: Database, query: Any) -> None:
    query("INSERT INTO weighbridge_migrations.applied VALUES (9999, 'later', 'x')")
    with pytest.raises(ConfigError, match="Upgrade Weighbridge"):
        async with db.tx() as tx:
            await migrate.pending(tx)


async def test_concurrent_migrations_wait_for_each_other(empty: str) -> None:
    applied = await asyncio.gather(*(migrated(empty) for _ in range(4)))
    assert sorted(applied) == [[], [], [], EVERYTHING]


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [
        ("CREATE SCHEMA weighbridge", 'schema "weighbridge" already exists'),
        ("CREATE TABLE public.projects (id int)", 'relation "projects" already exists'),
        (
            "CREATE VIEW public.csv_processing_jobs AS SELECT 1 AS id",
            "not by Weighbridge: csv_processing_jobs.",
        ),
        (
            "CREATE FUNCTION public.record_provider_outcome() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "not by Weighbridge: record_provider_outcome.",
        ),
    ],
)
async def test_foreign_objects_with_our_names_are_not_overwritten(
    empty: str, theirs: str, refused: str
) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute(theirs.encode())
    with pytest.raises(ConfigError, match=refused):
        await migrated(empty)


# Databases made before 0001_initial ---------------------------------------------------------------------------


async def test_a_database_at_the_last_old_migration_gets_the_same_schema_as_a_new_one(
    old_database: str, postgres: str
) -> None:
    assert await migrated(old_database) == EVERYTHING[1:]
    assert await migrated(old_database) == []
    new = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {new}".encode())
        try:
            url = postgres.replace("/postgres?", f"/{new}?")
            assert await migrated(url) == EVERYTHING
            assert schema.dump(old_database) == schema.dump(url)
        finally:
            connection.execute(f"DROP DATABASE {new} WITH (FORCE)".encode())
    with psycopg.connect(old_database) as connection:
        ledger = connection.execute("SELECT version, name FROM weighbridge_migrations.applied").fetchall()
        assert ledger == [(each.version, each.name) for each in migrate.migrations()]


async def test_a_database_at_an_earlier_old_migration_is_refused(old_database: str) -> None:
    with psycopg.connect(old_database) as connection:
        connection.execute("DELETE FROM weighbridge_migrations.applied WHERE version > 9")
    with pytest.raises(
        ConfigError, match=r"0009_usage of an earlier numbering.*last migration is 0022_fixed_keys"
    ):
        await migrated(old_database)


# SQL functions ------------------------------------------------------------------------------------------------


async def test_functions_are_applied_again_only_when_their_text_changed(
    database_url: str, query: Any, changed_files: Callable[..., None]
) -> None:
    rows = "SELECT sum(xmin::text::bigint) FROM pg_proc WHERE pronamespace = 'weighbridge'::regnamespace"
    before = query(rows)
    assert await migrated(database_url) == []
    assert query(rows) == before
    changed_files(engine=lambda text: text.replace("'lease % is lost'", "'the lease % is lost'"))
    assert await migrated(database_url) == FUNCTIONS
    assert await migrated(database_url) == []
    [(source,)] = query("SELECT prosrc FROM pg_proc WHERE proname = 'fence'")
    assert "'the lease % is lost'" in source


async def test_a_missing_trigger_is_created_again_when_functions_are_applied(
    database_url: str, query: Any
) -> None:
    query("DROP TRIGGER guard_status ON data_uploads")
    assert await migrated(database_url) == []
    assert await migrated(database_url, reapply=True) == FUNCTIONS
    assert query("SELECT count(*) FROM pg_trigger WHERE tgname = 'guard_status'") == [(1,)]


async def test_a_function_that_no_file_defines_is_dropped_with_its_triggers(
    database_url: str, query: Any, changed_files: Callable[..., None]
) -> None:
    query("CREATE FUNCTION ingest.old(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    query("CREATE FUNCTION weighbridge.fence(text) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")
    query("CREATE FUNCTION weighbridge.old() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    query("CREATE TRIGGER old AFTER INSERT ON projects FOR EACH ROW EXECUTE FUNCTION weighbridge.old()")
    query("CREATE FUNCTION public.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    expected = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname IN ('old', 'theirs', 'fence')"
    changed_files(engine=lambda text: text + "-- changed\n")
    assert await migrated(database_url) == FUNCTIONS
    assert sorted(query(expected)) == [("theirs()",), ("weighbridge.fence(uuid)",)]
    assert query("SELECT count(*) FROM pg_trigger WHERE tgname = 'old'") == [(0,)]


async def test_a_function_with_dependent_objects_is_not_dropped(database_url: str, query: Any) -> None:
    query("CREATE FUNCTION weighbridge.old() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    query("CREATE VIEW public.theirs AS SELECT weighbridge.old()")
    with pytest.raises(
        ConfigError, match=r"weighbridge\.old\(\) is not part of this version.*view theirs depends"
    ):
        await migrated(database_url, reapply=True)


async def test_rights_are_exactly_those_of_the_files(database_url: str, query: Any) -> None:
    before = schema.dump(database_url)
    query("GRANT EXECUTE ON FUNCTION weighbridge.finish_upload TO PUBLIC, weighbridge_tenant")
    query("REVOKE EXECUTE ON FUNCTION weighbridge.now FROM PUBLIC")
    query("REVOKE EXECUTE ON FUNCTION weighbridge.fence FROM weighbridge_parse")
    assert schema.dump(database_url) != before
    await migrated(database_url, reapply=True)
    assert schema.dump(database_url) == before
    allowed = query(
        "SELECT r FROM unnest(%s::text[]) r WHERE has_function_privilege(r, 'weighbridge.fence(uuid)', 'EXECUTE')",
        (list(roles.NAMES),),
    )
    assert sorted(allowed) == [("weighbridge_announce",), ("weighbridge_parse",), ("weighbridge_promote",)]


async def test_every_function_body_is_valid_once_all_tables_and_functions_exist(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("SET check_function_bodies = on")
        for source in apply_functions.sources():
            connection.execute(source.sql)
