"""Counts of one delivery run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from weighbridge.delivery.queue import Settled


@dataclass
class RunCounts:
    """Counts of one run, as the cron route returns them. The names of the first four are fixed."""

    processed: int = 0
    completed: int = 0
    failed: int = 0
    retry: int = 0
    calls: int = 0
    full: int = 0  # batches for which no slot was free; they were not sent
    parked: int = 0  # conversions postponed because the circuit of their group is open
    skipped: Counter[str] = field(default_factory=Counter)  # groups, by what blocks them

    def add(self, settled: Settled) -> None:
        self.processed += settled.completed + settled.failed + settled.retry
        self.completed += settled.completed
        self.failed += settled.failed
        self.retry += settled.retry
