"""Work of one workspace on a database with 200 others: it reads none of their rows, and leaves no error in the log.

Whatever the planner knows: nothing about the new workspace, or nothing about any. `make soak` has ten times as many
rows, and tables that were never analyzed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.engine.tenant import Tenant, service
from tests.proof.workers import LONG

FILL = (Path(__file__).parent / "other_workspaces.sql").read_text()
MANY = 4000 if LONG else 400
# Rows that one kind of work may read of one table. Those of others are more, in every table that it could read.
FEW = 2500
OWN = ("clock", "moves", "providers", "pipelines")  # tables with a few rows for the whole service
_READ = """
SELECT t.relname, coalesce(t.seq_tup_read, 0) + coalesce((
    SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0)
FROM pg_stat_user_tables t
"""


def fill(connection: psycopg.Connection, many: int) -> None:
    connection.execute(FILL.replace("%(many)s", str(many)).replace("%%", "%").encode())


@pytest.fixture(scope="module")
def crowded(postgres: str) -> Iterator[psycopg.Connection]:
    """A connection to a database whose statistics are of the time when it was nearly empty."""
    with fresh_database(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, relname) FROM pg_stat_user_tables"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        [(database,)] = connection.execute("SELECT current_database()").fetchall()
        # Other databases of this server log no errors.
        connection.execute(f"ALTER DATABASE {database} SET log_min_messages = error".encode())
        connection.execute(f"ALTER DATABASE {database} SET log_min_error_statement = error".encode())
        connection.execute("INSERT INTO projects (workspace_id, id, name) VALUES (gen_random_uuid(), 1, 'p')")
        connection.execute("ANALYZE")
        fill(connection, MANY)
        yield connection


@pytest.mark.parametrize("statistics", ["old", *(["none"] if LONG else []), "new"])
async def test_a_workspace_reads_no_rows_of_others_and_leaves_no_error_in_the_log(
    crowded: psycopg.Connection, tmp_path: Path, statistics: str
) -> None:
    match statistics:
        case "none":
            crowded.execute(
                "SELECT pg_clear_relation_stats(schemaname, relname) FROM pg_stat_user_tables;"
                "DELETE FROM pg_statistic"
            )
        case "new":
            crowded.execute("ANALYZE")
    [(log,)] = crowded.execute("SELECT current_setting('data_directory') || '/log'").fetchall()
    logged = Path(log).stat().st_size
    workspace = uuid4()
    for name in Tenant.WORK:
        before = reads(crowded)
        # A process of its own: the counters are complete when its connections have ended.
        async with service(crowded.info.dsn, tmp_path / "home") as app:
            await Tenant(app, workspace=workspace).do(name)
        after = reads(crowded)
        read = {table: after[table] - before.get(table, 0) for table in after if table not in OWN}
        assert {table: rows for table, rows in read.items() if rows > FEW} == {}, name
        with Path(log).open() as file:
            file.seek(logged)
            assert [line for line in file if "ERROR:" in line or "STATEMENT:" in line] == [], name


def reads(connection: psycopg.Connection) -> dict[str, int]:
    """Rows read so far, by table, once the service has no connection."""
    while connection.execute(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    ).fetchone():
        pass
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_clear_snapshot()")
    return {table: int(rows) for table, rows in connection.execute(_READ.encode())}


async def test_the_first_large_file_of_a_workspace_looks_up_each_parent_once(
    postgres: str, tmp_path: Path
) -> None:
    """By the statistics a workspace has one campaign, and the connection has plans for that."""
    ads = 3000
    with fresh_database(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection, 100)
        connection.execute("ANALYZE")
        async with service(url, tmp_path / "home") as app:
            for rows in (2, 2 * ads):
                tenant = Tenant(app, rows=rows)
                await tenant.load(tenant.month(1))
        read = reads(connection)
    # Each ad and ad set has its parents looked up by foreign keys, and each table its ids by the promotion.
    assert max(read[table] for table in ("campaigns", "ad_sets", "ads")) < 5 * ads
