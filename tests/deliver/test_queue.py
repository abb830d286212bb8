"""From a sale to the queue, and the contract's functions by their names."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell

ROWS = "SELECT provider_key, click_type, click_id FROM offline_conversion_queue ORDER BY provider_key"


def test_a_sale_is_queued_for_each_provider_of_its_site_that_accepts_its_click(
    make_site: MakeSite, sell: Sell, query: Query
) -> None:
    site = make_site("google_ads", "meta_capi", "tiktok_events", "webhook", credentials=False)
    sell(site, gbraid="g", wbraid="w")
    assert query(ROWS) == [
        ("google_ads", "gclid", "gclid-canary-1"),
        ("meta_capi", "fbclid", "fbclid-canary-1"),
        ("webhook", "gclid", "gclid-canary-1"),
    ]


def test_a_sale_without_a_click_id_is_not_queued(make_site: MakeSite, query: Query, workspace: UUID) -> None:
    site = make_site("google_ads", "webhook", credentials=False)
    query(
        "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at) VALUES (%s, %s, 'a', now())",
        (workspace, site),
    )
    assert query(ROWS) == []


def test_new_sites_use_the_data_manager(query: Query, workspace: UUID) -> None:
    assert query(
        "INSERT INTO sites (workspace_id, name) VALUES (%s, 'shop') RETURNING providers", (workspace,)
    ) == [(["google_datamanager"],)]


def test_a_site_can_only_name_existing_providers(query: Query, workspace: UUID) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="there is no provider myspace"):
        query("INSERT INTO sites (workspace_id, name, providers) VALUES (%s, 'a', '{myspace}')", (workspace,))


def test_a_draft_waits_for_its_confirmation(make_site: MakeSite, sell: Sell, query: Query) -> None:
    [sale] = sell(make_site(), status="DRAFT")
    assert query(ROWS) == []
    query("UPDATE sales SET status = 'CONFIRMED' WHERE id = %s", (sale,))
    assert len(query(ROWS)) == 1
    query("UPDATE sales SET status = 'CONFIRMED', updated_at = now() WHERE id = %s", (sale,))
    assert len(query(ROWS)) == 1


def test_a_canceled_sale_is_not_sent(make_site: MakeSite, sell: Sell, query: Query) -> None:
    [sale] = sell(make_site())
    query("UPDATE sales SET status = 'CANCELED' WHERE id = %s", (sale,))
    assert query("SELECT status, provider_error_code FROM offline_conversion_queue") == [
        ("FAILED", "SALE_CANCELED")
    ]


async def test_a_row_that_was_not_sent_yet_is_sent_with_the_current_values_of_its_sale(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    [sale] = sell(make_site())
    query("UPDATE sales SET value = 99, gclid = NULL, wbraid = 'w' WHERE id = %s", (sale,))
    await run()
    [sent] = google.batches[0].conversions
    assert (sent.value, sent.click_type, sent.click_id, sent.order_id) == (99, "wbraid", "w", "order-1")
    query("UPDATE sales SET value = 100 WHERE id = %s", (sale,))
    assert query("SELECT status, value FROM offline_conversion_queue") == [("COMPLETED", 99)]


async def test_a_delivered_row_stays_delivered(
    make_site: MakeSite, sell: Sell, run: Run, query: Query
) -> None:
    sell(make_site())
    await run()
    with pytest.raises(psycopg.Error, match="COMPLETED → QUEUED is not an allowed transition"):
        query("UPDATE offline_conversion_queue SET status = 'QUEUED', uploaded_at = NULL")


async def test_the_ledger_is_append_only(make_site: MakeSite, sell: Sell, run: Run, query: Query) -> None:
    sell(make_site())
    await run()
    for statement in (
        "UPDATE provider_upload_attempts SET duration_ms = 0",
        "DELETE FROM provider_upload_attempts",
    ):
        with pytest.raises(psycopg.Error, match="is a ledger"):
            query(statement)


def test_groups_are_listed_in_their_order(make_site: MakeSite, sell: Sell, query: Query, clock: Any) -> None:
    retried, older, newer, parked = (make_site() for _ in range(4))
    sell(older, 3)
    sell(retried, 2)
    sell(parked, 1)
    clock.forward(seconds=10)
    sell(newer, 1)
    query(
        "UPDATE offline_conversion_queue SET status = 'RETRY', next_retry_at = weighbridge.now() - INTERVAL '1 second'"
        " WHERE site_id = %s",
        (retried,),
    )
    query(
        "UPDATE offline_conversion_queue SET next_retry_at = weighbridge.now() + INTERVAL '1 hour' WHERE site_id = %s",
        (parked,),
    )
    listed = query("SELECT site_id, provider_key, queued_count FROM list_offline_conversion_groups(50)")
    assert listed == [(older, "google_ads", 3), (newer, "google_ads", 1), (retried, "google_ads", 2)]
    assert query("SELECT site_id FROM list_offline_conversion_groups(1)") == [(older,)]


def test_a_claim_takes_its_own_group_in_order(make_site: MakeSite, sell: Sell, query: Query) -> None:
    site, other = make_site(), make_site()
    sell(site, 4)
    sell(other, 1)
    query(
        "UPDATE offline_conversion_queue SET status = 'RETRY', next_retry_at = weighbridge.now() - INTERVAL '1 minute'"
        " WHERE site_id = %s AND order_id = 'order-1'",
        (site,),
    )
    claim = (
        "SELECT order_id, status, claimed_at IS NOT NULL"
        " FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', %s)"
    )
    assert query(claim, (site, 3)) == [(f"order-{n}", "PROCESSING", True) for n in (2, 3, 4)]
    assert query(claim, (site, 3)) == [("order-1", "PROCESSING", True)]
    assert query(claim, (site, 3)) == []


def test_two_claims_at_once_take_different_rows(make_site: MakeSite, sell: Sell, database_url: str) -> None:
    site = make_site()
    sell(site, 4)
    claim = "SELECT order_id FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', 2)"
    with psycopg.connect(database_url) as one, psycopg.connect(database_url) as two:
        first = one.execute(claim, (site,)).fetchall()
        second = two.execute(claim, (site,)).fetchall()
    assert {row[0] for row in first} == {"order-1", "order-2"}
    assert {row[0] for row in second} == {"order-3", "order-4"}


def test_only_the_service_may_use_the_queue(make_site: MakeSite, sell: Sell, database_url: str) -> None:
    site = make_site()
    sell(site)
    calls = (
        "SELECT * FROM list_offline_conversion_groups(1)",
        f"SELECT * FROM claim_offline_conversion_jobs_v2('{site}', 'google_ads', 1)",
        "SELECT recover_stuck_offline_conversion_jobs(15)",
        f"SELECT record_provider_outcome('{site}', 'google_ads', true)",
        f"SELECT increment_provider_upload_metrics('{site}', 'google_ads', 1, 1, 0, 0)",
        *(
            f"SELECT * FROM {table}"
            for table in (
                *("offline_conversion_queue", "provider_health_state", "provider_credentials"),
                *("provider_upload_metrics", "provider_upload_attempts"),
            )
        ),
    )
    for role in ("weighbridge_tenant", "weighbridge_promote", "weighbridge_parse", "weighbridge_intake"):
        for call in calls:
            with psycopg.connect(database_url) as connection:
                connection.execute(f"SET ROLE {role}")  # type: ignore[arg-type]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(call)  # type: ignore[arg-type]
    with psycopg.connect(database_url) as connection:
        connection.execute("SET ROLE weighbridge_deliver")
        for call in calls:
            connection.execute(call)  # type: ignore[arg-type]


def test_the_service_sees_only_the_workspace_for_which_it_acts(
    make_site: MakeSite, sell: Sell, database_url: str, workspace: UUID
) -> None:
    sell(make_site(workspace_id=uuid4()), 2)
    sell(make_site(), 1)
    with psycopg.connect(database_url) as connection:
        connection.execute("SET ROLE weighbridge_deliver")
        seen = "SELECT count(*) FROM offline_conversion_queue"
        assert connection.execute(seen).fetchone() == (3,)
        connection.execute("SELECT set_config('weighbridge.workspace_id', %s, true)", (str(workspace),))
        assert connection.execute(seen).fetchone() == (1,)


def test_a_claim_reads_no_more_of_a_long_queue(make_site: MakeSite, sell: Sell, database_url: str) -> None:
    """A claim reads the start of the index and its own rows, and no postponed rows or rows of other groups."""
    site, other = make_site(), make_site()
    read = {}
    for rows in (1_000, 30_000):
        sell(other, rows, prefix=f"other-{rows}")
        sell(site, rows, prefix=f"own-{rows}")
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "UPDATE offline_conversion_queue SET next_retry_at = now() + INTERVAL '1 day'"
                " WHERE site_id = %s AND right(order_id, 1) IN ('1', '2', '3', '4', '5')",
                (site,),
            )
            connection.execute("VACUUM ANALYZE offline_conversion_queue")
            with connection.transaction(force_rollback=True):
                for _ in range(7):  # past the plans made for each call
                    row = connection.execute(
                        "EXPLAIN (ANALYZE, BUFFERS, FORMAT json)"
                        " SELECT * FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', 50)",
                        (site,),
                    ).fetchone()
                    assert row is not None
                    plan = row[0][0]["Plan"]
                read[rows] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert read[30_000] < 1.5 * read[1_000] < 3_000


async def test_rows_for_a_provider_that_was_removed_from_the_site_are_not_sent(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    site = make_site()
    sell(site)
    query("UPDATE sites SET providers = '{meta_capi}' WHERE id = %s", (site,))
    assert (await run()).skipped == {"not_in_use": 1}
    query("UPDATE sites SET providers = '{google_ads}' WHERE id = %s", (site,))
    assert (await run()).completed == 1
