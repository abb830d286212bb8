"""Finds what users declare (pipelines, providers) in modules that a setting names and in installed packages.

A ConfigError explains a failure.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Generic, Protocol, TypeVar

from weighbridge.model.errors import ConfigError, did_you_mean


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


@dataclass(frozen=True)
class Declarations(Generic[T]):
    """One kind of declaration, and where to look for it."""

    noun: str  # in messages
    setting: str  # names modules: "shop.ads", or "shop.ads:criteo" for one of its declarations
    group: str  # of entry points
    is_one: Callable[[Any], bool]
    check: Callable[[str, T], None] = lambda origin, value: None  # ConfigError if it is incomplete

    def add_to(self, found: dict[str, T], modules: Sequence[str]) -> dict[str, T]:
        """`found` and all declarations of users, by name; ConfigError if two have the same name."""
        for origin, value in [*self._from_modules(modules), *self._from_packages()]:
            if found.get(value.name, value) is not value:
                message = (
                    f"there is already a {self.noun.lower()} called '{value.name}'; choose another name."
                )
                raise ConfigError(f"{origin}: {message}")
            found[value.name] = value
        return found

    def _from_modules(self, modules: Sequence[str]) -> Iterator[tuple[str, T]]:
        for each in modules:
            module_name, _, attribute = each.partition(":")
            module = imported(module_name, self.setting)
            declared: dict[str, T] = {
                name: value for name, value in vars(module).items() if self.is_one(value)
            }
            if attribute and attribute not in declared:
                hint = did_you_mean(attribute, declared) or "."
                raise ConfigError(
                    f"{self.setting}: '{attribute}' is not a {self.noun} in {module_name}{hint}"
                )
            if not declared:
                raise ConfigError(f"{self.setting}: {module_name} contains no {self.noun}.")
            for name, value in declared.items():
                if attribute in ("", name):
                    self.check(f"{self.setting}: {module_name}:{name}", value)
                    yield each, value

    def _from_packages(self) -> Iterator[tuple[str, T]]:
        for entry in installed(self.group):
            origin = f"Entry point {entry.name} of {self.group}"
            with explained(f"{origin}: cannot import '{entry.value}'"):
                value = entry.load()
            if not self.is_one(value):
                raise ConfigError(f"{origin}: expected a {self.noun}, got {type(value).__name__}.")
            self.check(origin, value)
            yield f"entry point {entry.name}", value


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
        raise ConfigError(f"{complaint}: {message.rstrip('.')}{_source_line(error)}.") from error


def _source_line(error: BaseException) -> str:
    """The line of the user's code that failed: not one of Python, a library or Weighbridge."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    others = ("<", str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib")))
    own = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
