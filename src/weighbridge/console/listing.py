"""Endless lists: a page of rows, where the next one begins, and how a page that is shown stays fresh.

A page asks for itself again by where it ended (`until`), not by its length: rows that come or go in between move
nothing off its end, so that the pages under it follow without a gap. fresh.js numbers the pages that it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query

PAGE = 50
_MOST = 4 * PAGE  # rows that a page may have grown to

Row = TypeVar("Row")


@dataclass(frozen=True)
class Asked:
    """Which page of a list: what stands before it, its number, where it ended before."""

    after: str | None = None
    page: int = 0
    until: str | None = None

    @property
    def limit(self) -> int:
        """One more than is shown tells whether there is a next page."""
        return (_MOST if self.until else PAGE) + 1


@dataclass(frozen=True)
class Listing(Generic[Row]):
    rows: Sequence[Row]
    page: int
    here: str  # the page by itself
    src: str | None  # what it is asked again by; None: as the whole page is
    next: str | None


def paged(
    asked: Asked, found: Sequence[Row], word: Callable[[Row], str], path: str, **said: Any
) -> Listing[Row]:
    """What is shown of `found`. `word`: the `after` of what follows a row; `said`: what else the address says."""
    rows = _shown(asked, found, word)
    here = {**said, "after": asked.after, "page": asked.page or None}
    follows = word(rows[-1]) if len(found) > len(rows) else None
    return Listing(
        rows=rows,
        page=asked.page,
        here=href(path, **here),
        src=href(path, **here, until=follows) if follows else None if not asked.page else href(path, **here),
        next=href(path, **{**said, "after": follows, "page": asked.page + 1}) if follows else None,
    )


def href(path: str, **said: Any) -> str:
    """An address, without what is not said."""
    given = {name: value for name, value in said.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _shown(asked: Asked, found: Sequence[Row], word: Callable[[Row], str]) -> Sequence[Row]:
    if asked.until:
        for place, row in enumerate(found[:_MOST]):
            if word(row) == asked.until:
                return found[: place + 1]
    return found[:PAGE]


async def _asked(
    after: Annotated[str | None, Query(max_length=2000)] = None,
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    until: Annotated[str | None, Query(max_length=2000)] = None,
) -> Asked:
    return Asked(after or None, page, until or None)


Ask = Annotated[Asked, Depends(_asked)]
