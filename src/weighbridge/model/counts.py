"""Counts in messages: `1 row`, `2,000 rows`."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun; `many` is an irregular plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
