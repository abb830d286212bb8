"""Raises and withdraws alerts about the queues."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class QueueCounts:
    """Contents of the queues at one moment."""

    dead_letters: int
    backlog: int


async def watch_queues(tx: Tx, dead_letters: int, backlog: int) -> QueueCounts:
    """Raise or withdraw alerts: more dead letters, or more waiting uploads, than these limits."""
    row = await fetch_one(tx, _SQL["watch_queues"], (dead_letters, backlog))
    assert row is not None
    return QueueCounts(*row)
