"""The circuit breaker of a group, and the gates beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.providers.base import Batch
from weighbridge.model.delivery import Category, Outcome, ProviderRateLimitError, ProviderTransientError

STATE = "SELECT state, failure_count FROM provider_health_state"
Statuses = Callable[[], dict[str, int]]


def down(batch: Batch) -> list[Outcome]:
    raise ProviderTransientError("It does not answer.")


async def open_circuit(run: Run, clock: Any, query: Query, times: int = 5) -> None:
    for _ in range(times):
        await run()
        clock.forward(hours=3)  # past every backoff
    assert query(STATE) == [("OPEN", times)]


async def test_five_temporary_failures_in_a_row_open_the_circuit(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site())
    google.answer = down
    for failures in range(1, 5):
        tally = await run()
        assert (tally.retry, tally.completed) == (1, 0)
        assert query(STATE) == [("CLOSED", failures)]
        clock.forward(hours=3)
    await run()
    assert query(STATE) == [("OPEN", 5)]
    [(wait,)] = query("SELECT next_probe_at - weighbridge.now() FROM provider_health_state")
    assert timedelta(minutes=4, seconds=55) < wait <= timedelta(minutes=6)
    assert query("SELECT condition FROM weighbridge.alerts WHERE closed_at IS NULL") == [("circuit_open",)]


async def test_rows_that_wait_for_an_open_circuit_show_the_reason(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    site = make_site()
    sell(site)
    google.answer = down
    for _ in range(5):
        await run()
        query("UPDATE offline_conversion_queue SET next_retry_at = NULL")
    sell(site, 3, prefix="later")
    calls = len(google.batches)
    tally = await run()
    assert (tally.processed, tally.parked, tally.skipped["circuit_open"]) == (0, 4, 1)
    assert len(google.batches) == calls
    parked = query(
        "SELECT q.last_error, q.next_retry_at - h.next_probe_at FROM offline_conversion_queue q"
        " JOIN provider_health_state h USING (site_id, provider_key)"
    )
    assert {error for error, _ in parked} == {"CIRCUIT_OPEN"}
    assert all(timedelta() <= later <= timedelta(seconds=30) for _, later in parked)


async def test_a_probe_sends_a_few_and_its_success_closes_the_circuit(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any, statuses: Statuses
) -> None:
    sell(make_site(), 20)
    google.answer = down
    await open_circuit(run, clock, query)
    google.answer = None
    calls = len(google.sent)
    tally = await run()
    assert tally.completed == 5
    assert len(google.sent) - calls == 5
    assert query(STATE) == [("CLOSED", 0)]
    assert query("SELECT count(*) FROM weighbridge.alerts WHERE closed_at IS NULL") == [(0,)]
    await run()
    assert statuses() == {"COMPLETED": 20}


async def test_a_probe_that_fails_opens_it_again(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site(), 3)
    google.answer = down
    await open_circuit(run, clock, query)
    await run()
    assert query(STATE) == [("OPEN", 6)]
    assert query(
        "SELECT next_probe_at > weighbridge.now() + INTERVAL '4 minutes' FROM provider_health_state"
    ) == [(True,)]


async def test_only_one_worker_probes_at_a_time_until_its_turn_expires(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site(), 20)
    google.answer = down
    await open_circuit(run, clock, query)
    probing, go_on = asyncio.Event(), asyncio.Event()

    async def slow(batch: Batch) -> list[Outcome]:
        probing.set()
        await go_on.wait()
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = slow
    first = asyncio.create_task(run())
    await probing.wait()
    calls = len(google.batches)
    assert (await run()).skipped["being_probed"] == 1
    assert len(google.batches) == calls
    clock.forward(seconds=121)  # the turn of the first is over
    google.answer = None
    assert (await run()).completed == 5
    assert query(STATE) == [("CLOSED", 0)]
    go_on.set()
    await first


async def test_a_refused_row_does_not_count_as_a_provider_failure(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site(), 9)
    google.answer = lambda batch: [
        Outcome.failed("INVALID_GCLID", "No such click.") for _ in batch.conversions
    ]
    for _ in range(9):
        await run(limit=1)
    assert query(
        "SELECT count(*) FROM provider_health_state WHERE state <> 'CLOSED' OR failure_count > 0"
    ) == [(0,)]


async def test_a_row_to_send_again_tomorrow_does_not_count_as_a_provider_failure(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site())
    google.answer = lambda batch: [
        Outcome.retry("TOO_RECENT_EVENT", "Too recent.", Category.VALIDATION, timedelta(hours=6))
        for _ in batch.conversions
    ]
    await run()
    assert query("SELECT count(*) FROM provider_health_state WHERE failure_count > 0") == [(0,)]
    [(status, wait)] = query("SELECT status, next_retry_at - weighbridge.now() FROM offline_conversion_queue")
    assert status == "RETRY"
    assert timedelta(hours=5, minutes=59) < wait < timedelta(hours=7)


async def test_a_failing_group_does_not_affect_another_group(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    bad, good = make_site(), make_site()
    sell(bad, 5)
    sell(good, 5)

    def some(batch: Batch) -> list[Outcome]:
        return down(batch) if batch.site_id == bad else [Outcome.completed("r") for _ in batch.conversions]

    google.answer = some
    tally = await run()
    assert (tally.completed, tally.retry) == (5, 5)
    found = dict(query("SELECT site_id, status FROM offline_conversion_queue GROUP BY 1, 2"))
    assert found == {bad: "RETRY", good: "COMPLETED"}
    assert {each.site_id for batch in google.batches for each in [batch]} == {bad, good}
    assert all(len(batch.conversions) == 5 for batch in google.batches)


async def test_refused_credentials_stop_only_their_group(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, statuses: Statuses
) -> None:
    site = make_site()
    sell(site, 4)
    google.answer = lambda batch: [
        Outcome.failed("invalid_grant", "The refresh token is not accepted.", Category.AUTH)
        for _ in batch.conversions
    ]
    assert (await run(limit=2)).failed == 2
    assert query("SELECT provider_error_category, provider_error_code FROM offline_conversion_queue"
                 " WHERE status = 'FAILED' GROUP BY 1, 2") == [("AUTH", "invalid_grant")]  # fmt: skip
    assert query(STATE) == [("CLOSED", 0)]  # the breaker is for the provider's health
    calls = len(google.batches)
    assert (await run()).skipped["credentials_refused"] == 1
    assert len(google.batches) == calls
    assert statuses() == {"FAILED": 2, "QUEUED": 2}
    assert query("SELECT condition FROM weighbridge.alerts WHERE closed_at IS NULL") == [
        ("credentials_refused",)
    ]
    query("SELECT weighbridge.reset_provider(%s, 'google_ads', 'test')", (site,))
    google.answer = None
    assert (await run()).completed == 2
    assert query("SELECT count(*) FROM weighbridge.alerts WHERE closed_at IS NULL") == [(0,)]


async def test_rows_without_credentials_wait(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, statuses: Statuses
) -> None:
    sell(make_site(credentials=False))
    assert (await run()).skipped["no_credentials"] == 1
    assert (google.batches, statuses()) == ([], {"QUEUED": 1})


async def test_a_limit_of_the_whole_provider_pauses_all_sites(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, clock: Any, statuses: Statuses
) -> None:
    for _ in range(3):
        sell(make_site())

    def too_much(batch: Batch) -> list[Outcome]:
        raise ProviderRateLimitError("Slowly.", "QUOTA", timedelta(minutes=10), whole_provider=True)

    google.answer = too_much
    await run(limit=1)
    calls = len(google.batches)
    assert (await run()).skipped["provider_paused"] == 2
    assert len(google.batches) == calls
    google.answer = None
    clock.forward(hours=1)
    assert (await run()).completed == 3


async def test_a_circuit_that_opens_during_a_run_ends_the_run_for_its_group(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, statuses: Statuses
) -> None:
    google.max_batch = 2
    sell(make_site(), 100)
    google.answer = down
    await run(100)
    assert (
        len(google.batches) <= 9
    )  # the fifth failure opens the circuit; two calls are in flight, and two may start before it is settled
    assert query("SELECT state FROM provider_health_state") == [("OPEN",)]
    assert statuses()["QUEUED"] >= 82


async def test_credentials_refused_during_a_run_fail_no_more_rows(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, statuses: Statuses
) -> None:
    google.max_batch = 2
    sell(make_site(), 100)
    google.answer = lambda batch: [Outcome.failed("401", "No.", Category.AUTH) for _ in batch.conversions]
    await run(100)
    # Two batches, sent or released: the result of a call is stored before its group is claimed again.
    assert statuses()["FAILED"] <= 4
    assert statuses()["QUEUED"] == 96


async def test_a_pause_of_the_provider_ends_the_run_for_all_its_groups(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted
) -> None:
    for _ in range(40):
        sell(make_site())

    def too_much(batch: Batch) -> list[Outcome]:
        raise ProviderRateLimitError("Slowly.", "QUOTA", timedelta(minutes=3), whole_provider=True)

    google.answer = too_much
    await run(40)
    assert (
        len(google.batches) <= 30
    )  # ten concurrent calls, and those that started before the first was settled


async def test_healthy_groups_keep_their_share_however_many_groups_are_probed(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, statuses: Statuses
) -> None:
    for _ in range(10):
        site = make_site()
        sell(site, 10)
        query(
            "INSERT INTO provider_health_state"
            " (site_id, provider_key, workspace_id, state, failure_count, next_probe_at)"
            " SELECT id, 'google_ads', workspace_id, 'OPEN', 5, weighbridge.now() FROM sites WHERE id = %s",
            (site,),
        )
    well = make_site()
    sell(well, 30)
    await run(50)
    assert query(
        "SELECT count(*) FROM offline_conversion_queue WHERE site_id = %s AND status = 'COMPLETED'", (well,)
    ) == [(25,)]


async def test_credentials_that_cannot_be_read_take_no_share(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, statuses: Statuses
) -> None:
    lost, well = make_site(), make_site()
    sell(lost, 500)
    sell(well, 10)
    query("UPDATE provider_credentials SET key_id = 'gone' WHERE site_id = %s", (lost,))
    tally = await run(10)
    assert (tally.completed, dict(tally.skipped)) == (10, {"credentials_unreadable": 1})
