"""One attempt at one upload: its lease, and the request to end it early."""

from __future__ import annotations

from dataclasses import dataclass, field

from weighbridge.model.errors import WeighbridgeError
from weighbridge.model.upload import Upload
from weighbridge.postgres.transactions import Lease


@dataclass
class Attempt:
    lease: Lease
    upload: Upload
    _interrupt: WeighbridgeError | None = field(default=None, repr=False)

    def interrupt(self, reason: WeighbridgeError) -> None:
        """Ask the attempt to end at the next safe point, from any thread. The first reason counts."""
        if self._interrupt is None:
            self._interrupt = reason

    def check(self) -> None:
        """A safe point: raises HandBack or LeaseLost if the attempt must end."""
        if self._interrupt is not None:
            raise self._interrupt
