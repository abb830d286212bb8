"""Calls that were not settled, and the limits of a late worker."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.providers.base import Batch
from weighbridge.model.delivery import Outcome

ROWS = "SELECT status, next_retry_at, provider_error_code, attempt_count FROM offline_conversion_queue"
LEDGER = (
    "SELECT phase, claimed_count, completed_count, retry_count, error_code FROM provider_upload_attempts"
    " ORDER BY batch_id, phase DESC"
)


def claim(query: Query, site: Any) -> None:
    query(
        "SELECT count(*) FROM weighbridge.claim_conversions('dead', '2 minutes', ARRAY[gen_random_uuid()],"
        " ARRAY[%s]::uuid[], '{google_ads}', '{50}')",
        (site,),
    )


def test_the_rows_of_a_dead_worker_are_recovered_when_its_lease_expires(
    make_site: MakeSite, sell: Sell, query: Query, clock: Any
) -> None:
    site = make_site()
    sell(site, 2)
    claim(query, site)
    recover = "SELECT queue, worker FROM weighbridge.recover(5)"
    assert query(recover) == []
    clock.forward(seconds=121)
    assert query(recover) == [("deliveries", "dead")]
    assert query(ROWS) == [("RETRY", None, "UNKNOWN_OUTCOME", 1)] * 2
    assert query(LEDGER) == [("STARTED", 2, None, None, None), ("FINISHED", None, 0, 2, "UNKNOWN_OUTCOME")]
    assert query("SELECT attempts_total, retry_total FROM provider_upload_metrics") == [(1, 2)]


def test_rows_that_crash_their_workers_fail_after_the_last_attempt(
    make_site: MakeSite, sell: Sell, query: Query, clock: Any
) -> None:
    site = make_site()
    sell(site)
    for _ in range(3):
        claim(query, site)
        clock.forward(seconds=121)
        query("SELECT weighbridge.recover(2)")
    assert query("SELECT status, provider_error_code FROM offline_conversion_queue") == [
        ("FAILED", "WORKER_CRASHED")
    ]


def test_stuck_rows_are_recovered_by_the_age_of_their_claim(
    make_site: MakeSite, sell: Sell, query: Query, clock: Any
) -> None:
    site = make_site()
    sell(site, 3)
    query(
        "SELECT count(*) FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', 1)", (site,)
    )  # no lease at all
    claim(query, site)
    recover = "SELECT recover_stuck_offline_conversion_jobs(15)"
    clock.forward(minutes=14)
    assert query(recover) == [(0,)]
    clock.forward(minutes=2)
    assert query(recover) == [(3,)]
    assert query(recover) == [(0,)]
    assert {row[:2] for row in query(ROWS)} == {("RETRY", None)}
    assert query("SELECT outcome FROM weighbridge.attempts WHERE queue = 'deliveries'") == [("expired",)]
    assert [row[0] for row in query(LEDGER)] == ["STARTED", "FINISHED"]


async def test_a_worker_that_lost_its_lease_settles_nothing(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site())
    calling, go_on = asyncio.Event(), asyncio.Event()

    async def slow(batch: Batch) -> list[Outcome]:
        calling.set()
        await go_on.wait()
        return [Outcome.failed("INVALID", "Too late to say so.")]

    google.answer = slow
    late = asyncio.create_task(run())
    await calling.wait()
    assert query("SELECT recover_stuck_offline_conversion_jobs(0)") == [(1,)]
    google.answer = None
    assert (await run()).completed == 1
    go_on.set()
    assert (await late).processed == 0
    assert query("SELECT status, attempt_count FROM offline_conversion_queue") == [("COMPLETED", 2)]
    assert query("SELECT count(*) FROM provider_upload_attempts WHERE phase = 'FINISHED'") == [(2,)]


async def test_a_worker_delayed_past_its_lease_does_not_start_its_call(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, monkeypatch: Any
) -> None:
    """A worker frozen between claim and call for longer than its lease: others may have claimed the rows."""
    import weighbridge.delivery.provider_call as verdict

    sell(make_site())
    now = verdict.monotonic
    monkeypatch.setattr(verdict, "monotonic", lambda: now() + 100)
    assert (await run()).retry == 1
    assert google.batches == []


def test_the_specified_manual_update_runs_as_printed(make_site: MakeSite, sell: Sell, query: Query) -> None:
    site = make_site()
    sell(site)
    claim(query, site)
    query("UPDATE offline_conversion_queue SET status = 'QUEUED' WHERE status = 'PROCESSING'")
    assert query("SELECT queued_count FROM list_offline_conversion_groups(50)") == [(1,)]


def test_the_ledger_is_completed_even_if_the_rows_were_requeued_by_hand(
    make_site: MakeSite, sell: Sell, query: Query, clock: Any
) -> None:
    for recover in ("weighbridge.recover(5)", "recover_stuck_offline_conversion_jobs(15)"):
        site = make_site()
        sell(site, 2)
        claim(query, site)
        query("UPDATE offline_conversion_queue SET status = 'QUEUED' WHERE order_id = 'order-1'")
        if recover.startswith("weighbridge"):
            query("UPDATE offline_conversion_queue SET status = 'QUEUED' WHERE status = 'PROCESSING'")
        clock.forward(minutes=16)
        query(f"SELECT * FROM {recover}")
    phases = query("SELECT phase, count(*) FROM provider_upload_attempts GROUP BY phase ORDER BY phase")
    assert phases == [("FINISHED", 2), ("STARTED", 2)]
