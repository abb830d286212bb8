"""Every way in which Weighbridge says no.

    WeighbridgeError
    ├── Refused          the input or request is wrong; trying again changes nothing
    │   ├── FileRefused  the whole file is wrong: the upload fails
    │   ├── RequestRefused   the request is wrong: nothing is stored
    │   │   └── QuotaExceeded   it would be more than the workspace or the user may have
    │   ├── ProcessingLocked   the groups of a project may not be edited while its files are processed
    │   └── NoProject    there is no project of that number
    ├── RetryLater       something passing; the upload goes back to the queue
    ├── HandBack         the worker is stopping; the upload goes back as it is
    ├── LeaseLost        another attempt owns this work now; change nothing, go away
    └── ConfigError      a setting or a declaration is wrong

A step fails as Refused, as RetryLater, or because of a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches

from weighbridge.model.columns import ColumnReport


class WeighbridgeError(Exception):
    """The root of the tree."""


class Refused(WeighbridgeError):
    """Wrong input. `code` is for programs, the sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FileRefused(Refused):
    """The file as a whole cannot be read as what it claims to be. `report` lists its columns, once they are known."""

    report: ColumnReport | None = None


class RequestRefused(Refused):
    """The request cannot be accepted; `status` is the HTTP status that says so."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code, message)
        self.status = status


class QuotaExceeded(RequestRefused):
    """S5: over a limit. `resets_at` is None where waiting does not help, only fewer files or a higher limit."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        used: int,
        limit: int,
        resets_at: datetime | None,
        seconds: float | None = None,  # until then
    ) -> None:
        super().__init__(status, "STORAGE_QUOTA_EXCEEDED", message)
        self.used = used
        self.limit = limit
        self.resets_at = resets_at
        self.seconds = seconds


class ProcessingLocked(Refused):
    """S2 §7.1: as soon as the last file has ended and the groups are made, the same edit goes through."""

    def __init__(self) -> None:
        super().__init__(
            "processing_locked",
            "CSV processing in progress. Grouping is temporarily locked until import completes.",
        )


class NoProject(Refused):
    def __init__(self) -> None:
        super().__init__("unknown_project", "There is no project of that number.")


class RetryLater(WeighbridgeError):
    """A passing trouble. `kind` names the backoff policy in `model.retry`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class HandBack(WeighbridgeError):
    """The worker was asked to stop between two batches."""


class LeaseLost(WeighbridgeError):
    """The lease token of this attempt is no longer the live one."""


class ConfigError(WeighbridgeError):
    """A setting or declaration that cannot work, found before any work starts."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'case_number'?`, or nothing where nothing is near."""
    spelled = {k.lower(): k for k in known}
    near = get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean '{spelled[near[0]]}'?" if near else ""
