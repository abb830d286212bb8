"""Chores: the periodic tasks of a process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import LONGEST_CHORE_PAUSE

log = structlog.get_logger()


@dataclass(frozen=True)
class Chore:
    """After each failure the pause doubles, up to a minute, if the chore `backs_off`."""

    do: Callable[[], Awaitable[Any]]
    every: timedelta
    backs_off: bool = False


@asynccontextmanager
async def repeated(*chores: Chore) -> AsyncIterator[None]:
    """Run these chores until the block ends."""
    tasks = [asyncio.create_task(repeat(each)) for each in chores]
    try:
        yield
    finally:
        await cancel(tasks)


async def repeat(chore: Chore) -> None:
    """Run the chore until cancelled. A failure is logged, and the chore runs again."""
    pause = chore.every
    while True:
        succeeded = await run_logged(chore.do)
        longer = min(pause * 2, max(chore.every, LONGEST_CHORE_PAUSE))
        pause = longer if chore.backs_off and not succeeded else chore.every
        await asyncio.sleep(pause.total_seconds())


async def run_logged(do: Callable[[], Awaitable[Any]]) -> bool:
    """Run it once. False: it failed, and the failure is logged."""
    try:
        await do()
        return True
    except RetryLater as failure:
        log.warning("chore.postponed", chore=do.__name__, reason=failure.message)
    except Exception:  # a chore that failed must run again anyway
        log.exception("chore.failed", chore=do.__name__)
    return False


def jittered(interval: timedelta) -> float:
    """Seconds to wait: processes that started together must not poll together."""
    return interval.total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel until all have ended: a library that they call may swallow one cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    await asyncio.gather(*tasks, return_exceptions=True)
