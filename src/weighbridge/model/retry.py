"""The table of retry policies of the server: how often to retry, and how long to wait, by kind of work and failure.

Where an SQL function decides, it gets these values as parameters, or a test compares its own value with them. A
provider's own answer may ask for a longer pause than its policy.

The browser has its own policies, because its scripts cannot import this module: `console/static/wb-upload.js` for the
parts of a file, `console/static/refresh.js` for the update of a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Backoff:
    """Wait `first · factor^(n-1)`, at most `longest`, after failure n, with at most `tries` retries."""

    tries: int | None  # None: until it succeeds
    first: timedelta
    factor: int = 2
    longest: timedelta = timedelta.max

    def wait(self, failures: int) -> timedelta | None:
        """The pause after this many failures; None after the last retry."""
        if self.tries is not None and failures > self.tries:
            return None
        pause = self.first
        for _ in range(failures - 1):
            if pause >= self.longest / self.factor:
                return self.longest
            pause *= self.factor
        return pause

    def pauses(self) -> Iterator[float]:
        """The seconds to wait after each failure in turn."""
        failures = 1
        while (pause := self.wait(failures)) is not None:
            yield pause.total_seconds()
            failures += 1


# An attempt at an upload, by the kind of its failure. Fixed by docs/contracts.md.
POLICIES: dict[str, Backoff] = {
    "connection": Backoff(tries=3, first=timedelta(seconds=1)),  # 1 s, 2 s, 4 s, then the upload fails
    "timeout": Backoff(tries=3, first=timedelta(seconds=1)),
    # Another transaction held a lock for longer than a statement may wait for one, which is 10 s. Nothing is wrong with
    # the file: 80 minutes in all. Counted apart from other failures.
    "lock": Backoff(tries=120, first=timedelta(seconds=1), longest=timedelta(seconds=30)),
    "deadlock": Backoff(tries=3, first=timedelta(milliseconds=100)),  # then the batch fails
    # A stored file cannot be read now: 4.5 hours in all, nearly as long as for a file that cannot be stored.
    "store": Backoff(tries=8, first=timedelta(seconds=5), factor=3),
    "rate_limit": Backoff(tries=5, first=timedelta(seconds=60), factor=1),  # fixed
}

# Crashed attempts after which an upload fails; a conversion fails after one more. The default of the setting
# `max_crashes`.
MAX_CRASHES = 5

# A file that the store did not accept. The setting `storage_retries` replaces the number of tries.
STORAGE_RETRIES = 5
STORAGE = Backoff(tries=STORAGE_RETRIES, first=timedelta(seconds=30), factor=5, longest=timedelta(days=1))

# An event for one of its consumers: about 85 minutes in all, then an operator decides.
ANNOUNCEMENT = Backoff(tries=10, first=timedelta(seconds=5))

# A project whose next file cannot be claimed yet: it is arriving, or another transaction has locked it.
NEXT_FILE = Backoff(tries=None, first=timedelta(milliseconds=50), longest=timedelta(seconds=2))

# A failed conversion that an operator retries while another transaction has locked it: 1.5 seconds in all.
LOCKED_CONVERSION = Backoff(tries=5, first=timedelta(milliseconds=50))

# Grouping of a project.
GROUPING = Backoff(tries=None, first=timedelta(seconds=1), longest=timedelta(minutes=1))

# A conversion after a temporary error; the pause is random, up to this. The setting `deliver_retries` replaces the
# number of tries.
CONVERSION_RETRIES = 10
CONVERSION = Backoff(tries=CONVERSION_RETRIES, first=timedelta(seconds=30), longest=timedelta(hours=2))

# All sites of a provider that limits the rate without saying for how long.
PROVIDER_PAUSE = timedelta(minutes=1)

# A batch for which no slot was free. No retry is used up.
NO_SLOT_PAUSE = timedelta(seconds=30)

# After any other retry that uses up none: a random pause, up to this. It is also added to NO_SLOT_PAUSE.
UNCOUNTED_JITTER = timedelta(seconds=10)

# The longest pause that a provider's answer may ask for.
LONGEST_ANSWER_PAUSE = timedelta(days=1)

# The longest pause of all sites for the limit of one developer token of Google Ads: other sites may have another token.
LONGEST_TOKEN_PAUSE = timedelta(minutes=5)

# The circuit breaker: it opens after this many failures, and the next probe is due after the pause plus a random part.
# Rows of an open group are due a random time after the probe. Fixed by docs/contracts.md.
BREAKER_FAILURES = 5
BREAKER_PAUSE = timedelta(minutes=5)
BREAKER_JITTER = timedelta(seconds=60)
PARKED_JITTER = timedelta(seconds=30)

# Until Google has registered a click or a new conversion action.
GOOGLE_REGISTERS = timedelta(hours=6)

# A click that Google does not find: 6 and 24 hours after the first answer, then the conversion fails.
GOOGLE_SEARCHES = (GOOGLE_REGISTERS, timedelta(hours=18))

# Questions about the result of an accepted request: for about a day, then the result is unknown.
CONFIRMATION_PAUSE = timedelta(minutes=10)
CONFIRMATION_TRIES = 150

# A conversion that was claimed this long ago and is not settled is stuck: it is returned to the queue, even if its
# worker still has a lease. Fixed by docs/contracts.md.
STUCK_MINUTES = 15

# While the store is unavailable, one file is tried before it is due, but not sooner than this after its last try.
STORE_PROBE = timedelta(minutes=1)

# After a file was not stored, a process claims no other for this many polling intervals.
STORE_PAUSE_POLLS = 5

# Within one request that reads a stored file, before the policy "store" applies.
STORE_READ_RETRIES = 2
STORE_READ_TIME = timedelta(seconds=20)

# Writing the result of finished work while the database is unavailable: about as long as a lease.
RESULT = Backoff(tries=8, first=timedelta(milliseconds=200), longest=timedelta(seconds=20))

# Writing the result of a call while another transaction has locked its rows or counters: about a minute, then the lease
# expires and the conversions are recovered.
HELD_RESULT = Backoff(tries=240, first=timedelta(milliseconds=10), longest=timedelta(milliseconds=250))

# A command of Redis, on a new connection: after a restart of the server, old connections still look open.
REDIS_RETRIES = 1

# The connection that renews the leases of a process: often, because a lease of 60 seconds depends on it.
HEARTBEAT = Backoff(tries=None, first=timedelta(milliseconds=250), longest=timedelta(seconds=5))

# A connection that listens for notifications.
LISTEN = Backoff(tries=None, first=timedelta(milliseconds=500), longest=timedelta(seconds=10))

# The live updates of a process, after an unexpected error.
LIVE_UPDATES_PAUSE = timedelta(seconds=1)

# A chore that backs off: from its own interval up to this.
LONGEST_CHORE_PAUSE = timedelta(minutes=1)
