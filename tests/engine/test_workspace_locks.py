"""Transactions of one workspace that stay open block no other: A holds locks of every kind while B does everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.engine.tenant import Tenant, service
from weighbridge.engine import recover

# With the attempts unlocked, recovery and other chores come to A's rows. A's project is locked: no runner claims it.
OTHERS = (
    "attempts",
    "offline_conversion_queue",
    "provider_upload_metrics",
    "provider_health_state",
    "unbroken",
)
HELD: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "all rows": list,
    "all but attempts": lambda tables: [each for each in tables if each.split(".")[1] not in OTHERS],
}
UNFINISHED = (
    "SELECT weighbridge.claim_upload('gone', '{pending,staging_complete}', '{ads,keywords}', '1 minute', 9, 9)",
    "SELECT weighbridge.claim_project('gone', '{keywords}', '1 minute', 9, NULL, 9)",
    "SELECT weighbridge.claim_event_deliveries('gone', '{audit_log,notifier}', '1 minute', 9)",
    "SELECT weighbridge.claim_conversions('gone', '1 minute', ARRAY[gen_random_uuid()], ARRAY[%(site)s::uuid],"
    " '{google_ads}', '{1}')",
    "SELECT set_config('weighbridge.workspace_id', %(a)s::text, false)",
    "INSERT INTO weighbridge.storage_reservations VALUES (%(a)s, gen_random_uuid(), gen_random_uuid(), 1, now())",
    "INSERT INTO weighbridge.resumable_uploads (id, workspace_id, spool_id, request, metadata, length, expires_at)"
    " VALUES (gen_random_uuid(), %(a)s, gen_random_uuid(), '{}', '', 5, now())",
)


@contextmanager
def holding(url: str, workspace: UUID, choose: Callable[[Sequence[str]], list[str]]) -> Iterator[None]:
    """Rows of the workspace, and each advisory lock that its own work takes, in a transaction that stays open."""
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(url))
        stack.callback(connection.rollback)
        tables = connection.execute(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped"
            " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'weighbridge', 'staging')"
        ).fetchall()
        for table in choose([table for (table,) in tables]):
            connection.execute(
                f"SELECT FROM {table} WHERE workspace_id = %s FOR UPDATE".encode(), (workspace,)
            )
        for kind in (1, 3, 4):
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (str(workspace), kind)
            )
        for slot in range(1, 9):
            key = f"{workspace}/{slot}"
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 2))", (key,))
        yield


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """A database that logs each wait for a lock; no other one of this server does."""
    with fresh_database(postgres) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            [(database,)] = connection.execute("SELECT current_database()").fetchall()
            for setting in ("log_min_messages = log", "log_lock_waits = on", "deadlock_timeout = '30ms'"):
                connection.execute(f"ALTER DATABASE {database} SET {setting}".encode())
            # Not longer than that, where a function does not say otherwise.
            connection.execute(f"ALTER DATABASE {database} SET lock_timeout = '1s'".encode())
        yield url


@pytest.mark.parametrize("held", HELD)
async def test_no_statement_of_a_workspace_waits_for_a_lock_of_another(
    url: str, tmp_path: Path, held: str
) -> None:
    async with service(url, tmp_path / "home") as app:
        a = Tenant(app)
        await a.do_everything()
        with psycopg.connect(url, autocommit=True) as connection:
            await unfinished(a, connection)
            [(log,)] = connection.execute("SELECT current_setting('data_directory') || '/log'").fetchall()
            logged = Path(log).stat().st_size
            with holding(url, a.workspace, HELD[held]):
                await Tenant(app).do_everything()
            with Path(log).open() as file:
                file.seek(logged)
                assert [line for line in file if "still waiting for" in line or "ERROR:" in line] == []
            # What was passed over is done later.
            await recover.run(app.db, 9)
            expired = "SELECT queue FROM weighbridge.attempts WHERE closed_at IS NULL"
            assert connection.execute(expired).fetchall() == []


async def unfinished(a: Tenant, connection: psycopg.Connection) -> None:
    """Work of A that was interrupted a day ago: its leases have expired, and chores look after it."""
    await a.send(a.month(28))
    await a.send(b"Keyword,Volume\nlate,1\n", pipeline="keywords", platform=None, project_id=1)
    connection.execute(
        "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, gclid)"
        " SELECT %s, %s, 'late ' || n, now() - INTERVAL '1 hour', 'g' FROM generate_series(1, 3) AS n",
        (a.workspace, a.site),
    )
    for statement in UNFINISHED:
        connection.execute(statement.encode(), {"a": a.workspace, "site": a.site})
    await a.load(a.month(27), status=a.ON_HOLD, preview=True)
    connection.execute("UPDATE weighbridge.clock SET shift = INTERVAL '25 hours'")
