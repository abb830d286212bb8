"""Backoff: the pauses of the retry policies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice

import pytest

from weighbridge.model.retry import CONVERSION, GROUPING, LISTEN, POLICIES, RESULT, STORAGE, Backoff


def _seconds(policy: Backoff, count: int) -> list[float]:
    return list(islice(policy.pauses(), count))


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (POLICIES["connection"], [1, 2, 4]),
        (POLICIES["rate_limit"], [60] * 5),
        (STORAGE, [30, 150, 750, 3750, 18750]),
        (replace(STORAGE, tries=7), [30, 150, 750, 3750, 18750, 86400, 86400]),
        (replace(STORAGE, tries=1), [30]),
        (RESULT, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20]),
        (CONVERSION, [30, 60, 120, 240, 480, 960, 1920, 3840, 7200, 7200]),
    ],
)
def test_a_policy_ends_after_its_last_retry(policy: Backoff, seconds: list[float]) -> None:
    assert _seconds(policy, 100) == pytest.approx(seconds)


@pytest.mark.parametrize(("policy", "longest"), [(GROUPING, 60), (LISTEN, 10)])
def test_a_policy_without_a_last_retry_goes_on_with_its_longest_pause(
    policy: Backoff, longest: float
) -> None:
    seconds = _seconds(policy, 2000)
    assert len(seconds) == 2000
    assert seconds == sorted(seconds)
    assert set(seconds[10:]) == {longest}


def test_a_long_series_of_failures_does_not_overflow() -> None:
    assert Backoff(tries=None, first=timedelta(seconds=5)).wait(10_000) == timedelta.max
