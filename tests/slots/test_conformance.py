"""The same tests on slots in Postgres and in Redis, both real."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.slots.conftest import SHORT, TTL, Backend
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import Slot, SlotLimits, Slots, global_key, site_key

Make = Callable[..., Slots]
GOOGLE, META = "google_ads", "meta_capi"
SITES = [UUID(int=n) for n in range(1, 33)]
A = GroupKey(SITES[0], GOOGLE)


def got(held: Sequence[Slot | None]) -> list[Slot]:
    return [each for each in held if each is not None]


def pattern(held: Sequence[Slot | None]) -> str:
    """`++-`: the third got none."""
    return "".join("-" if each is None else "+" for each in held)


# Limits -----------------------------------------------------------------------------------------------------


async def test_a_site_has_two_slots_and_each_provider_counts_apart(make_slots: Make) -> None:
    slots = make_slots()
    assert pattern(await slots.acquire([A, A, A])) == "++-"
    assert pattern(await slots.acquire([A])) == "-"
    assert pattern(await slots.acquire([GroupKey(A.site_id, META), GroupKey(SITES[1], GOOGLE)])) == "++"


async def test_a_provider_has_ten_slots_for_all_sites_together(make_slots: Make) -> None:
    slots = make_slots()
    assert pattern(await slots.acquire([GroupKey(site, GOOGLE) for site in SITES[:12]])) == "++++++++++--"
    assert pattern(await slots.acquire([GroupKey(SITES[20], GOOGLE), GroupKey(SITES[20], META)])) == "-+"


async def test_held_slots_are_answered_in_the_order_of_the_groups(make_slots: Make) -> None:
    groups = [A, GroupKey(SITES[1], META), A, A, GroupKey(SITES[2], GOOGLE)]
    held = await make_slots().acquire(groups)
    assert [each and each.key for each in held] == [*groups[:3], None, groups[4]]
    assert len({each.token for each in got(held)}) == 4


async def test_slots_are_kept_under_the_names_of_s4(make_slots: Make, backend: Backend) -> None:
    [held] = got(await make_slots().acquire([A]))
    assert backend.held() == {
        "conc:00000000-0000-0000-0000-000000000001:google_ads": {held.token},
        "conc:global:google_ads": {held.token},
    }


async def test_a_group_without_a_provider_slot_keeps_no_site_slot(make_slots: Make, backend: Backend) -> None:
    slots = make_slots(2, 1)
    first = got(await slots.acquire([A]))
    assert pattern(await slots.acquire([GroupKey(SITES[1], GOOGLE), A])) == "--"
    assert backend.held() == {site_key(A): {first[0].token}, global_key(A): {first[0].token}}


async def test_a_group_without_a_site_slot_keeps_no_provider_slot(make_slots: Make, backend: Backend) -> None:
    slots = make_slots(1, 5)
    assert pattern(await slots.acquire([A, A, A, A])) == "+---"
    assert len(backend.held()[global_key(A)]) == 1


async def test_zero_means_no_limit_for_all_sites(make_slots: Make, backend: Backend) -> None:
    slots = make_slots(2, 0)
    held = await slots.acquire([GroupKey(site, GOOGLE) for site in SITES] + [A, A])
    assert pattern(held) == "+" * 33 + "-"
    assert global_key(A) not in backend.held()
    await slots.release(got(held))
    assert backend.held() == {}


async def test_a_lower_limit_counts_what_is_held_already(make_slots: Make) -> None:
    ten, three = make_slots(10, 10), make_slots(3, 3)
    held = got(await ten.acquire([A] * 6))
    await ten.release(held[:2])  # of the first numbers, where slots have numbers
    assert pattern(await three.acquire([A])) == "-"
    await ten.release(held[2:4])
    assert pattern(await three.acquire([A, A])) == "+-"


async def test_no_groups_need_no_slots(make_slots: Make) -> None:
    slots = make_slots()
    assert await slots.acquire([]) == []
    await slots.release([])


# Giving back ------------------------------------------------------------------------------------------------


async def test_a_released_slot_can_be_acquired_in_the_same_turn(make_slots: Make, backend: Backend) -> None:
    slots = make_slots(1, 2)
    first = got(await slots.acquire([A, GroupKey(SITES[1], GOOGLE)]))
    held = await slots.acquire([A, GroupKey(SITES[2], GOOGLE), GroupKey(SITES[3], GOOGLE)], first)
    assert pattern(held) == "++-"
    assert backend.held()[global_key(A)] == {each.token for each in got(held)}
    assert await slots.acquire([], got(held)) == []
    assert backend.held() == {}


async def test_a_released_slot_is_free_at_once_and_leaves_nothing(make_slots: Make, backend: Backend) -> None:
    slots = make_slots()
    held = got(await slots.acquire([A, A]))
    await slots.release(held[:1])
    again = got(await slots.acquire([A, A]))
    assert len(again) == 1
    await slots.release([held[1], *again])
    assert backend.held() == {}


async def test_releasing_twice_does_not_free_the_slot_of_another_holder(make_slots: Make) -> None:
    mine, others = make_slots(), make_slots()
    first = got(await mine.acquire([A]))
    await mine.release(first)
    assert pattern(await others.acquire([A, A])) == "++"
    await mine.release(first)
    await mine.release(first * 3)
    assert pattern(await mine.acquire([A])) == "-"


async def test_a_process_can_release_the_slot_of_another_process(make_slots: Make) -> None:
    held = got(await make_slots().acquire([A, A]))
    others = make_slots()
    await others.release(held)
    assert pattern(await others.acquire([A, A])) == "++"


# Holders that die -------------------------------------------------------------------------------------------


async def test_the_slot_of_a_dead_holder_is_free_after_its_time_and_not_before(
    make_slots: Make, backend: Backend
) -> None:
    slots = make_slots(2, 10)
    await slots.acquire([A])  # and nobody gives it back
    dead = got(await make_slots(ttl=SHORT).acquire([A]))
    assert pattern(await slots.acquire([A])) == "-"
    backend.lapse()
    assert pattern(await slots.acquire([A, A])) == "+-"
    assert dead[0].token not in set(chain(*backend.held().values()))  # purged on acquire


async def test_the_dead_free_the_slots_of_the_provider_too(make_slots: Make, backend: Backend) -> None:
    await make_slots(2, 3, SHORT).acquire([GroupKey(site, GOOGLE) for site in SITES[:3]])
    slots = make_slots(2, 3)
    assert pattern(await slots.acquire([GroupKey(SITES[9], GOOGLE)])) == "-"
    backend.lapse()
    assert pattern(await slots.acquire([GroupKey(site, GOOGLE) for site in SITES[9:13]])) == "+++-"


async def test_a_late_holder_releases_only_its_own_slots(make_slots: Make, backend: Backend) -> None:
    late = make_slots(1, 10, SHORT)
    held = got(await late.acquire([A]))
    backend.lapse()
    slots = make_slots(1, 10)
    assert pattern(await slots.acquire([A])) == "+"
    await late.release(held)
    assert pattern(await slots.acquire([A])) == "-"


async def test_a_shorter_lease_does_not_end_the_lease_of_another_holder(
    make_slots: Make, backend: Backend
) -> None:
    long, short = make_slots(2, 10), make_slots(2, 10, SHORT)
    await long.acquire([A])
    await short.acquire([A])
    backend.lapse()
    assert pattern(await long.acquire([A, A])) == "+-"


async def test_a_cancelled_call_leaves_nothing_behind(make_slots: Make, backend: Backend) -> None:
    """Wherever it was cut: it may have got its slots when nobody was there any more to take them."""
    slots = make_slots(1, 10)
    for cut in range(60):
        call = asyncio.create_task(slots.acquire([A]))
        for _ in range(cut):
            await asyncio.sleep(0)
        call.cancel()
        [result] = await asyncio.gather(call, return_exceptions=True)
        if isinstance(result, list):
            await slots.release(got(result))
        fresh = await slots.acquire([A])
        assert pattern(fresh) == "+", f"after {cut} turns"
        await slots.release(got(fresh))
    await slots.close()
    assert backend.held() == {}


# Many at once -----------------------------------------------------------------------------------------------


class Watch:
    """Counts who is inside, from outside."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.granted = 0

    def enter(self, group: GroupKey) -> None:
        self.granted += 1
        for key in (site_key(group), global_key(group)):
            self.inside[key] += 1
            self.most[key] = max(self.most[key], self.inside[key])

    def leave(self, group: GroupKey) -> None:
        self.inside.subtract((site_key(group), global_key(group)))


async def crowd(slots: Slots, watch: Watch, sites: Sequence[UUID], rounds: int, seed: int) -> None:
    for n in range(rounds):
        # Keys in ever other orders: whoever locked them as they come would meet somebody the other way round.
        turned = [*sites[(seed + n) % len(sites) :], *sites[: (seed + n) % len(sites)]]
        turned = turned[::-1] if seed % 2 else turned
        groups = [GroupKey(site, provider) for site in turned for provider in (GOOGLE, META, GOOGLE)]
        held = got(await slots.acquire(groups))
        for each in held:
            watch.enter(each.key)
        await asyncio.sleep(0)
        for each in held:
            watch.leave(each.key)
        await slots.release(held)


async def test_limits_hold_for_many_concurrent_callers_without_a_deadlock(
    make_slots: Make, backend: Backend
) -> None:
    watch = Watch()
    many = [make_slots(2, 5) for _ in range(16)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(crowd(slots, watch, SITES[:4], 12, n) for n, slots in enumerate(many)))
    assert {key: most for key, most in watch.most.items() if most > (5 if "global" in key else 2)} == {}
    assert watch.most[global_key(A)] == 5  # the limits were met, not only kept
    assert watch.most[site_key(A)] == 2
    assert backend.held() == {}


def _process(backend: str, address: str, rounds: int, answers: Any) -> None:
    """A process of its own: takes slots, notes when it had them by a clock that all share, gives them back."""
    asyncio.run(_in_process(backend, address, rounds, answers))


async def _in_process(backend: str, address: str, rounds: int, answers: Any) -> None:
    from time import clock_gettime_ns

    from weighbridge.delivery.slots.postgres import PostgresSlots
    from weighbridge.delivery.slots.redis import RedisSlots
    from weighbridge.postgres.transactions import Database

    limits = SlotLimits(2, 3, TTL)
    db = Database(address) if backend == "postgres" else None
    if db:
        await db.open()
    slots: Slots = PostgresSlots(db, limits) if db else RedisSlots(address, limits)
    spans: list[tuple[str, int, int]] = []
    for _ in range(rounds):
        for held in got(await slots.acquire([A, GroupKey(SITES[1], GOOGLE)])):
            begun = clock_gettime_ns(1)  # CLOCK_MONOTONIC is the same in all processes of a machine
            await asyncio.sleep(0)
            spans.append((site_key(held.key), begun, clock_gettime_ns(1)))
            await slots.release([held])
    await slots.close()
    if db:
        await db.close()
    answers.put(spans)


async def test_limits_hold_across_processes(backend: Backend) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=_process, args=(backend.name, backend.address, 60, answers), daemon=True)
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    spans = [span for _ in processes for span in answers.get(timeout=60)]
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    # An end comes before a beginning at the same moment.
    moments = sorted(chain.from_iterable([(begun, 1, key), (ended, -1, key)] for key, begun, ended in spans))
    inside: Counter[str] = Counter()
    for _, step, key in moments:
        inside[key] += step
        assert inside[key] <= 2
        assert inside.total() <= 3
    assert len(spans) > 60
    assert backend.held() == {}


async def test_thirty_two_groups_are_one_call(make_slots: Make) -> None:
    """As many as a round of deliveries asks for, with every site twice and one too many."""
    groups = [GroupKey(site, provider) for site in SITES[:5] for provider in (GOOGLE, META) for _ in range(3)]
    held = await make_slots(2, 100).acquire([*groups, A, A])
    assert pattern(held) == "++-" * 10 + "--"


@pytest.mark.parametrize("ttl", [timedelta(milliseconds=1), timedelta(microseconds=1)])
async def test_the_shortest_of_leases_are_leases(make_slots: Make, ttl: timedelta) -> None:
    slots = make_slots(ttl=ttl)
    held = got(await slots.acquire([A, A]))
    assert len(held) == 2
    await slots.release(held)


async def test_a_stranger_holds_no_slot(make_slots: Make) -> None:
    slots = make_slots(1)
    held = got(await slots.acquire([A]))
    await slots.release([Slot(A, uuid4())])
    assert pattern(await slots.acquire([A])) == "-"
    await slots.release(held)
