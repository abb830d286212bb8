"""No free slot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.providers.base import Batch
from weighbridge.delivery.slots.base import Slot, SlotLimits
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.model.delivery import Outcome


async def test_a_second_parallel_run_finds_no_slot_and_makes_no_call(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, db: Any
) -> None:
    """The smoke test: CONCURRENCY_PER_SITE_PROVIDER=1, the worker twice in parallel."""
    sell(make_site(), 2)
    calling, go_on = asyncio.Event(), asyncio.Event()

    async def slow(batch: Batch) -> list[Outcome]:
        calling.set()
        await go_on.wait()
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = slow
    limits = SlotLimits(per_site=1)
    one = {"limits": limits, "slots": PostgresSlots(db, limits)}
    first = asyncio.create_task(run(1, **one))
    await calling.wait()
    tally = await run(1, **one)
    assert (tally.retry, len(google.batches)) == (1, 1)
    [row] = query(
        "SELECT status, last_error, provider_error_code, provider_error_category, retry_count,"
        " next_retry_at - weighbridge.now() FROM offline_conversion_queue WHERE status = 'RETRY'"
    )
    assert row[:5] == ("RETRY", "CONCURRENCY_LIMIT: Semaphore full", "CONCURRENCY_LIMIT", "TRANSIENT", 0)
    assert timedelta(seconds=29) < row[5] <= timedelta(seconds=40)
    ledger = query(
        "SELECT phase, retry_count, error_code FROM provider_upload_attempts a WHERE EXISTS (SELECT FROM"
        " provider_upload_attempts f WHERE f.batch_id = a.batch_id AND f.phase = 'FINISHED') ORDER BY phase DESC"
    )
    assert ledger == [("STARTED", None, None), ("FINISHED", 1, "CONCURRENCY_LIMIT")]
    assert query("SELECT failure_count FROM provider_health_state") == [(1,)]
    go_on.set()
    assert (await first).completed == 1
    assert query("SELECT count(*) FROM weighbridge.slots") == [(0,)]


async def test_no_free_slot_need_not_count_as_a_failure(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sell(make_site())
    tally = await run(slots=_NoSlots(), full_counts=False)
    assert (tally.retry, google.batches) == (1, [])
    assert query("SELECT count(*) FROM provider_health_state WHERE failure_count > 0") == [(0,)]


async def test_a_run_makes_no_more_concurrent_calls_than_there_are_slots(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, db: Any
) -> None:
    """With many long groups."""
    google.max_batch = 3
    for _ in range(6):
        sell(make_site(), 10)
    under_way = most = 0
    first_four = asyncio.Barrier(4)

    async def counted(batch: Batch) -> list[Outcome]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if len(google.batches) <= 4:
            await asyncio.wait_for(first_four.wait(), 20)
        under_way -= 1
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = counted
    limits = SlotLimits(per_site=1, per_provider=4)
    tally = await run(60, limits=limits, slots=PostgresSlots(db, limits))
    assert (tally.completed, tally.retry, most) == (60, 0, 4)
    for site in {batch.site_id for batch in google.batches}:
        sent = [
            each.order_id for batch in google.batches if batch.site_id == site for each in batch.conversions
        ]
        assert sent == [f"order-{n}" for n in range(1, 11)]


async def test_groups_run_concurrently(make_site: MakeSite, sell: Sell, run: Run, google: Scripted) -> None:
    for _ in range(5):
        sell(make_site())
    all_here = asyncio.Barrier(5)

    async def together(batch: Batch) -> list[Outcome]:
        await asyncio.wait_for(all_here.wait(), 10)
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = together
    assert (await run()).completed == 5


class _NoSlots:
    """As Redis is when it is away."""

    async def acquire(self, keys: Sequence[GroupKey], returned: Sequence[Slot] = ()) -> list[Slot | None]:
        return [None] * len(keys)

    async def release(self, slots: Sequence[Slot]) -> None:
        raise AssertionError("nobody had one")

    async def close(self) -> None: ...


async def test_hanging_calls_keep_only_their_own_slots(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, eventually: Any
) -> None:
    """Six of ten hang, for three sites; the others go on with what is left."""
    google.max_batch = 1
    slow = {make_site() for _ in range(3)}
    for site in slow:
        sell(site, 2)
    for _ in range(5):
        sell(make_site(), 4)
    go_on = asyncio.Event()
    quick = 0

    async def some(batch: Batch) -> list[Outcome]:
        nonlocal quick
        if batch.site_id in slow:
            await go_on.wait()
        else:
            quick += 1
        return [Outcome.completed("r") for _ in batch.conversions]

    google.answer = some
    running = asyncio.create_task(run(26))
    await eventually(lambda: quick == 20)
    go_on.set()
    assert (await running).completed == 26
