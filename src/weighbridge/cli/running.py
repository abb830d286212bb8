"""What every command needs: settings, logs, the event loop and printing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from weighbridge.app import App
    from weighbridge.settings import Settings

T = TypeVar("T")

# The workspace used when none is given: a first try works without setting up tenants.
DEFAULT_WORKSPACE = "00000000-0000-4000-8000-000000000001"

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Workspace = Annotated[str, typer.Option("--workspace", help="The workspace's UUID.", metavar="UUID")]
UploadId = Annotated[str, typer.Argument(help="The upload's id.", metavar="ID", show_default=False)]


def _print_version(requested: bool) -> None:
    if requested:
        from weighbridge import __version__

        print(f"weighbridge {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Load export files into Postgres exactly once, with every row accounted for."""


def with_app(work: Callable[[App], Awaitable[T]], *, stays: bool = False) -> T:
    """Open the application, do the work, close it. Ctrl-C and SIGTERM end it in order.

    `stays`: the command runs until it is stopped and logs its results; other commands print them.
    """
    from weighbridge.app import open_app
    from weighbridge.observe.traces import exported

    settings = read_settings("info" if stays else "warning", journal=stays)

    async def inside() -> T:
        async with open_app(settings, serves=stays) as app:
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


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def complain(sentence: str) -> None:
    """Print one message on one line of stderr."""
    sys.stderr.write(f"weighbridge: {sentence}\n")


def silence_stdout() -> None:
    """Redirect stdout to /dev/null: it cannot be written, and Python would fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def out() -> Console:
    """A console on stdout for people; 160 columns wide if stdout is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def err() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)
