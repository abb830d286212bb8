"""Numbers, times and states as people read them; filters of the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from weighbridge.model.states import Status

# S2 §11.0.1's four signs: every state of a file is one of them.
SIGNS = {
    "completed": ("✓", "Completed"),
    "processing": ("⏳", "Processing"),
    "queued": ("🕒", "Queued"),
    "error": ("⚠️", "Error"),
    "held": ("⏸", "Waiting for you"),
}
_SIGN_OF = {
    Status.PENDING: "queued",
    Status.PROCESSING: "processing",
    Status.STAGING_COMPLETE: "processing",
    Status.PROMOTING: "processing",
    Status.COMPLETED: "completed",
    Status.PARTIAL: "completed",
    Status.FAILED: "error",
}


def sign(status: Status | str) -> str:
    """Which of S2's signs a state has: completed, processing, queued, error."""
    return _SIGN_OF[Status(status)]


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def size(count: int | None) -> str:
    """Bytes; a MB is 2**20 of them, as in every limit."""
    if count is None:
        return "–"
    left = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if left < 1024:
            return f"{left:,.0f} {unit}" if unit == "B" else f"{left:,.1f} {unit}"
        left /= 1024
    return f"{left:,.1f} TB"


def duration(value: timedelta | float | None) -> str:
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def when(moment: datetime | None) -> Markup | str:
    """A moment in UTC; local.js shows it in the reader's own time zone."""
    if moment is None:
        return "–"
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def share(part: float | None, whole: float | None) -> float:
    """How much of a whole, in percent; nothing of nothing is nothing."""
    return round(min(100.0, 100 * (part or 0) / whole), 2) if whole else 0.0


FILTERS: dict[str, Callable[..., Any]] = {
    "number": number,
    "size": size,
    "duration": duration,
    "when": when,
    "share": share,
    "sign": sign,
}
