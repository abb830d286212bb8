"""Lists: a page that has grown reaches the start of the next page, or reports that it has grown too long."""

from __future__ import annotations

import pytest

from weighbridge.api import cursor
from weighbridge.console.listing import LONGEST, PAGE, Listing, PageRequest, paged


def listed(requested: PageRequest, rows: int) -> Listing[int]:
    """The items found in a list of this length, from the first one on."""
    return paged(requested, list(range(rows))[: requested.size + 1], lambda row: (row,), "/rows", q="x")


def test_a_page_leads_to_the_next() -> None:
    page = listed(PageRequest(), PAGE + 1)
    assert (len(page.rows), page.cut, page.here, page.first) == (PAGE, False, "/rows?q=x", "/rows?q=x")
    assert page.next == f"/rows?q=x&after={cursor.write(PAGE - 1)}"
    assert page.down_to_here == f"/rows?q=x&until={cursor.write(PAGE - 1)}"
    assert listed(PageRequest(), PAGE).next is None


@pytest.mark.parametrize(
    ("last", "shown", "cut"),
    [(79, 80, False), (LONGEST - 1, LONGEST, False), (LONGEST, LONGEST, True), (400, LONGEST, True)],
)
def test_a_page_that_has_grown_reaches_the_next_page_or_reports_that_it_does_not(
    last: int, shown: int, cut: bool
) -> None:
    page = listed(PageRequest(until=cursor.write(last)), 1000)
    assert (len(page.rows), page.rows[-1], page.cut) == (shown, shown - 1, cut)
