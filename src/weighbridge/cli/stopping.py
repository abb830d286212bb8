"""After SIGTERM or SIGINT a process ends within a fixed time, also while it waits for something."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

API_SECONDS = 25.0  # requests have ten seconds; then statements in progress are canceled
COMMAND_SECONDS = 30.0  # for commands that open no application

_timers: list[threading.Timer] = []


def on_stop(react: Callable[[], object], seconds: float) -> None:
    """Call this at the first SIGTERM or SIGINT, and end the process if it still runs after so many seconds."""
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, _stop, each, react, seconds)


def _stop(signum: signal.Signals, react: Callable[[], object], seconds: float) -> None:
    end_within(seconds, signum)
    react()


def end_within(seconds: float, signum: int) -> None:
    """End the process with this signal's exit code if it still runs then. Its leases expire, as after a crash."""
    timer = threading.Timer(seconds, _end, (seconds, signum))
    timer.daemon = True
    timer.start()
    _timers.append(timer)


def go_on() -> None:
    """The process goes on after a command was stopped: it has called the command as a function."""
    while _timers:
        _timers.pop().cancel()


def _end(seconds: float, signum: int) -> None:
    import structlog  # here: it takes part of the start of every command

    structlog.get_logger().error("stop.forced", seconds=seconds)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + signum)
