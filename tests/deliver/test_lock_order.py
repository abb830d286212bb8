"""Operators' changes of many rows neither deadlock with changes of sales nor report rows that they could not lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.deliver.conftest import MakeSite, Query, Sell
from tests.deliver.test_recovery import claim
from weighbridge.delivery.queue import FailedFilter
from weighbridge.delivery.retry_failed import retry_failed
from weighbridge.postgres.transactions import Database

FAILED = (
    "UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_category = 'VALIDATION',"
    " provider_error_code = 'INVALID'"
)
POSTPONED = (
    "UPDATE offline_conversion_queue SET status = 'RETRY', provider_error_category = 'TRANSIENT',"
    " next_retry_at = weighbridge.now() + interval '1 hour'"
)
CHANGE = "UPDATE sales SET value = 99 WHERE id = %s"


@pytest.fixture
async def application(database_url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """An application that changes sales in a transaction of its own."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        yield connection


async def test_a_retry_of_failed_conversions_does_not_deadlock_with_a_change_of_their_sales(
    db: Database, make_site: MakeSite, sell: Sell, query: Query, application: psycopg.AsyncConnection,
    workspace: UUID,
) -> None:  # fmt: skip
    first, second = sell(make_site(), 2)
    query(FAILED)
    await application.execute(CHANGE, (second,))
    async with db.tx() as tx:
        await tx.execute(
            "SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, NULL, NULL, 'test')", (workspace,)
        )
        assert await status(tx, first) == "QUEUED"
    await application.execute(CHANGE, (first,))
    await application.commit()


async def status(tx: psycopg.AsyncConnection, sale: UUID) -> str:
    found = await tx.execute("SELECT status FROM offline_conversion_queue WHERE sale_id = %s", (sale,))
    row = await found.fetchone()
    assert row is not None
    return str(row[0])


async def test_a_retry_also_takes_rows_that_a_short_transaction_had_locked(
    db: Database, make_site: MakeSite, sell: Sell, query: Query, statuses: Any,
    application: psycopg.AsyncConnection, workspace: UUID, eventually: Any,
) -> None:  # fmt: skip
    _, second = sell(make_site(), 2)
    query(FAILED)
    await application.execute("SELECT FROM offline_conversion_queue WHERE sale_id = %s FOR UPDATE", (second,))
    retried = asyncio.create_task(retry_failed(db, FailedFilter(), workspace, "test"))
    await eventually(lambda: statuses() == {"QUEUED": 1, "FAILED": 1})
    await application.rollback()
    assert await retried == 2
    assert statuses() == {"QUEUED": 2}


async def test_a_reset_of_a_provider_does_not_deadlock_with_a_change_of_its_sales(
    db: Database, make_site: MakeSite, sell: Sell, query: Query, application: psycopg.AsyncConnection
) -> None:
    site = make_site()
    first, second = sell(site, 2)
    query(POSTPONED)
    await application.execute(CHANGE, (second,))
    async with db.tx() as tx:
        await tx.execute("SELECT weighbridge.reset_provider(%s, 'google_ads', 'test')", (site,))
    await application.execute(CHANGE, (first,))
    await application.commit()
    assert query("SELECT sale_id, next_retry_at IS NULL FROM offline_conversion_queue ORDER BY order_id") == [
        (first, True),
        (second, False),  # it was locked: it keeps its time
    ]


async def test_a_batch_with_a_locked_row_is_recovered_as_a_whole_or_not_at_all(
    make_site: MakeSite, sell: Sell, query: Query, application: psycopg.AsyncConnection
) -> None:
    site, other = make_site(), make_site()
    _, second = sell(site, 2)
    sell(other, 1)
    claim(query, site)
    claim(query, other)
    await application.execute("SELECT FROM offline_conversion_queue WHERE sale_id = %s FOR UPDATE", (second,))
    recover = "SELECT recover_stuck_offline_conversion_jobs(0)"
    ledger = "SELECT site_id FROM provider_upload_attempts WHERE phase = 'FINISHED' ORDER BY created_at"
    live = "SELECT count(*) FROM weighbridge.attempts WHERE queue = 'deliveries' AND closed_at IS NULL"
    assert query(recover) == [(1,)]
    assert query(ledger) == [(other,)]
    assert query(live) == [(1,)]
    await application.rollback()
    assert query(recover) == [(2,)]
    assert query(ledger) == [(other,), (site,)]
    assert query(live) == [(0,)]
