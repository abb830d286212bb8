"""The exceptions of Weighbridge.

    WeighbridgeError
    ├── Refused          the input or request is wrong; a retry would not help
    │   ├── FileRefused  the whole file is wrong: the upload fails
    │   ├── RequestRefused   the request is wrong: nothing is stored
    │   │   └── QuotaExceeded   it exceeds a limit of the workspace or the user
    │   ├── ProcessingLocked   the groups of a project may not be edited while its files are processed
    │   └── NoProject    there is no project with that number
    ├── RetryLater       a temporary failure; the upload returns to the queue
    ├── StopRequested    the work must end early; the upload returns to the queue unchanged
    ├── LeaseLost        another attempt owns this work now; stop without changing anything
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
    """Wrong input. `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FileRefused(Refused):
    """The file as a whole is refused. `column_report` lists its columns, if they are known."""

    column_report: ColumnReport | None = None


class RequestRefused(Refused):
    """The request cannot be accepted; `status` is the HTTP status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code, message)
        self.status = status


class QuotaExceeded(RequestRefused):
    """Over a limit. `resets_at` is None if waiting does not help, only fewer files or a higher limit."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        used: int,
        limit: int,
        resets_at: datetime | None,
        seconds: float | None = None,  # until resets_at
    ) -> None:
        super().__init__(status, "STORAGE_QUOTA_EXCEEDED", message)
        self.used = used
        self.limit = limit
        self.resets_at = resets_at
        self.seconds = seconds


class ProcessingLocked(Refused):
    """The same edit succeeds as soon as the last file has ended and the groups are made."""

    def __init__(self) -> None:
        super().__init__(
            "processing_locked",
            "CSV processing in progress. Grouping is temporarily locked until import completes.",
        )


class NoProject(Refused):
    def __init__(self) -> None:
        super().__init__("unknown_project", "There is no project with that number.")


class RetryLater(WeighbridgeError):
    """A temporary failure. `kind` names the backoff policy in `model.retry`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class StopRequested(WeighbridgeError):
    """The work must end at its next safe point: its worker is stopping, or the run of its project is ending."""


class LeaseLost(WeighbridgeError):
    """The lease token of this attempt is no longer the live one."""


class ConfigError(WeighbridgeError):
    """A setting or declaration that cannot work, found before any work starts."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'case_number'?`, or an empty text if nothing is similar."""
    spelled = {k.lower(): k for k in known}
    near = get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean '{spelled[near[0]]}'?" if near else ""
