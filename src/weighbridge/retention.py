"""Removes history whose retention period is over: attempts, events, the audit log, rejected rows and others.

Production, uploads, sales and the ledger of deliveries are never touched. A record that is still needed stays at any
age: `retention.sql` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weighbridge.model.limits import Limits
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Database, Tx, fetch_one

_SQL = load(__name__)

EVERY = timedelta(hours=20)  # at most this often, by one of all processes
PAGES = 128  # of a table in one transaction: a megabyte


@dataclass(frozen=True)
class Kind:
    """A table whose old records are removed."""

    table: str
    days: int

    @property
    def name(self) -> str:
        return self.table.partition(".")[2]


def kinds(limits: Limits) -> tuple[Kind, ...]:
    return (
        Kind("weighbridge.attempts", limits.attempt_days),
        Kind("weighbridge.events", limits.event_days),  # with event_deliveries
        Kind("weighbridge.alerts", limits.event_days),
        Kind("weighbridge.confirmations", limits.event_days),
        Kind("weighbridge.audit_log", limits.audit_days),
        Kind("public.upload_rejections", limits.rejection_days),
        Kind("public.upload_warnings", limits.rejection_days),
        Kind("weighbridge.upload_fixes", limits.rejection_days),
        Kind("public.upload_duplicates", limits.rejection_days),
        Kind("weighbridge.turns", 1),
    )


async def expire(db: Database, limits: Limits, *, at_once: bool = False) -> dict[str, int]:
    """Remove old records, one megabyte of a table per transaction. Returns how many, by kind.

    Does nothing if a process did it today, unless `at_once`.
    """
    async with db.tx() as tx:
        if not await _begin(tx, timedelta(0) if at_once else EVERY):
            return {}
    return {kind.name: await _expire(db, kind) for kind in kinds(limits)}


async def _begin(tx: Tx, every: timedelta) -> bool:
    """Whether this process is to look for old records now; no other does until `every` has passed."""
    return await fetch_one(tx, _SQL["begin_run"], (every,)) is not None


async def _expire(db: Database, kind: Kind) -> int:
    async with db.tx() as tx:
        pages = await _pages(tx, kind)
    removed = 0
    for first in range(0, pages, PAGES):
        async with db.tx() as tx:
            removed += await _remove(tx, kind, first)
    return removed


async def _pages(tx: Tx, kind: Kind) -> int:
    row = await fetch_one(tx, _SQL["count_pages"], (kind.table,))
    assert row is not None
    return int(row[0])


async def _remove(tx: Tx, kind: Kind, first: int) -> int:
    pages = {"first": f"({first},0)", "end": f"({first + PAGES},0)"}
    done = await tx.execute(_SQL[kind.name], {**pages, "age": timedelta(days=kind.days)})
    return done.rowcount
