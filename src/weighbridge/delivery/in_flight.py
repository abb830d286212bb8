"""In-flight limits of one process: how many batches may be claimed, and how many calls may hold a slot."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from weighbridge.delivery.slots.base import SlotLimits

CALLS_AT_ONCE = 32  # of a provider, where no limit is set
FAST = 1.0  # seconds; after a successful call that took less, batches of its provider are prefetched
PREFETCHED = 2  # batches of a group beyond its slots: one that is ready, and one that is being claimed

GroupKey = tuple[UUID, str]  # a site and a provider


@dataclass
class InFlight:
    """Shared by the runs of a process, so that together they keep the limits.

    A batch is in flight from its claim to the end of its call, and holds a slot during the call. While a provider
    answers successfully and quickly, up to three rounds of batches are in flight, so that no call waits for the
    database. Otherwise only one round is claimed, and the other rows are left to other processes.
    """

    batches: Counter[str] = field(default_factory=Counter)  # in flight, by provider
    batches_of: Counter[GroupKey] = field(default_factory=Counter)
    slots: Counter[str] = field(default_factory=Counter)  # held, by provider
    slots_of: Counter[GroupKey] = field(default_factory=Counter)
    fast: set[str] = field(default_factory=set)  # providers whose last call was successful and fast
    unreadable: set[tuple[UUID, str, int]] = field(default_factory=set)  # credentials, by group and version
    changed: set[asyncio.Event] = field(default_factory=set)  # of each run: set when a limit allows more
    all_claimed: asyncio.Event = field(default_factory=asyncio.Event)  # a run has claimed its whole plan
    last_claims: dict[asyncio.Event, float] = field(default_factory=dict)  # of each run, by its event

    def claiming_runs(self) -> int:
        """Runs that claim one batch after another. With more of them, each claim would have fewer groups."""
        return sum(monotonic() - last < 1 for last in self.last_claims.values())

    def claimable(self, provider_key: str, limits: SlotLimits) -> int:
        """How many more batches may be claimed. Prefetching waits for a whole round: fewer and larger claims."""
        round_ = limits.per_provider or CALLS_AT_ONCE
        batches = self.batches[provider_key]
        if provider_key not in self.fast:
            return round_ - batches
        return 3 * round_ - batches if batches <= 2 * round_ else 0

    def may_claim(self, key: GroupKey, limits: SlotLimits) -> bool:
        return self.batches_of[key] < limits.per_site + (PREFETCHED if key[1] in self.fast else 0)

    def add_batch(self, key: GroupKey) -> None:
        self.batches[key[1]] += 1
        self.batches_of[key] += 1

    def call_ended(self, key: GroupKey, *, succeeded: bool, seconds: float) -> None:
        """The batch of a failed call stays in flight until the failure is written."""
        if succeeded and seconds < FAST:
            self.fast.add(key[1])
        else:
            self.fast.discard(key[1])
        if succeeded:
            self.remove_batch(key)

    def remove_batch(self, key: GroupKey) -> None:
        self.batches[key[1]] -= 1
        self.batches_of[key] -= 1
        self._notify()

    def acquire_slot(self, key: GroupKey) -> None:
        self.slots[key[1]] += 1
        self.slots_of[key] += 1

    def release_slot(self, key: GroupKey) -> None:
        self.slots[key[1]] -= 1
        self.slots_of[key] -= 1
        self._notify()

    def _notify(self) -> None:
        for changed in self.changed:
            changed.set()
