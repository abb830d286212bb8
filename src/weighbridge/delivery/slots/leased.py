"""Shared by both backends: tokens, log messages about an outage, and slots to release after one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from uuid import UUID, uuid4

import structlog

from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import Slot, SlotLimits

log = structlog.get_logger()

MOST_UNRELEASED = 10_000  # older ones expire in the backend


class LeasedSlots(ABC):
    """Slots in a backend. While it is unavailable, no slot is granted, and nothing is raised.

    After a call that failed or was cancelled, it is unknown which slots were acquired and which were released. All of
    them are released with the next call that succeeds, so that no site waits until their leases expire.
    """

    backend: str  # the backend's name, for logs

    def __init__(self, limits: SlotLimits) -> None:
        self.limits = limits
        self._unreleased: deque[Slot] = deque(maxlen=MOST_UNRELEASED)
        self._away = False

    async def acquire(self, keys: Sequence[GroupKey], returned: Sequence[Slot] = ()) -> list[Slot | None]:
        wanted = [Slot(key, uuid4()) for key in keys]
        if not wanted:
            await self.release(returned)
            return []
        self._unreleased.extend(returned)
        releasing = list(self._unreleased)
        try:
            granted = await self._exchange(releasing, wanted)
            self._note_released(releasing)
        except BaseException as error:
            self._unreleased.extend(wanted)
            if not isinstance(error, Exception):
                raise
            self._note(error)
            return [None] * len(wanted)
        self._note(None)
        return [slot if slot.token in granted else None for slot in wanted]

    async def release(self, slots: Sequence[Slot]) -> None:
        self._unreleased.extend(slots)
        if not self._unreleased:
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
        releasing = list(self._unreleased)
        if releasing:
            await self._release_slots(releasing)
            self._note_released(releasing)

    def _note_released(self, releasing: Sequence[Slot]) -> None:
        released = {slot.token for slot in releasing}
        self._unreleased = deque(
            (slot for slot in self._unreleased if slot.token not in released), MOST_UNRELEASED
        )

    def _note(self, error: Exception | None) -> None:
        """Log once when the backend becomes unavailable and once when it is back."""
        if error is not None and not self._away:
            log.warning(
                "slots.unavailable",
                backend=self.backend,
                reason=self._why(error),
                error_type=type(error).__name__,
            )
        elif error is None and self._away:
            log.info("slots.available", backend=self.backend)
        self._away = error is not None

    @abstractmethod
    async def _exchange(self, releasing: Sequence[Slot], wanted: Sequence[Slot]) -> set[UUID]:
        """Release, then acquire. Returns the tokens that have a slot."""

    @abstractmethod
    async def _release_slots(self, slots: Sequence[Slot]) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    def _why(self, error: Exception) -> str:
        """The kind of an error as text, without addresses."""
