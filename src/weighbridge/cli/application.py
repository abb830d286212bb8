"""Runs a command: reads the settings, sets up logs, opens the application, handles signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import typer

from weighbridge.cli.stopping import COMMAND_SECONDS, end_within

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
        return run(inside, settings.stop_seconds)


def read_settings(log_level: str = "warning", *, journal: bool = True) -> Settings:
    from weighbridge.observe.logs import configure
    from weighbridge.settings import read

    configure(log_level, journal=journal)
    return read()


def run(work: Callable[[], Awaitable[T]], stop_seconds: float = COMMAND_SECONDS) -> T:
    """Run a coroutine. A signal cancels it, so that it releases everything it holds, in `stop_seconds` at most."""

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, terminated, task)
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio's: it cancels the task, and a second one raises

        def interrupted(signum: int, frame: FrameType | None) -> None:
            end_within(stop_seconds, signum)
            if callable(interrupt):
                interrupt(signum, frame)

        signal.signal(signal.SIGINT, interrupted)
        try:
            return await work()
        finally:
            signal.signal(signal.SIGINT, interrupt)

    def terminated(task: asyncio.Task[T]) -> None:
        end_within(stop_seconds, signal.SIGTERM)
        task.cancel()

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise typer.Exit(128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None
