"""Endless lists: a page of rows, where the next one begins, and how far it goes down when it is looked at again.

Once another page is shown below it, a page is asked for by where it ended (`until`) and not by its length: rows that
come or go in between leave none out and show none twice (fresh.js).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query

from weighbridge.api import cursor

PAGE = 50
LONGEST = 200  # rows that a page may have grown to

Row = TypeVar("Row")
Cursor = tuple[Any, ...]


@dataclass(frozen=True)
class Asked:
    """Which page of a list: behind what, or down to what."""

    after: str | None = None
    until: str | None = None

    @property
    def size(self) -> int:
        return LONGEST if self.until else PAGE


@dataclass(frozen=True)
class Listing(Generic[Row]):
    rows: Sequence[Row]
    here: str  # this page
    next: str | None  # the one behind it
    down_to_here: str | None  # this page, down to where the next one begins
    first: str  # the first page
    cut: bool = False  # more have come to this page than it shows


def paged(
    asked: Asked, found: Sequence[Row], place: Callable[[Row], Cursor], path: str, **said: Any
) -> Listing[Row]:
    """What is shown of `found`, of which one more than is shown tells that there is a next page.

    `place`: where a row stands in the order of the list; `said`: what else the address says.
    """
    rows, within = found[: asked.size], found
    if asked.until and found:
        types = [type(part) for part in place(found[0])]
        until = cursor.read("until", asked.until, lambda *parts: parts, *types)
        within = [row for row in found if until is not None and place(row) <= until]
        rows = within[: asked.size]
    more = cursor.write(*place(rows[-1])) if rows and len(found) > len(rows) else None
    return listed(asked, rows, more, path, cut=len(within) > len(rows), **said)


def listed(
    asked: Asked, rows: Sequence[Row], more: str | None, path: str, *, cut: bool = False, **said: Any
) -> Listing[Row]:
    """The same where the place of the next page is known. `cut`: there were more rows than are shown."""
    return Listing(
        rows=rows,
        here=href(path, **said, after=asked.after),
        next=more and href(path, **said, after=more),
        down_to_here=more and href(path, **said, after=asked.after, until=more),
        first=href(path, **said),
        cut=cut and asked.until is not None,
    )


def href(path: str, **said: Any) -> str:
    """An address, without what is not said."""
    given = {name: value for name, value in said.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


async def _asked(
    after: Annotated[str | None, Query(max_length=2000)] = None,
    until: Annotated[str | None, Query(max_length=2000)] = None,
) -> Asked:
    return Asked(after or None, until or None)


Ask = Annotated[Asked, Depends(_asked)]
