"""Runs a command: reads the settings, sets up logs, opens the application, handles signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.settings import Settings

T = TypeVar("T")


def with_app(work: Callable[[App], Awaitable[T]], *, long_running: bool = False) -> T:
    """Open the application, do the work, close it. Ctrl-C and SIGTERM end it in order.

    `long_running`: the command runs until it is stopped and logs its results; other commands print them.
    """
    from weighbridge.app import open_app
    from weighbridge.observe.traces import exported

    settings = read_settings("info" if long_running else "warning", journal=long_running)

    async def inside() -> T:
        async with open_app(settings, serves=long_running) as app:
            return await work(app)

    with exported("weighbridge"):
        return run(inside)


def read_settings(log_level: str = "warning", *, journal: bool = True) -> Settings:
    from weighbridge.observe.logs import configure
    from weighbridge.settings import read

    configure(log_level, journal=journal)
    return read()


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine. A signal cancels it, so that it releases everything it holds."""

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work()

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
