"""Collects writes of many calls, so that they share few transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Gather(Generic[T, R]):
    """One turn at a time: while it is under way the next gather. The busier, the more of them in one.

    `work` gets what has gathered and answers each, in order; what it raises, all of them hear. `pause`: for how
    many seconds a turn waits for more to come.
    """

    def __init__(
        self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]], pause: Callable[[], float]
    ) -> None:
        self._work = work
        self._pause = pause
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._turns: asyncio.Task[None] | None = None

    async def __call__(self, one: T) -> R:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if self._turns is None or self._turns.done():
            self._turns = asyncio.create_task(self._take_turns())
        return await answer

    async def _take_turns(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._pause())
            gathered, self._waiting = self._waiting, []
            try:
                answers = await self._work([one for one, _ in gathered])
            except Exception as error:
                for _, waiting in gathered:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for (_, waiting), answer in zip(gathered, answers, strict=True):
                    if not waiting.done():
                        waiting.set_result(answer)
