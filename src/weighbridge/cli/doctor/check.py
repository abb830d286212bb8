"""One thing that `weighbridge doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but somebody should look
    FAILED = "failed"
    SKIPPED = "skipped"  # not looked at, or not needed here


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    found: str
    mend: str | None = None  # a command, or a sentence


def ok(name: str, found: str) -> Check:
    return Check(name, Status.OK, found)


def warning(name: str, found: str, mend: str) -> Check:
    return Check(name, Status.WARNING, found, mend)


def failed(name: str, found: str, mend: str | None) -> Check:
    return Check(name, Status.FAILED, found, mend)


def skipped(name: str, found: str, mend: str | None = None) -> Check:
    return Check(name, Status.SKIPPED, found, mend)


def verdict(checks: list[Check]) -> Status:
    """The worst of them; what was skipped says nothing."""
    found = {check.status for check in checks}
    return next((status for status in (Status.FAILED, Status.WARNING) if status in found), Status.OK)
