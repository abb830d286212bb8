"""Releases and acquires the slots of many calls in one request: single requests cost as much as the calls.

The slot of an ended call is passed to the next call of its group without a request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

from weighbridge.delivery.context import Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import CALLS_AT_ONCE, LINGER, InFlight
from weighbridge.delivery.prefetch import Prefetched
from weighbridge.delivery.run_signals import Run
from weighbridge.delivery.slots.base import Slot


@dataclass(frozen=True, eq=False)
class HeldSlot:
    """The slot of a call."""

    slot: Slot
    acquired_at: float  # monotonic

    @property
    def key(self) -> GroupKey:
        return self.slot.key


@dataclass(frozen=True)
class Slotted:
    """A batch with a slot, to be called now. Without one (`slot` is None) every slot is taken."""

    prefetched: Prefetched
    slot: HeldSlot | None


class SlotBatcher:
    """Waiting batches of one run, and the slots of its ended calls, until the next request for slots."""

    def __init__(self, outbound: Outbound, in_flight: InFlight, run: Run) -> None:
        self._outbound = outbound
        self._in_flight = in_flight
        self._run = run
        # For a slot, by provider, in the order of their claims.
        self._waiting: dict[str, list[Prefetched]] = {}
        # Slots of ended calls, until they are passed on or released; each call waits for that.
        self._ended: dict[HeldSlot, asyncio.Future[None]] = {}
        self._free_since: dict[str, float] = {}  # since when a provider has a free slot for a waiting batch
        self._ended_since: float | None = None  # since when `_ended` has its first slot

    @property
    def busy(self) -> bool:
        return bool(self._ended or any(self._waiting.values()))

    @property
    def next_due(self) -> float | None:
        """When an exchange that waits for further requests is due."""
        first = min(self._free_since.values(), default=inf)
        if self._ended_since is not None:
            first = min(first, self._ended_since)
        return first + LINGER if first < inf else None

    def add(self, prefetched: Prefetched) -> None:
        self._waiting.setdefault(prefetched.key.provider_key, []).append(prefetched)

    def remove(self, target: GroupKey | str) -> list[Prefetched]:
        """Remove waiting batches of a group or a provider, which are no longer to be called."""
        provider_key = target if isinstance(target, str) else target.provider_key
        waiting = self._waiting.get(provider_key, [])
        found = [each for each in waiting if isinstance(target, str) or each.key == target]
        for each in found:
            waiting.remove(each)
        return found

    async def release(self, slot: HeldSlot) -> None:
        """The call has ended. Its slot is released with the next exchange, or after a moment if there is none."""
        released = self._ended[slot] = asyncio.get_running_loop().create_future()
        self._run.changed.set()
        await released

    def take_due(self, *, claiming: bool) -> list[Prefetched] | None:
        """Batches for which slots are free, counted from now on as calls; None: there is nothing to exchange yet."""
        batches = self._with_free_slot()
        if not batches and not self._must_release(claiming=claiming):
            return None
        for each in batches:
            self._waiting[each.key.provider_key].remove(each)
            self._in_flight.acquire_slot(each.key)
        return batches

    def pass_on(self, batches: Sequence[Prefetched]) -> Iterator[Slotted]:
        """Batches that get the slot of an ended call of their own group, without a request."""
        for each in batches:
            ended = next((e for e in self._ended if e.key == each.key and self._may_be_passed_on(e)), None)
            if ended is not None:
                self._released(ended, self._ended.pop(ended))
                yield Slotted(each, ended)

    async def exchange(self, batches: Sequence[Prefetched]) -> list[Slotted]:
        """One request: release the slots of ended calls, acquire one for each batch."""
        ended, self._ended = self._ended, {}
        self._ended_since = None
        if not (batches or ended):
            return []
        now = monotonic()
        acquired: Sequence[Slot | None] = [None] * len(batches)
        try:
            wanted = [each.key for each in batches]
            acquired = await self._outbound.slots.acquire(wanted, [each.slot for each in ended])
        finally:  # also after an error: no call may wait for its slot for ever
            for each, released in ended.items():
                self._released(each, released)
            for batch, slot in zip(batches, acquired, strict=True):
                if slot is None:
                    self._in_flight.release_slot(batch.key)
        return [
            Slotted(batch, HeldSlot(slot, now) if slot else None)
            for batch, slot in zip(batches, acquired, strict=True)
        ]

    def _with_free_slot(self) -> list[Prefetched]:
        """Waiting batches whose limits have a free slot. If few slots are free, they wait a moment for more."""
        found: list[Prefetched] = []
        limits = self._outbound.limits
        most = limits.per_provider or CALLS_AT_ONCE
        for provider_key, waiting in self._waiting.items():
            # Slots of ended calls are released before new ones are acquired.
            ended = Counter(each.key for each in self._ended if each.key.provider_key == provider_key)
            free = most - self._in_flight.held_slots[provider_key] + ended.total()
            fitting: list[Prefetched] = []
            for each in waiting if free > 0 else ():
                if self._in_flight.held_slots_of[each.key] - ended[each.key] < limits.per_site:
                    fitting.append(each)
                    ended[each.key] -= 1
                if len(fitting) == free:
                    break
            now = 2 * free >= most or (bool(fitting) and self._free_slots_lingered(provider_key))
            if now:
                found += fitting
            if now or not fitting:
                self._free_since.pop(provider_key, None)
        return found

    def _must_release(self, *, claiming: bool) -> bool:
        """Slots of ended calls that no batch of this run takes over soon."""
        if not self._ended:
            self._ended_since = None
            return False
        return not (claiming or any(self._waiting.values())) or self._ended_lingered()

    def _free_slots_lingered(self, provider_key: str) -> bool:
        now = monotonic()
        return now - self._free_since.setdefault(provider_key, now) >= LINGER

    def _ended_lingered(self) -> bool:
        now = monotonic()
        if self._ended_since is None:
            self._ended_since = now
        return now - self._ended_since >= LINGER

    def _may_be_passed_on(self, ended: HeldSlot) -> bool:
        """A slot and a call have leases of the same length, of which a call uses three quarters at most."""
        return monotonic() - ended.acquired_at < 0.1 * self._outbound.limits.ttl.total_seconds()

    def _released(self, ended: HeldSlot, released: asyncio.Future[None]) -> None:
        self._in_flight.release_slot(ended.key)
        if not released.done():
            released.set_result(None)
