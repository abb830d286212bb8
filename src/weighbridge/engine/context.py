"""Parts that every step needs: the database, and the consumers of events. Each subject adds its own parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from weighbridge.engine.outbox import EventDelivery
from weighbridge.postgres.transactions import Database, Tx

GENERAL_CONSUMERS = ("audit_log", "notifier")  # receive every event; the others only completed uploads


@dataclass(frozen=True)
class Consumer:
    """A receiver of events. If it raises, the event is delivered again."""

    # In the transaction that settles the delivery: runs exactly once.
    inside: Callable[[Tx, EventDelivery], Awaitable[None]] | None = None
    # Before that transaction: may run again if the process is killed in between.
    outside: Callable[[EventDelivery], Awaitable[None]] | None = None


@dataclass(frozen=True, kw_only=True)
class Context:
    db: Database
    consumers: Mapping[str, Consumer] = field(default_factory=dict)

    @property
    def general_consumers(self) -> list[str]:
        """The consumers of this process that receive every event."""
        return [name for name in GENERAL_CONSUMERS if name in self.consumers]
