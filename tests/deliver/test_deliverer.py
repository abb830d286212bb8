"""The worker's own schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.deliver.conftest import MakeSite, Query, Scripted, Sell
from tests.engine.conftest import Put, meta_file, put
from tests.engine.steps import claim as attempt_of
from tests.observe.conftest import Lines, lines
from weighbridge.delivery import queue
from weighbridge.delivery.context import Context
from weighbridge.delivery.deliverer import Deliverer
from weighbridge.delivery.providers.base import Batch
from weighbridge.delivery.queue import DueGroup
from weighbridge.model.delivery import Outcome
from weighbridge.observe import metrics
from weighbridge.postgres.transactions import Database

__all__ = ["lines", "put"]

Statuses = Callable[[], dict[str, int]]
LISTENING = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database()"
    " AND query = 'LISTEN \"weighbridge_deliver\"'"
)


@asynccontextmanager
async def running(ctx: Context, poll: float = 0.05) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(Deliverer(ctx, "test", 100, timedelta(seconds=poll)).run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


async def test_new_sales_are_sent_automatically(
    ctx: Context, make_site: MakeSite, sell: Sell, statuses: Statuses, eventually: Any
) -> None:
    site = make_site()
    async with running(ctx):
        sell(site, 3)
        await eventually(lambda: statuses() == {"COMPLETED": 3})
        sell(site, 2, prefix="later")
        await eventually(lambda: statuses() == {"COMPLETED": 5})


async def test_a_notification_sends_a_sale_before_the_next_poll(
    ctx: Context, make_site: MakeSite, sell: Sell, statuses: Statuses, eventually: Any, query: Query
) -> None:
    site = make_site()
    async with running(ctx, poll=3600):
        await eventually(lambda: query(LISTENING))
        sell(site)
        await eventually(lambda: statuses() == {"COMPLETED": 1})


async def test_a_hanging_provider_does_not_delay_the_others(
    ctx: Context,
    make_site: MakeSite,
    sell: Sell,
    google: Scripted,
    meta: Scripted,
    eventually: Any,
    query: Query,
) -> None:
    slow, quick = make_site(), make_site("meta_capi")
    go_on = asyncio.Event()

    async def hang(batch: Batch) -> list[Outcome]:
        await go_on.wait()
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = hang
    async with running(ctx):
        sell(slow, 3)
        await eventually(lambda: len(google.batches) == 1)
        for n in range(3):
            sell(quick, 2, prefix=f"round-{n}")
            await eventually(lambda n=n: len(meta.sent) == 2 * (n + 1))
        sell(slow, 1, prefix="more")
        await eventually(lambda: len(google.batches) == 2)  # its second slot
        sell(slow, 1, prefix="even more")
        sell(quick, 1, prefix="after")
        await eventually(lambda: "after-1" in meta.sent)
        assert (
            len(google.batches) == 2
        )  # both slots are taken: the group is skipped, and no failure is counted
        assert query("SELECT count(*) FROM provider_health_state WHERE failure_count > 0") == [(0,)]
        go_on.set()
    assert query("SELECT count(*) FROM offline_conversion_queue WHERE status = 'PROCESSING'") == [(0,)]


async def test_the_last_call_of_a_run_keeps_only_its_own_slot(
    ctx: Context, make_site: MakeSite, sell: Sell, google: Scripted, eventually: Any, query: Query
) -> None:
    """Two slots, two calls a run: when the run before it ends in the middle of its claims, a run is still followed."""
    google.max_batch = 50
    may_end = [asyncio.Event() for _ in range(5)]

    async def hang(batch: Batch) -> list[Outcome]:
        await may_end[len(google.batches) - 1].wait()
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = hang
    site = make_site()
    async with running(ctx, poll=3600):
        await eventually(lambda: query(LISTENING))
        sell(site, 250)  # told once; from here on it goes by itself
        for ended, begun in enumerate((2, 3, 4, 5)):  # the fourth call goes on to the end
            await eventually(lambda begun=begun: len(google.batches) == begun)
            may_end[ended].set()
        may_end[3].set()
        may_end[4].set()


async def test_calls_of_a_dead_process_are_recovered(
    ctx: Context,
    make_site: MakeSite,
    sell: Sell,
    query: Query,
    statuses: Statuses,
    eventually: Any,
    clock: Any,
) -> None:
    site = make_site()
    sell(site)
    query(
        "SELECT count(*) FROM weighbridge.claim_conversions('dead', '2 minutes', ARRAY[gen_random_uuid()],"
        " ARRAY[%s]::uuid[], '{google_ads}', '{50}')",
        (site,),
    )
    clock.forward(minutes=3)
    async with running(ctx):
        await eventually(lambda: statuses() == {"COMPLETED": 1})


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each poll."""
    found: list[int] = []
    groups = queue.groups

    async def counted(*asked: Any) -> list[DueGroup]:
        found.append(1)
        return await groups(*asked)

    monkeypatch.setattr(queue, "groups", counted)
    return found


async def test_a_slow_call_does_not_increase_the_polling_rate(
    ctx: Context,
    make_site: MakeSite,
    sell: Sell,
    google: Scripted,
    statuses: Statuses,
    eventually: Any,
    looks: list[int],
) -> None:
    async def slow(batch: Batch) -> list[Outcome]:
        await asyncio.sleep(0.7)
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = slow
    sell(make_site())
    async with running(ctx, poll=0.2):
        await eventually(lambda: statuses() == {"COMPLETED": 1})
        await asyncio.sleep(0.3)  # what the last call woke
        looks.clear()
        await asyncio.sleep(1)
        assert 2 <= len(looks) <= 12


async def test_rows_that_cannot_be_claimed_do_not_increase_the_polling_rate(
    ctx: Context, make_site: MakeSite, sell: Sell, db: Database, looks: list[int], statuses: Statuses
) -> None:
    """A long transaction of an application locks its row."""
    sell(make_site())
    async with db.tx() as tx:
        await tx.execute("SELECT FROM offline_conversion_queue FOR UPDATE")
        async with running(ctx, poll=0.2):
            await asyncio.sleep(1)
            assert 2 <= len(looks) <= 12
            assert statuses() == {"QUEUED": 1}


async def test_unreadable_credentials_are_reported_once(
    ctx: Context, make_site: MakeSite, sell: Sell, query: Query, lines: Lines, looks: list[int]
) -> None:
    """Credentials of another site, copied by hand."""
    site, other = make_site(), make_site()
    query(
        "UPDATE provider_credentials c SET ciphertext = o.ciphertext, nonce = o.nonce"
        " FROM provider_credentials o WHERE c.site_id = %s AND o.site_id = %s",
        (site, other),
    )
    sell(site)
    async with running(ctx, poll=0.1):
        await asyncio.sleep(1)
    assert 4 <= len(looks) <= 24
    assert len(lines("Credentials cannot be read")) == 1


async def test_it_reports_every_attempt_that_it_recovers(
    ctx: Context, put: Put, make_site: MakeSite, sell: Sell, query: Query, clock: Any, lines: Lines
) -> None:
    await put(meta_file(), source_batch_id="march")
    await attempt_of(ctx)
    site = make_site()
    sell(site)
    query(
        "SELECT count(*) FROM weighbridge.claim_conversions('dead', '2 minutes', ARRAY[gen_random_uuid()],"
        " ARRAY[%s]::uuid[], '{google_ads}', '{50}')",
        (site,),
    )
    clock.forward(hours=1)
    counted = metrics.TAKEOVERS._value.get()
    await Deliverer(ctx, "test", 100, timedelta(seconds=1))._recover()
    [taken_over], [recovered] = lines("Stale takeover"), lines("Conversions recovered")
    assert taken_over["source_batch_id"] == "march"
    assert recovered["original_worker_id"] == "dead"
    assert metrics.TAKEOVERS._value.get() == counted + 1  # of uploads only: its alert speaks of uploads
