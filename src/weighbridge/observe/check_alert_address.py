"""Tests an address for alerts.

Failures are described in our own words: an address contains a secret, and libraries repeat it in their logs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from weighbridge.model.errors import ConfigError
from weighbridge.observe.alerts import TITLE, Alerts

MESSAGE = "Test message from weighbridge doctor: alerts will arrive here."
UNKNOWN = "is not an address that apprise supports"
_TALKATIVE = ("apprise", "urllib3", "requests")


def problem_with(url: str, *, send: bool) -> str | None:
    """What is wrong with an address, or None. With `send` it gets a test message. Blocking."""
    with _captured_logs() as lines:
        try:
            [address] = Alerts([url]).addresses
        except ConfigError:
            return UNKNOWN
        if not send:
            return None
        try:
            taken = address.notify(body=MESSAGE, title=TITLE)
        except Exception:  # plugins may raise anything, and their messages may contain the address
            taken = False
    return None if taken else f"did not accept a test message{_answer(lines)}"


def _answer(lines: list[str]) -> str:
    """The HTTP status that a plugin logged, if any; nothing else is taken from its log."""
    codes = re.findall(r"error=(\d{3})\b", " ".join(lines))
    if not codes:
        return " (no HTTP response)"
    known = {each.value: each.phrase for each in HTTPStatus}
    return f" (it answered {codes[-1]} {known.get(int(codes[-1]), '')}".rstrip() + ")"


class _LogCollector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextmanager
def _captured_logs() -> Iterator[list[str]]:
    """Captures the logs of the libraries, and keeps them from all other handlers."""
    lines: list[str] = []
    collector = _LogCollector(lines)
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(collector)
    try:
        yield lines
    finally:
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.propagate = propagates
            logger.setLevel(level)
            logger.removeHandler(collector)
