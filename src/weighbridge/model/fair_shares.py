"""How many rows each group may send in one run: in proportion to its backlog, and at least one."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar


class Backlog(Protocol):
    """A group with queued rows."""

    @property
    def queued_count(self) -> int: ...
    @property
    def min_next_retry_at(self) -> datetime | None: ...
    @property
    def min_created_at(self) -> datetime: ...
    @property
    def name(self) -> str: ...  # breaks ties of the times


Group = TypeVar("Group", bound=Backlog)


def most_overdue_first(groups: Sequence[Group]) -> list[Group]:
    """In the order min_next_retry_at ASC NULLS FIRST, min_created_at ASC."""
    return sorted(
        groups,
        key=lambda g: (
            g.min_next_retry_at is not None,
            g.min_next_retry_at or g.min_created_at,
            g.min_created_at,
            g.name,
        ),
    )


def shares(groups: Sequence[Group], limit: int) -> list[tuple[Group, int]]:
    """Groups in order, each with its share. The sum is `limit`, or everything queued if that is less.

    If there are more groups than `limit`, the last ones get nothing this time.
    """
    ordered = most_overdue_first(groups)
    total = sum(group.queued_count for group in ordered)
    if not total or limit <= 0:
        return []
    weighed = [min(g.queued_count, max(1, limit * g.queued_count // total)) for g in ordered]
    _take_back(weighed, sum(weighed) - limit)
    _hand_out(weighed, [g.queued_count for g in ordered], limit - sum(weighed))
    return [(group, share) for group, share in zip(ordered, weighed, strict=True) if share]


def _take_back(weighed: list[int], excess: int) -> None:
    """Take one at a time from the largest; among equals from the last, or the first would never be served."""
    largest = [(-share, -index) for index, share in enumerate(weighed)]
    heapq.heapify(largest)
    for _ in range(excess):
        share, index = heapq.heappop(largest)
        weighed[-index] -= 1
        heapq.heappush(largest, (share + 1, index))


def _hand_out(weighed: list[int], queued: list[int], left: int) -> None:
    """Distribute the remainder of rounding one by one, in order, to groups that can use it."""
    unfilled = [index for index in range(len(weighed)) if weighed[index] < queued[index]]
    while left > 0 and unfilled:
        for index in unfilled[:left]:
            weighed[index] += 1
        left -= min(left, len(unfilled))
        unfilled = [index for index in unfilled if weighed[index] < queued[index]]
