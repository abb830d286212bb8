"""Counts in sentences: `1 row`, `2,000 rows`."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun; `many` is the plural where it is not the singular and an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
