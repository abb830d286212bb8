"""Trying an address for alerts out.

What goes wrong is told in our own words: an address holds a secret, and libraries repeat it in what they log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from weighbridge.model.errors import ConfigError
from weighbridge.observe.alerts import TITLE, Alerts

MESSAGE = "A test by weighbridge doctor: alerts arrive here."
UNKNOWN = "is none that apprise knows"
_TALKATIVE = ("apprise", "urllib3", "requests")


def trouble_with(url: str, *, send: bool) -> str | None:
    """What is wrong with an address, if anything: "did not take …". With `send` it gets a message. Blocking."""
    with _overheard() as said:
        try:
            [address] = Alerts([url]).addresses
        except ConfigError:
            return UNKNOWN
        if not send:
            return None
        try:
            taken = address.notify(body=MESSAGE, title=TITLE)
        except Exception:  # plugins raise what they like, and their words may hold the address
            taken = False
    return None if taken else f"did not take a test message{_answer(said)}"


def _answer(said: list[str]) -> str:
    """The HTTP status that a plugin logged, if it did: a number is all that is taken over."""
    codes = re.findall(r"error=(\d{3})\b", " ".join(said))
    if not codes:
        return " (no HTTP answer came)"
    known = {each.value: each.phrase for each in HTTPStatus}
    return f" (it answered {codes[-1]} {known.get(int(codes[-1]), '')}".rstrip() + ")"


class _Listener(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__()
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


@contextmanager
def _overheard() -> Iterator[list[str]]:
    """What the libraries log goes here, and nowhere else."""
    said: list[str] = []
    listener = _Listener(said)
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(listener)
    try:
        yield said
    finally:
        for logger, (propagates, level) in zip(loggers, before, strict=True):
            logger.propagate = propagates
            logger.setLevel(level)
            logger.removeHandler(listener)
