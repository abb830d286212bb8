"""One attempt at one upload: its lease, and the request to end it early."""

from __future__ import annotations

from dataclasses import dataclass, field

from weighbridge.model.errors import WeighbridgeError
from weighbridge.model.progress import Progress
from weighbridge.model.upload import Upload
from weighbridge.postgres.transactions import Lease


@dataclass
class Attempt:
    lease: Lease
    upload: Upload
    progress: Progress = field(default_factory=Progress, repr=False)

    def interrupt(self, reason: WeighbridgeError) -> None:
        """Ask the attempt to end at the next safe point, from any thread. The first reason counts."""
        if self.progress.stop is None:
            self.progress.stop = reason

    def check(self) -> None:
        """A safe point: raises StopRequested or LeaseLost if the attempt must end."""
        self.progress.check()
