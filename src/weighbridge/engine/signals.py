"""Signals inside one process: work has ended, and events may have been written."""

from __future__ import annotations

import asyncio


class Signals:
    """Each part of the process that waits for ended work has an event of its own, and clears it itself."""

    def __init__(self) -> None:
        self._listeners: list[asyncio.Event] = []

    def listener(self) -> asyncio.Event:
        """An event that is set whenever work ends."""
        event = asyncio.Event()
        self._listeners.append(event)
        return event

    def work_ended(self) -> None:
        for each in self._listeners:
            each.set()
