"""The state of a row after a call: proof fields, backoff and retry limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.providers.base import Batch
from weighbridge.model.delivery import Category, Outcome, ProviderRateLimitError, ProviderTransientError
from weighbridge.model.retry import CONVERSION

Statuses = Callable[[], dict[str, int]]
FIELDS = (
    "SELECT status, uploaded_at IS NULL, provider_error_code, provider_error_category, last_error"
    " FROM offline_conversion_queue"
)


async def test_each_row_has_its_own_outcome(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site(), 4)
    said = [
        Outcome.completed("r1"),
        Outcome.failed("INVALID_GCLID", "No such click."),
        Outcome.retry("BACKEND_ERROR", "Later."),
        Outcome.completed("r1", duplicate=True),
    ]
    google.answer = lambda batch: said
    tally = await run()
    assert (tally.processed, tally.completed, tally.failed, tally.retry) == (4, 2, 1, 1)
    rows = query(
        "SELECT order_id, status, provider_request_id, provider_error_code, provider_error_category, duplicate"
        " FROM offline_conversion_queue ORDER BY order_id"
    )
    assert rows == [
        ("order-1", "COMPLETED", "r1", None, None, False),
        ("order-2", "FAILED", None, "INVALID_GCLID", "VALIDATION", False),
        ("order-3", "RETRY", None, "BACKEND_ERROR", "TRANSIENT", False),
        ("order-4", "COMPLETED", "r1", None, None, True),
    ]
    [finished] = query(
        "SELECT completed_count, failed_count, retry_count, provider_request_id, error_code, error_category"
        " FROM provider_upload_attempts WHERE phase = 'FINISHED'"
    )
    assert finished == (2, 1, 1, "r1", "INVALID_GCLID", "VALIDATION")
    assert query("SELECT count(*) FROM provider_health_state WHERE failure_count > 0") == [(0,)]


async def test_an_exception_of_an_adapter_is_a_temporary_failure(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site())

    def broken(batch: Batch) -> list[Outcome]:
        raise ZeroDivisionError("gclid-canary-1")

    google.answer = broken
    assert (await run()).retry == 1
    assert query(FIELDS) == [
        ("RETRY", True, None, "TRANSIENT", "The provider's adapter failed (ZeroDivisionError).")
    ]


async def test_outcomes_that_do_not_fit_the_rows_complete_nothing(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, statuses: Statuses
) -> None:
    sell(make_site(), 2)
    google.answer = lambda batch: [Outcome.completed("r")]
    assert (await run()).retry == 2
    assert statuses() == {"RETRY": 2}


async def test_the_pause_grows_has_jitter_and_keeps_what_the_provider_asks(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    sell(make_site(), 200)

    def down(batch: Batch) -> list[Outcome]:
        raise ProviderTransientError("It does not answer.")

    google.answer = down
    waits = "SELECT next_retry_at - weighbridge.now() FROM offline_conversion_queue"
    await run(limit=200)
    first = [wait for (wait,) in query(waits)]
    assert timedelta(seconds=20) < max(first) <= timedelta(seconds=30)
    assert min(first) < timedelta(seconds=10)
    clock.forward(minutes=1)
    await run(limit=200)
    assert timedelta(seconds=45) < max(wait for (wait,) in query(waits)) <= timedelta(seconds=60)

    def slowly(batch: Batch) -> list[Outcome]:
        raise ProviderRateLimitError("Slowly.", "429", timedelta(minutes=7))

    google.answer = slowly
    clock.forward(minutes=2)
    await run(limit=200)
    assert timedelta(minutes=6, seconds=55) < min(wait for (wait,) in query(waits))
    assert query("SELECT DISTINCT provider_error_category FROM offline_conversion_queue") == [("RATE_LIMIT",)]


async def test_a_row_fails_after_its_last_retry(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    site = make_site()
    sell(site)
    google.answer = lambda batch: [
        Outcome.retry("BACKEND_ERROR", "It said: later.") for _ in batch.conversions
    ]
    for _ in range(3):
        await run(retries=replace(CONVERSION, tries=2))
        query("SELECT record_provider_outcome(%s, 'google_ads', true)", (site,))
        clock.forward(hours=3)
    assert query(FIELDS) == [
        ("FAILED", True, "BACKEND_ERROR", "TRANSIENT", "It said: later. Failed attempts: 3.")
    ]
    assert query("SELECT attempts_total, retry_total, failed_total FROM provider_upload_metrics") == [
        (3, 2, 1)
    ]


async def test_the_adapter_receives_the_previous_error_of_a_row(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, clock: Any
) -> None:
    sell(make_site())
    google.answer = lambda batch: [
        Outcome.retry("CLICK_NOT_FOUND", "Not yet.", Category.VALIDATION) for _ in batch.conversions
    ]
    seen = []
    for _ in range(3):
        await run()
        [sent] = google.batches[-1].conversions
        seen.append((sent.tries, sent.last_code, sent.last_code_times))
        clock.forward(hours=3)
    assert seen == [(0, None, 0), (1, "CLICK_NOT_FOUND", 1), (2, "CLICK_NOT_FOUND", 2)]


async def test_an_expired_click_is_refused_with_its_own_code(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, meta: Scripted, clock: Any
) -> None:
    sell(make_site("google_ads", "meta_capi"))
    clock.forward(days=8)
    tally = await run()
    assert (tally.completed, tally.failed) == (1, 1)
    assert (google.sent, meta.sent) == (["order-1"], [])
    assert query(
        "SELECT status, provider_error_code, provider_error_category, last_error, attempt_count"
        " FROM offline_conversion_queue WHERE provider_key = 'meta_capi'"
    ) == [
        ("FAILED", "EXPIRED", "VALIDATION", "EXPIRED: meta_capi does not accept events older than 7 days.", 0)
    ]
    assert query("SELECT failed_total FROM provider_upload_metrics WHERE provider_key = 'meta_capi'") == [
        (1,)
    ]


def test_rows_that_are_about_to_expire_are_alerted(
    make_site: MakeSite, sell: Sell, query: Query, clock: Any
) -> None:
    sell(make_site("meta_capi", credentials=False), 2)
    watch = "SELECT weighbridge.watch_deliveries('24 hours', 100)"
    alerts = "SELECT condition, message FROM weighbridge.alerts WHERE closed_at IS NULL ORDER BY condition"
    clock.forward(days=5)
    assert (query(watch), query(alerts)) == ([(0,)], [])
    clock.forward(days=1, hours=12)
    assert query(watch) == [(0,)]
    [(condition, message)] = query(alerts)
    assert condition == "conversions_expiring"
    assert message.startswith("[DELIVERY] 2 queued conversions will expire, the first at ")
    clock.forward(days=1)
    assert query(watch) == [(2,)]
    assert [condition for condition, _ in query(alerts)] == ["conversions_expired"]
    assert query("SELECT status, provider_error_code FROM offline_conversion_queue GROUP BY 1, 2") == [
        ("FAILED", "EXPIRED")
    ]


def test_a_failed_row_is_sent_again_after_an_operator_requeues_it(
    make_site: MakeSite, sell: Sell, query: Query, workspace: Any, clock: Any
) -> None:
    site = make_site("meta_capi", credentials=False)
    sell(site)
    query(
        "UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_category = 'AUTH', retry_count = 9"
    )
    requeue = "SELECT weighbridge.requeue_deliveries(%s, NULL, %s, NULL, %s, NULL, 'ann')"
    assert query(requeue, (workspace, site, "VALIDATION")) == [(0,)]
    assert query(requeue, (workspace, site, "AUTH")) == [(1,)]
    assert query("SELECT status, retry_count FROM offline_conversion_queue") == [("QUEUED", 0)]
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'deliveries.requeue'") == [("ann",)]
