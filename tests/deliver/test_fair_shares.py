"""Backlog-weighted fair shares."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weighbridge.model.fair_shares import most_overdue_first, shares

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Waiting:
    name: str
    queued_count: int
    min_next_retry_at: datetime | None = None
    min_created_at: datetime = NOW


times = st.integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes))
backlogs = st.lists(
    st.builds(
        Waiting,
        name=st.uuids().map(str),
        queued_count=st.integers(1, 1000),
        min_next_retry_at=st.none() | times,
        min_created_at=times,
    ),
    max_size=40,
    unique_by=lambda each: each.name,
)


@given(backlogs, st.integers(0, 500), st.randoms())
def test_shares_keep_the_limit_starve_nobody_and_depend_on_nothing_else(
    groups: list[Waiting], limit: int, shuffling: object
) -> None:
    given_out = shares(groups, limit)
    assert sum(share for _, share in given_out) == min(limit, sum(each.queued_count for each in groups))
    assert all(1 <= share <= each.queued_count for each, share in given_out)
    # Everybody has one, or as many as there are, in their turn.
    assert [each for each, _ in given_out] == most_overdue_first(groups)[: max(0, limit)]
    again = list(groups)
    shuffling.shuffle(again)  # type: ignore[attr-defined]
    assert shares(again, limit) == given_out


@given(backlogs, st.integers(1, 500))
def test_a_larger_backlog_never_gets_a_smaller_share(groups: list[Waiting], limit: int) -> None:
    given_out = shares(groups, limit)
    if len(given_out) == len(groups):
        by_backlog = sorted(given_out, key=lambda pair: pair[0].queued_count)
        for (less, small), (more, large) in pairwise(by_backlog):
            # One apart at most, where rounding and the floor of one come in between.
            assert large >= small - 1 or less.queued_count == more.queued_count


def test_the_largest_backlog_does_not_take_everything() -> None:
    small, large = Waiting("small", 1), Waiting("large", 1_000_000)
    assert dict(shares([large, small], 50)) == {small: 1, large: 49}


def test_shares_follow_the_backlog() -> None:
    assert [share for _, share in shares([Waiting("a", 300), Waiting("b", 100)], 40)] == [30, 10]


def test_the_remainder_of_rounding_is_distributed_in_turn() -> None:
    three = [Waiting(name, 10) for name in "abc"]
    assert [share for _, share in shares(three, 11)] == [4, 4, 3]


def test_with_more_groups_than_rows_the_first_in_turn_are_served() -> None:
    late = Waiting("late", 5, NOW + timedelta(minutes=2))
    new = Waiting("new", 5, None, NOW + timedelta(minutes=1))
    old = Waiting("old", 5, None, NOW)
    assert shares([late, new, old], 2) == [(old, 1), (new, 1)]
    assert shares([late, new, old], 0) == []
