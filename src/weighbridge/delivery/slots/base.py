"""Limits on concurrent calls: per site and provider, and per provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True)
class SlotKey:
    """What a slot is wanted for."""

    site_id: UUID
    provider_key: str

    @property
    def site_key(self) -> str:
        return f"conc:{self.site_id}:{self.provider_key}"

    @property
    def global_key(self) -> str:
        return f"conc:global:{self.provider_key}"


@dataclass(frozen=True)
class Held:
    """A slot of both keys, or of the first alone where there is no limit for all sites. Leased, not owned."""

    slot: SlotKey
    token: UUID


@dataclass(frozen=True)
class SlotLimits:
    per_site: int = 2
    per_provider: int = 10  # 0: no limit
    ttl: timedelta = timedelta(minutes=2)  # of a slot whose holder died


class Slots(Protocol):
    async def acquire(self, places: Sequence[SlotKey], back: Sequence[Held] = ()) -> list[Held | None]:
        """A slot for each, in their order; None where it is full, or where nobody can say. Never raises for that.

        Both keys or neither. The same place may stand there several times. What is given `back` is free before.
        """
        ...

    async def release(self, held: Sequence[Held]) -> None:
        """Give back. Twice, or after they ended by themselves, is no error; nothing is raised."""
        ...

    async def close(self) -> None: ...
