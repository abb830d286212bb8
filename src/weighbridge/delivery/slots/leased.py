"""Shared by both backends: tokens, log messages about an outage, and slots to release after one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from uuid import UUID, uuid4

import structlog

from weighbridge.delivery.slots.base import Held, SlotKey, SlotLimits

log = structlog.get_logger()

MOST_OWED = 10_000  # what is older than these ends by itself, as everything does


class Leased(ABC):
    """Slots in a backend. While it is unavailable, no slot is granted, and nothing is raised.

    A call that failed or was cancelled may have gone through all the same, and what was to be given back may not have
    been. Both are owed, and given back before the next call that gets through: a site must not stand still for the
    time of a lease.
    """

    keeper: str  # who keeps them, for logs

    def __init__(self, limits: SlotLimits) -> None:
        self.limits = limits
        self._owed: deque[Held] = deque(maxlen=MOST_OWED)
        self._away = False

    async def acquire(self, places: Sequence[SlotKey], back: Sequence[Held] = ()) -> list[Held | None]:
        wanted = [Held(place, uuid4()) for place in places]
        if not wanted:
            await self.release(back)
            return []
        self._owed.extend(back)
        giving = list(self._owed)
        try:
            granted = await self._exchange(giving, wanted)
            self._given(giving)
        except BaseException as error:
            self._owed.extend(wanted)
            if not isinstance(error, Exception):
                raise
            self._note(error)
            return [None] * len(wanted)
        self._note(None)
        return [held if held.token in granted else None for held in wanted]

    async def release(self, held: Sequence[Held]) -> None:
        self._owed.extend(held)
        if not self._owed:
            return
        try:
            await self._settle()
        except Exception as error:
            self._note(error)
        else:
            self._note(None)

    async def close(self) -> None:
        await self.release([])
        await self._close()

    async def _settle(self) -> None:
        """Release all slots that could not be released before; keep them if that fails again."""
        giving = list(self._owed)
        if giving:
            await self._give(giving)
            self._given(giving)

    def _given(self, giving: Sequence[Held]) -> None:
        given = {held.token for held in giving}
        self._owed = deque((held for held in self._owed if held.token not in given), MOST_OWED)

    def _note(self, error: Exception | None) -> None:
        """Log once when the backend becomes unavailable and once when it is back."""
        if error is not None and not self._away:
            log.warning(
                "slots.away", keeper=self.keeper, reason=self._why(error), error_type=type(error).__name__
            )
        elif error is None and self._away:
            log.info("slots.back", keeper=self.keeper)
        self._away = error is not None

    @abstractmethod
    async def _exchange(self, giving: Sequence[Held], wanted: Sequence[Held]) -> set[UUID]:
        """Release, then acquire. Returns the tokens that have a slot."""

    @abstractmethod
    async def _give(self, held: Sequence[Held]) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    def _why(self, error: Exception) -> str:
        """The kind of an error as text, without addresses."""
