"""The calls that this process has in flight, and how many more it may start."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from weighbridge.delivery.slots.base import SlotLimits

AT_ONCE = 32  # calls of a provider, where no limit is set
QUICK = 1.0  # seconds of a call after which the next one of its provider is claimed while it is under way

AHEAD = 2  # batches of a group: one that waits, and one that is claimed meanwhile

Key = tuple[UUID, str]  # a group: its site and its provider


@dataclass
class Room:
    """Shared by the runs of a process, so that none stands in another's way.

    A batch is in hand from its claim to the end of its call, and aboard while it holds a slot. There are as many
    aboard as there are slots. While a provider answers well and quickly, two rounds more are claimed: nobody waits
    for the database between two calls. Otherwise rows are better left to others, and none is claimed ahead.
    """

    in_hand: Counter[str] = field(default_factory=Counter)  # of a provider
    in_hand_of: Counter[Key] = field(default_factory=Counter)
    aboard: Counter[str] = field(default_factory=Counter)
    aboard_of: Counter[Key] = field(default_factory=Counter)
    quick: set[str] = field(default_factory=set)  # providers whose last call was well and quick
    unreadable: set[tuple[UUID, str, int]] = field(default_factory=set)  # credentials, by group and version
    news: set[asyncio.Event] = field(default_factory=set)  # of each run: there is room again
    claimed: asyncio.Event = field(default_factory=asyncio.Event)  # a run has claimed all of its share
    claims: dict[asyncio.Event, float] = field(default_factory=dict)  # when each run claimed last

    def busy(self) -> int:
        """Runs that claim one batch after another. More of them would only claim fewer groups at a time."""
        return sum(monotonic() - last < 1 for last in self.claims.values())

    def to_claim(self, provider_key: str, limits: SlotLimits) -> int:
        """How many more may be claimed. Ahead, whole rounds are: fewer and larger claims."""
        most = limits.per_provider or AT_ONCE
        held = self.in_hand[provider_key]
        if provider_key not in self.quick:
            return most - held
        return 3 * most - held if held <= 2 * most else 0

    def may_claim(self, key: Key, limits: SlotLimits) -> bool:
        return self.in_hand_of[key] < limits.per_site + (AHEAD if key[1] in self.quick else 0)

    def claim(self, key: Key) -> None:
        self.in_hand[key[1]] += 1
        self.in_hand_of[key] += 1

    def over(self, key: Key, *, well: bool, seconds: float) -> None:
        """Its call. One that did not go well stays in hand until that is written."""
        if well and seconds < QUICK:
            self.quick.add(key[1])
        else:
            self.quick.discard(key[1])
        if well:
            self.leave(key)

    def leave(self, key: Key) -> None:
        self.in_hand[key[1]] -= 1
        self.in_hand_of[key] -= 1
        self.tell()

    def board(self, key: Key) -> None:
        self.aboard[key[1]] += 1
        self.aboard_of[key] += 1

    def disembark(self, key: Key) -> None:
        """Its slot is given back."""
        self.aboard[key[1]] -= 1
        self.aboard_of[key] -= 1
        self.tell()

    def tell(self) -> None:
        for news in self.news:
            news.set()
