"""How far a file has been read, and the request to stop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Shared by the thread that reads a file and the task that waits for it."""

    rows: int = 0  # records read so far
    stop: Exception | None = None  # raised at the next safe point

    def add(self, rows: int) -> None:
        """Count a batch of records. A safe point."""
        self.rows += rows
        self.check()

    def check(self) -> None:
        """A safe point: raises `stop`."""
        if self.stop is not None:
            raise self.stop
