"""The result of one check of `weighbridge doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but needs attention
    FAILED = "failed"
    SKIPPED = "skipped"  # not checked, or not needed here


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    found: str
    mend: str | None = None  # how to fix it: a command or a sentence


def ok(name: str, found: str) -> Check:
    return Check(name, Status.OK, found)


def warning(name: str, found: str, mend: str) -> Check:
    return Check(name, Status.WARNING, found, mend)


def failed(name: str, found: str, mend: str | None) -> Check:
    return Check(name, Status.FAILED, found, mend)


def skipped(name: str, found: str, mend: str | None = None) -> Check:
    return Check(name, Status.SKIPPED, found, mend)


def verdict(checks: list[Check]) -> Status:
    """The worst status. Skipped checks are ignored."""
    found = {check.status for check in checks}
    return next((status for status in (Status.FAILED, Status.WARNING) if status in found), Status.OK)
