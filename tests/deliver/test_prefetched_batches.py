"""Batches that are claimed during the calls of others, and slots that are reused from one call to the next."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery import queue
from weighbridge.delivery.context import Context
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.providers.base import Batch
from weighbridge.delivery.queue import CallBatch, ClaimedRows
from weighbridge.delivery.slots.base import Slot, SlotLimits
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.model.delivery import Category, Outcome, ProviderRateLimitError
from weighbridge.model.errors import RetryLater
from weighbridge.postgres.transactions import Database, Tx

Statuses = Callable[[], dict[str, int]]
ALONE = SlotLimits(per_site=1)


@dataclass
class Watched(PostgresSlots):
    """Counts how often slots were acquired and released."""

    db: Database
    known: SlotLimits
    turns: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.db, self.known)

    async def acquire(self, keys: Sequence[GroupKey], returned: Sequence[Slot] = ()) -> list[Slot | None]:
        self.turns.append((len(keys), len(returned)))
        return await super().acquire(keys, returned)


async def seen(statuses: Statuses, processing: int) -> None:
    async with asyncio.timeout(10):
        while statuses().get("PROCESSING") != processing:
            await asyncio.sleep(0.01)


def taken(batch: Batch) -> list[Outcome]:
    return [Outcome.completed("r") for _ in batch.conversions]


async def test_the_next_batch_is_claimed_during_a_call(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, statuses: Statuses, db: Database
) -> None:
    google.max_batch = 2
    sell(make_site(), 6)
    third = asyncio.Event()

    async def answer(batch: Batch) -> list[Outcome]:
        if len(google.batches) == 2:
            await seen(statuses, 4)  # its own two, and the next two
            third.set()
        return taken(batch)

    google.answer = answer
    tally = await run(limits=ALONE, slots=PostgresSlots(db, ALONE))
    assert third.is_set()
    assert google.sent == [f"order-{n}" for n in range(1, 7)]
    assert (tally.calls, tally.completed) == (3, 6)


@pytest.mark.parametrize("why", ["slow", "failing"])
async def test_no_batch_is_prefetched_for_a_slow_or_failing_provider(
    make_site: MakeSite,
    sell: Sell,
    run: Run,
    google: Scripted,
    statuses: Statuses,
    db: Database,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    """Other workers can claim its rows, and no lease expires while they wait."""
    google.max_batch = 2
    sell(make_site(), 6)
    ahead: list[int] = []

    async def answer(batch: Batch) -> list[Outcome]:
        await asyncio.sleep(0.1)
        ahead.append(statuses()["PROCESSING"])
        if why == "slow":
            return taken(batch)
        return [Outcome.failed("X", "No.", Category.VALIDATION) for _ in batch.conversions]

    google.answer = answer
    monkeypatch.setattr("weighbridge.delivery.in_flight.FAST", 0.05)
    await run(limits=ALONE, slots=PostgresSlots(db, ALONE))
    assert ahead == [2, 2, 2]


async def test_prefetched_batches_are_not_sent_after_a_pause(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, query: Query
) -> None:
    for _ in range(60):
        sell(make_site())

    async def answer(batch: Batch) -> list[Outcome]:
        if len(google.batches) <= 20:
            return taken(batch)
        await asyncio.sleep(0.2)  # long enough for all slots to be taken, and for the next to be claimed
        raise ProviderRateLimitError("Slowly.", "QUOTA", timedelta(minutes=3), whole_provider=True)

    google.answer = answer
    await run(100)
    assert len(google.batches) <= 30  # ten at once, and no more
    [(held_back,)] = query("SELECT count(*) FROM provider_upload_attempts WHERE error_code = 'HELD_BACK'")
    assert held_back >= 10
    assert query(
        "SELECT DISTINCT status, retry_count, last_error FROM offline_conversion_queue"
        " WHERE provider_error_code = 'HELD_BACK'"
    ) == [("RETRY", 0, "HELD_BACK: Not sent, because an earlier call failed.")]
    assert query("SELECT count(*) FROM weighbridge.attempts WHERE closed_at IS NULL") == [(0,)]


async def test_prefetched_batches_of_a_group_are_not_sent_after_its_credentials_are_refused(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, db: Database, statuses: Statuses
) -> None:
    google.max_batch = 1
    sell(make_site(), 10)

    async def answer(batch: Batch) -> list[Outcome]:
        if len(google.batches) < 3:
            return taken(batch)
        await seen(statuses, 3)  # the batch of the call, and two prefetched ones
        return [Outcome.failed("401", "No.", Category.AUTH)]

    google.answer = answer
    await run(limits=ALONE, slots=PostgresSlots(db, ALONE))
    assert google.sent == ["order-1", "order-2", "order-3"]
    assert statuses() == {"COMPLETED": 2, "FAILED": 1, "RETRY": 2, "QUEUED": 5}


async def test_a_batch_that_is_being_claimed_when_credentials_are_refused_is_not_sent(
    make_site: MakeSite,
    sell: Sell,
    run: Run,
    google: Scripted,
    db: Database,
    statuses: Statuses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    google.max_batch = 1
    sell(make_site(), 10)
    claimed, refused = asyncio.Event(), asyncio.Event()
    read = ClaimedRows.read

    async def late(found: ClaimedRows) -> list[CallBatch]:
        if len(google.batches) == 3:
            claimed.set()
            await refused.wait()
            await asyncio.sleep(0.05)
        return await read(found)

    async def answer(batch: Batch) -> list[Outcome]:
        if len(google.batches) < 3:
            await asyncio.sleep(0.1)
            return taken(batch)
        async with asyncio.timeout(10):
            await claimed.wait()
        refused.set()
        return [Outcome.failed("401", "No.", Category.AUTH)]

    google.answer = answer
    monkeypatch.setattr(ClaimedRows, "read", late)
    await run(limits=ALONE, slots=PostgresSlots(db, ALONE))
    assert google.sent == ["order-1", "order-2", "order-3"]
    assert statuses() == {"COMPLETED": 2, "FAILED": 1, "RETRY": 2, "QUEUED": 5}


async def test_a_claim_that_was_not_committed_does_not_count_as_in_flight(
    make_site: MakeSite, sell: Sell, ctx: Context, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell(make_site(), 3)
    in_flight = InFlight()
    claim = queue.claim

    async def cut(tx: Tx, *asked: Any) -> ClaimedRows:
        found = await claim(tx, *asked)
        query("SELECT pg_terminate_backend(%s, 5000)", (tx.info.backend_pid,))
        return found

    monkeypatch.setattr(queue, "claim", cut)
    for _ in range(2):
        with pytest.raises(RetryLater):
            await deliver(ctx, "test", 10, in_flight)
    monkeypatch.setattr(queue, "claim", claim)
    assert (await deliver(ctx, "test", 10, in_flight)).completed == 3


class Failing(PostgresSlots):
    failed = False

    async def acquire(self, keys: Sequence[GroupKey], returned: Sequence[Slot] = ()) -> list[Slot | None]:
        if returned and not self.failed:
            self.failed = True
            raise ZeroDivisionError
        return await super().acquire(keys, returned)


async def test_an_error_of_the_slots_ends_the_run(
    make_site: MakeSite, sell: Sell, ctx: Context, db: Database, statuses: Statuses
) -> None:
    assert ctx.outbound is not None
    for _ in range(30):
        sell(make_site())
    in_flight = InFlight()
    faulty = replace(ctx, outbound=replace(ctx.outbound, slots=Failing(db, SlotLimits())))
    async with asyncio.timeout(20):
        with pytest.raises(ZeroDivisionError):
            await deliver(faulty, "test", 50, in_flight)
    assert "PROCESSING" not in statuses()
    assert (+in_flight.batches, +in_flight.held_slots) == (Counter(), Counter())


async def test_a_call_reuses_the_slot_of_the_previous_call(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, db: Database, query: Query
) -> None:
    google.max_batch = 1
    sell(make_site(), 20)
    slots = Watched(db, ALONE)

    async def answer(batch: Batch) -> list[Outcome]:
        await asyncio.sleep(0.02)  # long enough for the next to be claimed
        return taken(batch)

    google.answer = answer
    assert (await run(limits=ALONE, slots=slots)).completed == 20
    assert sum(places for places, _ in slots.turns) < 10
    assert query("SELECT count(*) FROM weighbridge.slots") == [(0,)]


async def test_a_slot_that_would_expire_during_a_call_is_acquired_again(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, db: Database
) -> None:
    limits = replace(ALONE, ttl=timedelta(seconds=3))
    google.max_batch = 1
    sell(make_site(), 3)
    slots = Watched(db, limits)

    async def answer(batch: Batch) -> list[Outcome]:
        await asyncio.sleep(0.4)  # more than a tenth
        return taken(batch)

    google.answer = answer
    assert (await run(limits=limits, slots=slots)).completed == 3
    assert [places for places, _ in slots.turns if places] == [1, 1, 1]


async def test_slots_of_many_sites_are_released_and_acquired_together(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, db: Database, query: Query
) -> None:
    for _ in range(60):
        sell(make_site())
    slots = Watched(db, SlotLimits())
    assert (await run(100, slots=slots)).completed == 60
    assert len(google.batches) == 60
    assert sum(places for places, _ in slots.turns) == sum(back for _, back in slots.turns) == 60
    assert len(slots.turns) <= 30
    assert query("SELECT count(*) FROM weighbridge.slots") == [(0,)]


async def test_prefetching_for_one_provider_does_not_stop_the_calls_of_others(
    make_site: MakeSite, sell: Sell, run: Run, google: Scripted, meta: Scripted
) -> None:
    for _ in range(80):
        sell(make_site("google_ads", "meta_capi"))
    at_once = most = 0

    async def answer(batch: Batch) -> list[Outcome]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return taken(batch)

    meta.answer = answer
    assert (await run(200)).completed == 160
    assert most == 10


def test_at_most_two_rounds_and_two_batches_of_a_group_are_prefetched() -> None:
    in_flight, limits = InFlight(), SlotLimits(per_site=2, per_provider=4)
    keys = [GroupKey(UUID(int=n), "google_ads") for n in range(20)]
    assert in_flight.claimable("google_ads", limits) == 4
    for key in keys[:4]:
        in_flight.add_batch(key)
    assert in_flight.claimable("google_ads", limits) == 0
    in_flight.call_ended(keys[0], succeeded=True, seconds=0.1)
    assert in_flight.claimable("google_ads", limits) == 9
    assert in_flight.claimable("meta_capi", limits) == 4
    for _ in range(3):
        in_flight.add_batch(keys[0])
    assert in_flight.may_claim(keys[0], limits)
    in_flight.add_batch(keys[0])
    assert not in_flight.may_claim(keys[0], limits)
    in_flight.call_ended(keys[1], succeeded=False, seconds=0.1)
    assert (in_flight.batches["google_ads"], in_flight.claimable("google_ads", limits)) == (7, -3)
