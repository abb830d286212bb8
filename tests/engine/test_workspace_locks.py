"""Transactions of one workspace that stay open block no other: A holds locks of every kind while B does everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.engine.tenant import Tenant, service
from weighbridge.app import App
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.context import outbound_of
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.queue import BatchRequest, CallResult, Settled
from weighbridge.delivery.settle import SettlementBatcher
from weighbridge.engine import recover
from weighbridge.model.delivery import Category, Outcome
from weighbridge.postgres import roles

# With the attempts unlocked, recovery and other chores come to A's rows. A's project is locked: no runner claims it.
OTHERS = (
    "attempts",
    "offline_conversion_queue",
    "provider_upload_metrics",
    "provider_health_state",
    "unbroken",
)
# What deliveries and storage count at the end: with the rest unlocked, they come as far as that with A's rows.
COUNTERS = ("provider_upload_metrics", "provider_health_state", "provider_credentials", "storage_usage")
HELD: dict[str, Callable[[str], bool]] = {
    "all rows": lambda table: True,
    "all but attempts": lambda table: table not in OTHERS,
    "only counters": lambda table: table in COUNTERS,
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
    " VALUES (gen_random_uuid(), %(a)s, gen_random_uuid(), jsonb_build_object('workspace_id', %(a)s::text), '', 5,"
    " now())",
    # A blob that is deleted and still counted, and one that is not counted.
    "UPDATE data_uploads SET storage_status = 'removed' WHERE workspace_id = %(a)s AND id ="
    " (SELECT id FROM data_uploads WHERE workspace_id = %(a)s AND status = 'completed'"
    " AND pipeline = 'judgments' ORDER BY created_at LIMIT 1)",
    "INSERT INTO weighbridge.uncounted_blobs (upload_id, workspace_id, user_id, bytes)"
    " SELECT id, workspace_id, gen_random_uuid(), 5 FROM data_uploads WHERE workspace_id = %(a)s"
    " AND storage_status = 'stored' AND status = 'completed' LIMIT 1",
)


# Expired attempts, expired conversions, deleted blobs that are counted, and blobs that are not.
LEFT = """
SELECT (SELECT count(*) FROM weighbridge.attempts WHERE closed_at IS NULL),
       (SELECT count(*) FROM offline_conversion_queue
        WHERE status IN ('QUEUED', 'RETRY') AND expires_at < weighbridge.now()),
       (SELECT count(*) FROM data_uploads WHERE storage_status = 'removed' AND blob_removed_at IS NULL),
       (SELECT count(*) FROM weighbridge.uncounted_blobs)
"""

UNSENT = "SELECT FROM offline_conversion_queue WHERE workspace_id = %s AND status <> 'COMPLETED'"


@contextmanager
def holding(url: str, workspace: UUID, held: Callable[[str], bool]) -> Iterator[None]:
    """Rows of the workspace, and each advisory lock that its own work takes, in a transaction that stays open."""
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(url))
        stack.callback(connection.rollback)
        tables = connection.execute(
            "SELECT format('%I.%I', n.nspname, c.relname), c.relname"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped"
            " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'weighbridge', 'staging')"
        ).fetchall()
        for table, name in tables:
            if held(name):
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
        a, b, calls = Tenant(app), Tenant(app), InFlight()
        for name in ("judgments", "conversions") if held == "only counters" else Tenant.WORK:
            await a.do(name)
        await b.conversions()
        with psycopg.connect(url, autocommit=True) as connection:
            await unfinished(a, connection)
            results = await in_flight(app, connection, a, b)
            [(log,)] = connection.execute("SELECT current_setting('data_directory') || '/log'").fetchall()
            logged = Path(log).stat().st_size
            with holding(url, a.workspace, HELD[held]):
                settlements = SettlementBatcher(app.ctx, outbound_of(app.ctx))
                of_a, of_b = (asyncio.create_task(settlements.settle(each, linger=0)) for each in results)
                async with asyncio.timeout(5):
                    assert await of_b == Settled(completed=1, failed=0, retry=0)
                assert not of_a.done()
                if held == "only counters":  # files of A are not locked: a worker would load them
                    sell(connection, b)
                    await deliver(app.ctx, "test", 500, calls)
                    assert connection.execute(UNSENT, (b.workspace,)).fetchall() == []
                    await b.chores()
                else:
                    await Tenant(app).do_everything()
            with Path(log).open() as file:
                file.seek(logged)
                assert [line for line in file if "still waiting for" in line or "ERROR:" in line] == []
            # What was passed over is done later.
            await calls.settle_held()
            assert await of_a == Settled(completed=0, failed=0, retry=1)
            await recover.run(app.db, 9)
            await b.chores()
            assert connection.execute(LEFT.encode()).fetchall() == [(0, 0, 0, 0)]


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
    connection.execute("UPDATE weighbridge.clock SET shift = INTERVAL '73 hours'")


async def in_flight(app: App, connection: psycopg.Connection, *tenants: Tenant) -> list[CallResult]:
    """A call for each tenant, claimed together. The first is refused, and its tenant has an expired conversion."""
    for tenant in tenants:
        sell(connection, tenant)
    requests = [BatchRequest(GroupKey(each.site, "google_ads"), 1) for each in tenants if each.site]
    async with app.db.tx(roles.DELIVER) as tx:
        claimed = await delivery_queue.claim(tx, "test", timedelta(minutes=5), requests)
    sell(connection, tenants[0], days=100)
    refused = Outcome.retry("REFUSED", "The credentials are refused.", Category.AUTH)
    first, *others = await claimed.read()
    return [
        CallResult(first, [refused], credentials_refused=True, credentials_version=1),
        *(CallResult(each, [Outcome.completed("r")], success=True) for each in others),
    ]


def sell(connection: psycopg.Connection, tenant: Tenant, days: int = 1) -> None:
    connection.execute(
        "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, gclid)"
        " VALUES (%s, %s, gen_random_uuid()::text, weighbridge.now() - %s * INTERVAL '1 day', 'g')",
        (tenant.workspace, tenant.site, days),
    )
