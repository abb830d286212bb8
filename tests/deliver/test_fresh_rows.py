"""A fresh row has the current data of its sale, so a claim need not read the sale; other rows are read again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery import queue
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.queue import BatchRequest
from weighbridge.postgres.transactions import Database

FRESH = "SELECT fresh FROM offline_conversion_queue"


async def test_a_row_is_fresh_until_it_is_claimed(
    make_site: MakeSite, sell: Sell, run: Run, query: Query
) -> None:
    sell(make_site())
    assert query(FRESH) == [(True,)]
    await run()
    assert query(FRESH) == [(False,)]


@pytest.mark.parametrize("how", ["DELETE FROM sales", "TRUNCATE sales"])
async def test_a_row_whose_sale_was_deleted_is_not_sent(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, how: str
) -> None:
    sell(make_site(), 2)
    query(how)
    await run()
    assert google.batches == []
    assert query("SELECT DISTINCT status, provider_error_code FROM offline_conversion_queue") == [
        ("FAILED", "SALE_CANCELED")
    ]


async def test_a_sale_that_changed_while_its_row_was_expired_is_sent_with_its_current_values(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, workspace: UUID
) -> None:
    """An expired row is not updated with its sale; an operator may still retry it."""
    sell(make_site())
    query("UPDATE offline_conversion_queue SET expires_at = weighbridge.now()")
    query("SELECT weighbridge.watch_deliveries(INTERVAL '1 day', 10)")
    query("UPDATE sales SET value = 99, occurred_at = occurred_at - INTERVAL '1 year', clicked_at = NULL")
    assert query("SELECT status, fresh FROM offline_conversion_queue") == [("FAILED", True)]
    query("UPDATE weighbridge.providers SET click_window = INTERVAL '9 years'")
    query("SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, NULL, NULL, 'x')", (workspace,))
    await run()
    [sent] = google.batches[0].conversions
    assert sent.value == 99


async def test_rows_that_were_queued_later_are_read_again(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, workspace: UUID
) -> None:
    """The sale may have changed while the row was created: that transaction did not see the row."""
    site = make_site()
    sell(site)
    query("DELETE FROM offline_conversion_queue")
    query("SELECT weighbridge.enqueue_conversions(%s, %s, NULL, NULL, 'x')", (workspace, site))
    query("UPDATE offline_conversion_queue SET value = 1")
    assert query(FRESH) == [(False,)]
    query("UPDATE sales SET value = 7")
    query("UPDATE offline_conversion_queue SET value = 1")
    await run()
    [sent] = google.batches[0].conversions
    assert sent.value == 7


async def test_a_change_of_what_a_provider_accepts_applies_to_queued_rows(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, db: Database
) -> None:
    sell(make_site(), wbraid="w")
    async with db.tx() as tx:
        await queue.register_providers(tx, {"google_ads": (("wbraid",), timedelta(days=90), False)})
    await run()
    [sent] = google.batches[0].conversions
    assert (sent.click_type, sent.click_id) == ("wbraid", "w")


async def test_each_batch_of_a_claim_has_its_own_claim_time(
    make_site: MakeSite, sell: Sell, query: Query, db: Database
) -> None:
    sites = [make_site() for _ in range(3)]
    for site in sites:
        sell(site, 2)
    async with db.tx("weighbridge_deliver") as tx:
        requests = [BatchRequest(GroupKey(site, "google_ads"), 2) for site in sites]
        claimed = await (await queue.claim(tx, "w", timedelta(minutes=2), requests)).read()
    found: Any = query(
        "SELECT batch_id, min(claimed_at), max(claimed_at) FROM offline_conversion_queue GROUP BY batch_id"
    )
    assert len({first for _, first, _ in found}) == 3
    assert {batch: (first, last) for batch, first, last in found} == {
        batch.id: (batch.now, batch.now) for batch in claimed
    }


async def test_a_batch_whose_first_row_is_refused_still_has_its_claim_time(
    make_site: MakeSite, sell: Sell, run: Run, query: Query
) -> None:
    """Otherwise the settlement would find none of its rows."""
    sell(make_site(), 3)
    query("UPDATE sales SET occurred_at = occurred_at - INTERVAL '91 days' WHERE order_id = 'order-1'")
    await run()
    assert query("SELECT order_id, status FROM offline_conversion_queue ORDER BY order_id") == [
        ("order-1", "FAILED"),
        ("order-2", "COMPLETED"),
        ("order-3", "COMPLETED"),
    ]


async def test_refused_or_changed_rows_do_not_affect_the_other_rows_of_their_claim(
    make_site: MakeSite, sell: Sell, query: Query, db: Database
) -> None:
    """Three groups of one claim: some of the first and all of the second are refused, one of the third has changed."""
    some, gone, changed = sites = [make_site() for _ in range(3)]
    for site in sites:
        sell(site, 4)
    query("UPDATE sales SET status = 'CANCELED' WHERE site_id = %s AND order_id < 'order-3'", (some,))
    query("UPDATE sales SET status = 'CANCELED' WHERE site_id = %s", (gone,))
    # As if another worker had claimed their rows meanwhile.
    query(
        "UPDATE offline_conversion_queue SET status = 'QUEUED', fresh = false, provider_error_code = NULL"
        " WHERE site_id = ANY (%s)",
        ([some, gone],),
    )
    query("UPDATE offline_conversion_queue SET fresh = false, value = 1 WHERE site_id = %s", (changed,))
    query("UPDATE offline_conversion_queue SET value = 12.5 WHERE order_id <> 'order-2'")
    async with db.tx("weighbridge_deliver") as tx:
        requests = [BatchRequest(GroupKey(site, "google_ads"), 10) for site in sites]
        claimed = await (await queue.claim(tx, "w", timedelta(minutes=2), requests)).read()
    assert [(batch.key.site_id, len(batch.conversions), batch.expired) for batch in claimed] == [
        (some, 2, 2),
        (gone, 0, 4),
        (changed, 4, 0),
    ]
    assert [each.order_id for each in claimed[0].conversions] == ["order-3", "order-4"]
    assert [(each.order_id, each.value) for each in claimed[2].conversions] == [
        (f"order-{n}", 12.5) for n in range(1, 5)
    ]
    by_site = "SELECT site_id, {} FROM offline_conversion_queue WHERE status = 'PROCESSING' GROUP BY 1"
    found: Any = query(by_site.format("min(claimed_at)"))
    assert dict(found) == {batch.key.site_id: batch.now for batch in claimed if batch.conversions}
    ledger: Any = query("SELECT site_id, claimed_count FROM provider_upload_attempts")
    assert dict(ledger) == {some: 2, changed: 4}
    meters: Any = query("SELECT site_id, failed_total FROM provider_upload_metrics")
    assert dict(meters) == {some: 2, gone: 4}
    assert query("SELECT count(*) FROM weighbridge.attempts WHERE queue = 'deliveries'") == [(2,)]


async def test_a_retry_of_an_unchanged_sale_is_written_once(
    make_site: MakeSite, sell: Sell, query: Query, db: Database
) -> None:
    site = make_site()
    sell(site, 3)
    query("UPDATE offline_conversion_queue SET status = 'RETRY', fresh = false, provider_error_code = 'X'")
    async with db.tx() as tx:
        counts = "SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'offline_conversion_queue'"
        await queue.claim(tx, "w", timedelta(minutes=2), [BatchRequest(GroupKey(site, "google_ads"), 10)])
        assert await (await tx.execute(counts)).fetchone() == (3,)


def test_later_sales_have_greater_ids(make_site: MakeSite, sell: Sell, query: Query) -> None:
    site = make_site()
    [first] = sell(site, prefix="a")
    query("SELECT pg_sleep(0.002)")
    [second] = sell(site, prefix="b")
    assert first < second
    assert len(set(sell(site, 500, prefix="c"))) == 500


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_claim_planned_for_few_rows_finds_its_rows_among_many(
    make_site: MakeSite, sell: Sell, query: Query, database_url: str, fresh: bool
) -> None:
    """A connection keeps its query plans even if the tables have grown."""
    site = make_site()
    sell(site, 4)
    async with await psycopg.AsyncConnection.connect(database_url) as tx:
        for _ in range(2):
            await queue.claim(tx, "w", timedelta(minutes=2), [BatchRequest(GroupKey(site, "google_ads"), 1)])
        await tx.commit()
        sell(site, 3000, prefix="more")
        query("UPDATE offline_conversion_queue SET fresh = %s WHERE status = 'QUEUED'", (fresh,))
        [batch] = await (
            await queue.claim(
                tx, "w", timedelta(minutes=2), [BatchRequest(GroupKey(site, "google_ads"), 1000)]
            )
        ).read()
        scanned = await tx.execute(
            "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_tup_read > 1000"
            " AND relname IN ('offline_conversion_queue', 'sales')"
        )
        assert await scanned.fetchall() == []
    assert len(batch.conversions) == 1000
