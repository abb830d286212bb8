"""Modules of users, which a setting or an installed package names: imported, or explained why not."""

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
    """The module that a setting names, or a ConfigError that says in which line it cannot be imported."""
    with explained(f"{setting}: cannot import '{name}'"):
        return import_module(name)


def installed(group: str) -> EntryPoints:
    """What installed packages declare for a group."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Once for each path: every installed package is looked at."""
    return entry_points(group=group)


@contextmanager
def explained(complaint: str) -> Iterator[None]:
    """Whatever other people's code raises in here becomes a ConfigError that begins with the complaint."""
    try:
        yield
    except (Exception, SystemExit) as error:  # other people's code: it may raise anything
        text = error.msg if isinstance(error, SyntaxError) else str(error).partition("\n")[0]
        told = text if isinstance(error, ConfigError | ImportError) else f"{type(error).__name__}: {text}"
        raise ConfigError(f"{complaint}: {told.rstrip('.')}{_place(error)}.") from error


def _place(error: BaseException) -> str:
    """The line of one's own at which it went wrong: not one of Python's, of a library's, or of ours."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    others = ("<", str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib")))
    own = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
