"""Parts that every step needs: the database, and the consumers of events. Each subject adds its own parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from weighbridge.engine.outbox import Delivery
from weighbridge.postgres.pool import Database, Tx


@dataclass(frozen=True)
class Consumer:
    """A receiver of events. When it raises, the event is delivered to it again."""

    # In the transaction that settles the delivery: happens exactly once.
    inside: Callable[[Tx, Delivery], Awaitable[None]] | None = None
    # Before it, with no transaction open: may happen again if the process dies in between.
    outside: Callable[[Delivery], Awaitable[None]] | None = None


@dataclass(frozen=True, kw_only=True)
class Context:
    db: Database
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
