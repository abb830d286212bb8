"""Signals between the concurrent runs of one process and the worker that starts them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID


@dataclass
class RunSignals:
    changed: set[asyncio.Event] = field(default_factory=set)  # of each run: set when a limit allows more
    all_claimed: asyncio.Event = field(default_factory=asyncio.Event)  # a run has claimed its whole plan
    last_claims: dict[asyncio.Event, float] = field(default_factory=dict)  # of each run, by its event
    unreadable: set[tuple[UUID, str, int]] = field(default_factory=set)  # credentials, by group and version

    def claiming_runs(self) -> int:
        """Runs that claim one batch after another. With more of them, each claim would have fewer groups."""
        return sum(monotonic() - last < 1 for last in self.last_claims.values())

    def notify(self) -> None:
        for changed in self.changed:
            changed.set()
