"""Collects the requests of many tasks into batches, so that they share few transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """One batch at a time: requests that arrive meanwhile form the next one. Under load the batches become larger.

    `work` gets a batch and returns a result for each request, in order; an error goes to all of them. `linger`:
    seconds for which a batch waits for further requests.
    """

    def __init__(
        self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]], linger: Callable[[], float]
    ) -> None:
        self._work = work
        self._linger = linger
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, request: T) -> R:
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, result))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await result

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._linger())
            batch, self._waiting = self._waiting, []
            try:
                results = await self._work([request for request, _ in batch])
            except Exception as error:
                for _, waiting in batch:
                    if not waiting.done():
                        waiting.set_exception(error)
            else:
                for (_, waiting), result in zip(batch, results, strict=True):
                    if not waiting.done():
                        waiting.set_result(result)
