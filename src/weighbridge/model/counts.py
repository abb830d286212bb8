"""Counts and lists in messages: `2,000 rows`, `campaign, ad set and ad`."""

from __future__ import annotations

from collections.abc import Iterable


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun; `many` is an irregular plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def with_and(words: Iterable[str]) -> str:
    """Words as a list: `campaign, ad set and ad`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
