"""Slots for calls to providers in Postgres: one function per named query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class SlotRequest:
    """A slot of the site's key and one of the provider's for each token, in this order."""

    site_keys: list[str]
    global_keys: list[str]
    tokens: list[UUID]
    per_site: int
    per_provider: int  # 0: no limit
    ttl: timedelta


async def acquire(tx: Tx, request: SlotRequest) -> set[UUID]:
    """The tokens that have a slot now. Commit immediately: others wait for the same keys."""
    return {row[0] for row in await fetch_all(tx, _SQL["acquire_slots"], vars(request))}


async def release(tx: Tx, tokens: Sequence[UUID]) -> None:
    """Release slots. Slots that are no longer held are ignored."""
    await tx.execute(_SQL["release_slots"], (list(tokens),))
