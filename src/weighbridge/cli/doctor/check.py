"""The result of one check of `weighbridge doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but needs attention
    FAILED = "failed"
    SKIPPED = "skipped"  # not checked, or not needed here


@dataclass(frozen=True)
class Check:
    name: str
    status: CheckStatus
    found: str
    fix: str | None = None  # a command or a sentence

    def as_json(self) -> dict[str, str | None]:
        """The object that `--json` prints."""
        return {"name": self.name, "status": self.status, "found": self.found, "fix": self.fix}


def ok(name: str, found: str) -> Check:
    return Check(name, CheckStatus.OK, found)


def warning(name: str, found: str, fix: str) -> Check:
    return Check(name, CheckStatus.WARNING, found, fix)


def failed(name: str, found: str, fix: str | None) -> Check:
    return Check(name, CheckStatus.FAILED, found, fix)


def skipped(name: str, found: str, fix: str | None = None) -> Check:
    return Check(name, CheckStatus.SKIPPED, found, fix)


def worst_status(checks: list[Check]) -> CheckStatus:
    """The worst status. Skipped checks are ignored."""
    found = {check.status for check in checks}
    return next(
        (status for status in (CheckStatus.FAILED, CheckStatus.WARNING) if status in found), CheckStatus.OK
    )
