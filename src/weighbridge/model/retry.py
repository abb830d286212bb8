"""Backoff policies: how long to wait and how often to retry, by kind of failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Backoff:
    """Wait `first · factor^(n-1)` before attempt n+1, with at most `tries` repeats."""

    tries: int
    first: timedelta
    factor: int = 2

    def wait(self, failures: int) -> timedelta | None:
        """The pause after this many failures; None after the last attempt."""
        if failures > self.tries:
            return None
        return self.first * int(self.factor ** (failures - 1))


POLICIES: dict[str, Backoff] = {
    "connection": Backoff(tries=3, first=timedelta(seconds=1)),  # 1 s, 2 s, 4 s, then the upload fails
    "timeout": Backoff(tries=3, first=timedelta(seconds=1)),
    "deadlock": Backoff(tries=3, first=timedelta(milliseconds=100)),  # then the batch fails
    # A stored file cannot be read now: 4.5 hours in all, nearly as long as for a file that cannot be stored.
    "store": Backoff(tries=8, first=timedelta(seconds=5), factor=3),
    "rate_limit": Backoff(tries=5, first=timedelta(seconds=60), factor=1),  # fixed
}

# Deliveries of events to their consumers: about 85 minutes in all, then an operator decides.
ANNOUNCEMENT = Backoff(tries=10, first=timedelta(seconds=5))

_DAY = timedelta(days=1)


def storage_pause(failures: int, retries: int) -> timedelta | None:
    """The pause before a file is stored again: 30 s, then five times longer each time, at most a day.

    None after the last of `retries`.
    """
    policy = Backoff(tries=min(retries, 5), first=timedelta(seconds=30), factor=5)
    return policy.wait(failures) or (_DAY if failures <= retries else None)
