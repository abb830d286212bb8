"""Imports users' modules, named by a setting or an installed package; ConfigError explains a failure."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from weighbridge.model.errors import ConfigError


def imported(name: str, setting: str) -> ModuleType:
    """The module that a setting names, or a ConfigError with the line at which the import fails."""
    with explained(f"{setting}: cannot import '{name}'"):
        return import_module(name)


def installed(group: str) -> EntryPoints:
    """Entry points of installed packages in a group."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Cached per path, because it reads every installed package."""
    return entry_points(group=group)


@contextmanager
def explained(complaint: str) -> Iterator[None]:
    """Turns any exception of users' code into a ConfigError that begins with the complaint."""
    try:
        yield
    except (Exception, SystemExit) as error:  # users' code may raise anything
        text = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
        message = text if isinstance(error, ConfigError | ImportError) else f"{type(error).__name__}: {text}"
        raise ConfigError(f"{complaint}: {message.rstrip('.')}{_place(error)}.") from error


def _place(error: BaseException) -> str:
    """The line of the user's code that failed: not one of Python, a library or Weighbridge."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    others = ("<", str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib")))
    own = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
