"""Template filters: numbers, times and states as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from weighbridge.model.states import Status
from weighbridge.model.upload import Upload

# Four fixed symbols (docs/contracts.md), and one each for uploads on hold and discarded uploads.
SIGNS = {"completed": "✓", "processing": "⏳", "queued": "🕒", "error": "⚠️", "held": "⏸", "discarded": "✕"}

_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_FOR_PROGRAMS = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) /api/")

Label = tuple[str, str]  # the name of the symbol, and the label
_UPLOADS: dict[Status, Label] = {
    Status.PENDING: ("queued", "Queued"),
    Status.PROCESSING: ("processing", "Processing"),
    Status.STAGING_COMPLETE: ("processing", "Processing"),
    Status.PROMOTING: ("processing", "Processing"),
    Status.COMPLETED: ("completed", "Completed"),
    Status.PARTIAL: ("completed", "Partially completed"),
    Status.FAILED: ("error", "Error"),
}
JOBS: dict[str, Label] = {  # of a project's files
    "queued": ("queued", "Queued"),
    "running": ("processing", "Processing"),
    "succeeded": ("completed", "Completed"),
    "failed": ("error", "Error"),
}
PROJECTS: dict[str, Label] = {
    "idle": ("", "No file yet"),
    "queued": ("queued", "Queued"),
    "processing": ("processing", "Processing"),
    "grouping": ("processing", "Grouping"),
    "complete": ("completed", "Complete"),
}
CONVERSIONS: dict[str, Label] = {
    "QUEUED": ("queued", "Queued"),
    "RETRY": ("queued", "Waiting for retry"),
    "PROCESSING": ("processing", "In a call"),
    "COMPLETED": ("completed", "Delivered"),
    "FAILED": ("error", "Failed"),
}
# Circuits have a colour instead of a symbol.
CIRCUITS: dict[str, Label] = {
    "CLOSED": ("good", "Closed"),
    "HALF_OPEN": ("wait", "Half open"),
    "OPEN": ("bad", "Open"),
}


def of_upload(upload: Upload) -> Label:
    """A file that waits for the store continues automatically; an upload on hold waits for a user."""
    if upload.storage_status == "pending_retry":
        return _UPLOADS[Status.PROCESSING]
    if upload.on_hold:
        return "held", "On hold"
    if upload.set_aside:
        return "discarded", "Discarded"
    return _UPLOADS[upload.status]


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def size(count: int | None) -> str:
    """Bytes as text. 1 MB is 2**20 bytes, as in every limit."""
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
    """A time in UTC; refresh.js converts it to the reader's time zone."""
    if moment is None:
        return "–"
    utc = moment.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def without_api_calls(message: str | None) -> str:
    """An error message without its sentences about API calls: pages have links instead (as in wb-upload.js)."""
    sentences = _SENTENCES.split(message or "")
    return " ".join(each for each in sentences if not _FOR_PROGRAMS.search(each)) or message or ""


def share(part: float | None, whole: float | None) -> float:
    """Part of a whole in percent; 0 if the whole is 0."""
    return round(min(100.0, 100 * (part or 0) / whole), 2) if whole else 0.0


FILTERS: dict[str, Callable[..., Any]] = {
    "number": number,
    "size": size,
    "duration": duration,
    "when": when,
    "share": share,
    "without_api_calls": without_api_calls,
    "sign": SIGNS.__getitem__,
    "of_upload": of_upload,
}
