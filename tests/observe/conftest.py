"""What is said about the work: a webhook that listens, and the log lines as they would be written."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from tests.engine.conftest import put, run
from tests.observe.listener import Listener, listening
from weighbridge.delivery.context import Context
from weighbridge.engine.announce import alerting
from weighbridge.observe import logs
from weighbridge.observe.alerts import Alerts

__all__ = ["put", "run"]


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


@pytest.fixture
def told(ctx: Context, listener: Listener) -> Context:
    """The context, with alerts to the listener."""
    return replace(ctx, consumers=ctx.consumers | alerting(Alerts([listener.url]), ctx.db))


class Lines:
    """What was logged since the test began."""

    def __init__(self, text: io.StringIO) -> None:
        self._text = text

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def __call__(self, event: str | None = None) -> list[dict[str, Any]]:
        """The lines, or those of one event, as a program reads them."""
        found = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in found if event is None or line["event"] == event]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Logs as the service sets them up, into memory; everything is put back afterwards."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook, threading.excepthook, sys.unraisablehook)
    shown: Callable[..., Any] = warnings.showwarning
    text = io.StringIO()
    logs.configure("info", text)
    try:
        yield Lines(text)
    finally:
        root.handlers, sys.excepthook, threading.excepthook, sys.unraisablehook = before[0], *before[2:]
        root.setLevel(before[1])
        warnings.showwarning = shown
        structlog.reset_defaults()
