"""In-flight limits of one process: how many batches may be claimed, and how many calls may hold a slot."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.run_signals import RunSignals
from weighbridge.delivery.slots.base import SlotLimits

LINGER = 0.005  # seconds for which a request to the database waits for others
CALLS_AT_ONCE = 32  # of a provider, where no limit is set
FAST = 1.0  # seconds; after a successful call that took less, batches of its provider are prefetched
PREFETCHED = 2  # batches of a group beyond its slots: one that is ready, and one that is being claimed


@dataclass
class InFlight:
    """Shared by the runs of a process, so that the limits apply to all of them together.

    A batch is in flight from its claim to the end of its call, and holds a slot during the call. While a provider
    answers successfully and quickly, up to three rounds of batches are in flight, so that no call waits for the
    database. Otherwise only one round is claimed, so that other processes can claim the other rows.
    """

    batches: Counter[str] = field(default_factory=Counter)  # in flight, by provider
    batches_of: Counter[GroupKey] = field(default_factory=Counter)
    held_slots: Counter[str] = field(default_factory=Counter)  # by provider
    held_slots_of: Counter[GroupKey] = field(default_factory=Counter)
    fast: set[str] = field(default_factory=set)  # providers whose last call was successful and fast
    unreadable: set[tuple[GroupKey, int]] = field(
        default_factory=set
    )  # logged: credentials, by group and version
    # Calls that have ended and cannot be settled now: another transaction has locked rows or counters of the group.
    held: dict[asyncio.Task[None], GroupKey] = field(default_factory=dict)
    signals: RunSignals = field(default_factory=RunSignals)

    def claimable(self, provider_key: str, limits: SlotLimits) -> int:
        """How many more batches may be claimed. Prefetching waits for a whole round: fewer and larger claims."""
        round_ = limits.per_provider or CALLS_AT_ONCE
        batches = self.batches[provider_key]
        if provider_key not in self.fast:
            return round_ - batches
        return 3 * round_ - batches if batches <= 2 * round_ else 0

    def may_claim(self, key: GroupKey, limits: SlotLimits) -> bool:
        return self.batches_of[key] < limits.per_site + (PREFETCHED if key.provider_key in self.fast else 0)

    async def settle_held(self) -> None:
        """Wait until every call is settled or has lost its lease."""
        while self.held:
            await asyncio.wait(self.held)

    def add_batch(self, key: GroupKey) -> None:
        self.batches[key.provider_key] += 1
        self.batches_of[key] += 1

    def call_ended(self, key: GroupKey, *, succeeded: bool, seconds: float) -> None:
        """The batch of a failed call stays in flight until the failure is written."""
        if succeeded and seconds < FAST:
            self.fast.add(key.provider_key)
        else:
            self.fast.discard(key.provider_key)
        if succeeded:
            self.remove_batch(key)

    def remove_batch(self, key: GroupKey) -> None:
        self.batches[key.provider_key] -= 1
        self.batches_of[key] -= 1
        self.signals.notify()

    def acquire_slot(self, key: GroupKey) -> None:
        self.held_slots[key.provider_key] += 1
        self.held_slots_of[key] += 1

    def release_slot(self, key: GroupKey) -> None:
        self.held_slots[key.provider_key] -= 1
        self.held_slots_of[key] -= 1
        self.signals.notify()
