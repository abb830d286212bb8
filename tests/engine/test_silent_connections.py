"""Connections whose traffic is lost, delayed or reset: each wait has a limit, and work continues afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.database_proxy import DatabaseProxy
from tests.engine.conftest import CLAIM, Put, meta_file
from weighbridge.delivery.context import Context
from weighbridge.engine.leases import Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import ConfigError, RetryLater, WeighbridgeError
from weighbridge.postgres import address, connections
from weighbridge.postgres.listen import notifications
from weighbridge.postgres.transactions import Database, Lease, Timeouts, fetch_one
from weighbridge.uploads import queue
from weighbridge.worker import Worker

SOURCE = Path(connections.__file__).parent.parent
SHORT = Timeouts(statement=1, lock=0.2, check=0.2, margin=0.2, idle_in_transaction=1, pool=1)


@pytest.fixture
def proxy(database_url: str) -> Iterator[DatabaseProxy]:
    with DatabaseProxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def through(proxy: DatabaseProxy) -> AsyncIterator[Database]:
    """The test's database, through the proxy."""
    database = Database(f"{proxy.url}&connect_timeout=2", size=4, timeouts=SHORT)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"postgresql://postgres@127.0.0.1:{listener.getsockname()[1]}/x"


async def one(database: Database) -> None:
    async with database.tx() as tx:
        assert await fetch_one(tx, "SELECT 1") == (1,)


async def swallowed(proxy: DatabaseProxy, database: Database) -> None:
    """A statement whose answer never arrives."""
    async with database.tx() as tx:
        proxy.swallow()
        await tx.execute("SELECT 1")


# Parameters -------------------------------------------------------------------------------------------------


async def test_connections_have_timeouts_unless_the_address_sets_them(
    proxy: DatabaseProxy, database_url: str, query: Any
) -> None:
    name = database_url.split("/")[3].split("?")[0]
    query(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    url = f"{proxy.url}&connect_timeout=7&keepalives_idle=99&options=-c%20search_path%3Dpublic"
    database = Database(url, timeouts=SHORT)
    await database.open()
    async with database.tx() as tx:
        pool = tx.info.get_parameters()
        row = await fetch_one(
            tx,
            "SELECT current_setting('search_path'), current_setting('lock_timeout'),"
            " current_setting('statement_timeout')",
        )
        assert row == ("public", "200ms", "1s")
    await database.close()
    listening = await connections.connect(url)
    beating = connections.connect_blocking(proxy.url, "x", connect_seconds=5, limit=1)
    assert listening.info.get_parameters()["connect_timeout"] == pool["connect_timeout"] == "7"
    assert beating.info.get_parameters()["connect_timeout"] == "5"
    for each in (listening.info.get_parameters(), pool):
        assert (each["keepalives_idle"], each["keepalives_interval"], each["tcp_user_timeout"]) == (
            "99",
            "5",
            "30000",
        )
    level = "SELECT current_setting('transaction_isolation')"
    assert await fetch_one(listening, level) == beating.execute(level).fetchone() == ("read committed",)
    await listening.close()
    beating.close()


def test_only_one_module_opens_connections() -> None:
    opens = re.compile(r"psycopg\.connect\(|(?<!_)Connection\.connect\(")
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if opens.search(file.read_text())}
    assert found == {"postgres/connections.py"}


# Connecting -------------------------------------------------------------------------------------------------


async def test_an_address_that_never_answers_is_reported(silent_address: str) -> None:
    with pytest.raises(ConfigError, match="did not answer in time"):
        await asyncio.wait_for(address.reach(f"{silent_address}?connect_timeout=2"), 10)


async def test_a_transaction_at_an_address_that_never_answers_ends_as_a_lost_connection(
    silent_address: str,
) -> None:
    database = Database(silent_address, timeouts=SHORT)
    await database.open()
    with pytest.raises(RetryLater) as failure:
        await asyncio.wait_for(one(database), 10)
    assert failure.value.kind == "connection"
    await asyncio.wait_for(database.close(), 10)


# The pool ---------------------------------------------------------------------------------------------------


async def test_a_statement_without_an_answer_ends_and_the_next_one_gets_a_new_connection(
    proxy: DatabaseProxy, through: Database
) -> None:
    with pytest.raises(RetryLater) as failure:
        await swallowed(proxy, through)
    assert failure.value.kind == "connection"
    proxy.flow()
    await asyncio.wait_for(one(through), 3)


async def test_dead_idle_connections_are_replaced_with_one_check(
    proxy: DatabaseProxy, through: Database
) -> None:
    lent = asyncio.Barrier(4)

    async def hold() -> None:
        async with through.tx():
            await lent.wait()

    await asyncio.gather(*(hold() for _ in range(4)))
    proxy.swallow()
    proxy.flow()
    await asyncio.sleep(0.5)  # until a connection counts as idle
    before = proxy.connections
    began = time.monotonic()
    await one(through)
    assert time.monotonic() - began < 3 * SHORT.check + 1
    assert proxy.connections > before


async def test_the_pool_works_again_soon_after_a_long_silence(
    proxy: DatabaseProxy, through: Database
) -> None:
    await one(through)
    proxy.swallow()
    for _ in range(2):
        with pytest.raises(RetryLater):
            await one(through)
    proxy.flow()
    await asyncio.wait_for(_until_it_works(through), 10)


async def _until_it_works(database: Database) -> None:
    while True:
        with contextlib.suppress(RetryLater):
            return await one(database)


async def test_cancelling_a_statement_without_an_answer_ends(proxy: DatabaseProxy, through: Database) -> None:
    """Ctrl-C during a command. Postgres is asked to cancel, and does not answer either."""

    asking = asyncio.create_task(swallowed(proxy, through))
    await asyncio.to_thread(proxy.swallowed.wait, 10)
    asking.cancel()
    await asyncio.wait({asking}, timeout=5)
    assert asking.cancelled()


# LISTEN -----------------------------------------------------------------------------------------------------


async def test_a_silent_listener_connects_again(proxy: DatabaseProxy, query: Any) -> None:
    heard = notifications(proxy.url, "weighbridge_work", check_every=0.05, answer=0.3)
    assert await anext(heard) == ""
    query("SELECT pg_notify('weighbridge_work', 'x')")
    assert await anext(heard) == "x"
    proxy.swallow()
    proxy.flow()
    assert await asyncio.wait_for(anext(heard), 10) == ""  # look now: notifications may be lost
    query("SELECT pg_notify('weighbridge_work', 'y')")
    assert await anext(heard) == "y"
    await heard.aclose()  # type: ignore[attr-defined]


# The heartbeat ----------------------------------------------------------------------------------------------


@dataclass
class Work:
    lease: Lease
    interrupted: list[WeighbridgeError] = field(default_factory=list)

    def interrupt(self, reason: WeighbridgeError) -> None:
        self.interrupted.append(reason)


@contextlib.contextmanager
def beating(url: str, lease: timedelta) -> Iterator[Leases]:
    leases = Leases(url, lease, timedelta(hours=1))
    leases.start()
    try:
        yield leases
    finally:
        leases.stop()


@pytest.fixture
def claimed(db: Database, put: Put, query: Any) -> Any:
    """`await claimed(b"content")`: work on an upload, with a lease that has a long time."""

    async def claimed(content: bytes) -> Work:
        await put(content)
        async with db.tx() as tx:
            found = await queue.claim(tx, CLAIM)
        assert found.lease is not None
        return Work(found.lease)

    return claimed


CONNECTED = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'weighbridge heartbeat'"
)
RENEWALS = "SELECT count(*) FROM weighbridge.attempts WHERE renewed_at > opened_at"


async def test_the_heartbeat_needs_no_new_connection_when_work_begins(
    proxy: DatabaseProxy, claimed: Any, query: Any, eventually: Any
) -> None:
    with beating(proxy.url, timedelta(seconds=0.6)) as leases:
        await eventually(lambda: query(CONNECTED))
        proxy.full()
        work = await claimed(b"a")
        with leases.holding(work):
            await eventually(lambda: query(RENEWALS) == [(1,)])


async def test_the_heartbeat_tries_again_soon_if_it_cannot_connect(
    proxy: DatabaseProxy, query: Any, eventually: Any
) -> None:
    proxy.full()
    with beating(proxy.url, timedelta(hours=1)):
        await eventually(lambda: proxy.connections >= 2)
        proxy.flow()
        await eventually(lambda: query(CONNECTED))


async def test_the_heartbeat_replaces_a_dead_connection(
    proxy: DatabaseProxy, claimed: Any, query: Any, eventually: Any
) -> None:
    with beating(proxy.url, timedelta(seconds=1)) as leases:
        work = await claimed(b"a")
        with leases.holding(work):
            await eventually(lambda: query(RENEWALS) == [(1,)])
            proxy.swallow()
            await asyncio.to_thread(proxy.swallowed.wait, 10)
            proxy.flow()
            query(
                "UPDATE weighbridge.attempts SET renewed_at = NULL, lease_until = weighbridge.now() + '1 hour'"
            )
            await eventually(lambda: query(RENEWALS) == [(1,)])
    assert work.interrupted == []


async def test_a_locked_attempt_does_not_cost_the_others_their_leases(
    database_url: str, claimed: Any, query: Any, eventually: Any
) -> None:
    stuck, other = await claimed(b"a"), await claimed(b"b")
    with psycopg.connect(database_url) as blocker:
        blocker.execute(
            "UPDATE weighbridge.attempts SET worker = worker WHERE lease_token = %s", (stuck.lease.token,)
        )
        with (
            beating(database_url, timedelta(seconds=0.6)) as leases,
            leases.holding(stuck),
            leases.holding(other),
        ):
            await eventually(lambda: query(RENEWALS) == [(1,)])
            blocker.rollback()
            await eventually(lambda: query(RENEWALS) == [(2,)])
    assert stuck.interrupted == other.interrupted == []


# A load -----------------------------------------------------------------------------------------------------

LONG = 28, 80  # days and ads: 45 batches of 50 rows


@pytest.mark.parametrize("fault", ["swallow", "reset", "delay"])
async def test_a_load_survives_lost_traffic_with_exact_rows(
    proxy: DatabaseProxy, ctx: Context, put: Put, query: Any, eventually: Any, fault: str
) -> None:
    days, ads = LONG
    upload_id = await put(meta_file(days, ads))
    through = Database(proxy.url, size=8, timeouts=SHORT)
    await through.open()
    ctx = replace(ctx, db=through, limits=replace(ctx.limits, batch_rows=50))
    stop = asyncio.Event()
    options = WorkerOptions(poll=timedelta(seconds=0.1), lease=timedelta(seconds=2))
    running = asyncio.create_task(Worker(ctx, options).run(stop))
    try:
        await eventually(lambda: query("SELECT 1 FROM data_uploads WHERE promoted_rows > 300"))
        match fault:
            case "swallow":
                proxy.swallow()
                await asyncio.to_thread(proxy.swallowed.wait, 10)
                await asyncio.sleep(0.2)
                proxy.flow()
            case "reset":
                proxy.reset()
            case "delay":
                proxy.delay(0.05)
                await asyncio.sleep(0.5)
                proxy.flow()
        await eventually(
            lambda: query("SELECT 1 FROM data_uploads WHERE status = 'completed' AND id = %s", (upload_id,))
        )
    finally:
        stop.set()
        await asyncio.wait_for(running, 20)
        await through.close()
    rows = days * ads
    assert query("SELECT row_count, failed_rows FROM data_uploads") == [(rows, 0)]
    assert query(
        "SELECT count(*), count(DISTINCT (metric_date, ad_id)), sum(impressions) FROM daily_metrics"
    ) == [(rows, rows, 100 * rows)]
