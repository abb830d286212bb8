"""Signals between the concurrent runs of one process and the worker that starts them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic


@dataclass(eq=False)
class Run:
    """One run of a process."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)  # one of its stages may be able to start
    last_claim: float | None = None  # monotonic; None: it has claimed nothing yet, or its whole plan

    @property
    def claiming(self) -> bool:
        """It claims one batch after another."""
        return self.last_claim is not None and monotonic() - self.last_claim < 1


@dataclass
class RunSignals:
    runs: set[Run] = field(default_factory=set)
    all_claimed: asyncio.Event = field(default_factory=asyncio.Event)  # a run has claimed its whole plan

    def claiming_runs(self) -> int:
        """With more of them, each claim would have fewer groups."""
        return sum(run.claiming for run in self.runs)

    def notify(self) -> None:
        """A limit allows more."""
        for run in self.runs:
            run.changed.set()
