"""Limits on concurrent calls: per site and provider, and per provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from weighbridge.delivery.group_key import GroupKey


def site_key(key: GroupKey) -> str:
    return f"conc:{key.site_id}:{key.provider_key}"


def global_key(key: GroupKey) -> str:
    return f"conc:global:{key.provider_key}"


@dataclass(frozen=True)
class Slot:
    """A leased slot of both keys, or of the first key only if there is no limit for all sites."""

    key: GroupKey
    token: UUID


@dataclass(frozen=True)
class SlotLimits:
    per_site: int = 2
    per_provider: int = 10  # 0: no limit
    ttl: timedelta = timedelta(minutes=2)  # of a slot whose process stopped


class Slots(Protocol):
    async def acquire(self, keys: Sequence[GroupKey], returned: Sequence[Slot] = ()) -> list[Slot | None]:
        """A slot per key, in order; None if none is free or the backend is unavailable. Never raises for that.

        Both keys or neither. A key may be listed several times. Slots in `returned` are released first.
        """
        ...

    async def release(self, slots: Sequence[Slot]) -> None:
        """Release slots. Releasing twice or after the expiry is no error; nothing is raised."""
        ...

    async def close(self) -> None: ...
