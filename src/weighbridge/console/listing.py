"""Endless lists: a page of rows, the start of the next page, and the end of the page when it is refreshed.

When another page is shown below it, a page is refreshed up to its end (`until`) instead of by its length: rows that
are added or removed meanwhile are neither skipped nor shown twice (refresh.js).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query

from weighbridge.api import cursor

PAGE = 50
LONGEST = 200  # maximum rows of a page that has grown

Row = TypeVar("Row")
Cursor = tuple[Any, ...]


@dataclass(frozen=True)
class PageRequest:
    """Which page of a list: the cursors of its start and end."""

    after: str | None = None
    until: str | None = None

    @property
    def size(self) -> int:
        return LONGEST if self.until else PAGE


@dataclass(frozen=True)
class Listing(Generic[Row]):
    rows: Sequence[Row]
    here: str  # this page
    next: str | None  # the next page
    down_to_here: str | None  # this page, up to the start of the next one
    first: str  # the first page
    cut: bool = False  # this page has more rows than it shows


def paged(
    requested: PageRequest, found: Sequence[Row], cursor_of: Callable[[Row], Cursor], path: str, **query: Any
) -> Listing[Row]:
    """The page for `found`, which contains one extra row if there is a next page.

    `cursor_of`: the cursor of a row; `query`: other query parameters of the address.
    """
    rows, within = found[: requested.size], found
    if requested.until and found:
        types = [type(part) for part in cursor_of(found[0])]
        until = cursor.read("until", requested.until, lambda *parts: parts, *types)
        within = [row for row in found if until is not None and cursor_of(row) <= until]
        rows = within[: requested.size]
    more = cursor.write(*cursor_of(rows[-1])) if rows and len(found) > len(rows) else None
    return listed(requested, rows, more, path, cut=len(within) > len(rows), **query)


def listed(
    requested: PageRequest,
    rows: Sequence[Row],
    more: str | None,
    path: str,
    *,
    cut: bool = False,
    **query: Any,
) -> Listing[Row]:
    """The same if the cursor of the next page is known. `cut`: there are more rows than are shown."""
    return Listing(
        rows=rows,
        here=href(path, **query, after=requested.after),
        next=more and href(path, **query, after=more),
        down_to_here=more and href(path, **query, after=requested.after, until=more),
        first=href(path, **query),
        cut=cut and requested.until is not None,
    )


def href(path: str, **query: Any) -> str:
    """An address; empty query parameters are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


async def _page_request(
    after: Annotated[str | None, Query(max_length=2000)] = None,
    until: Annotated[str | None, Query(max_length=2000)] = None,
) -> PageRequest:
    return PageRequest(after or None, until or None)


PageRequested = Annotated[PageRequest, Depends(_page_request)]
