"""A day with every kind of failure; at its end every conversion is delivered or has a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deliver.day import Plan, dawn
from tests.deliver.participants import CANARY
from tests.observe.conftest import Lines, lines

__all__ = ["lines"]


@pytest.mark.parametrize("seed", [1])
async def test_after_a_day_of_failures_every_conversion_is_delivered_once_or_has_a_reason(
    database_url: str, tmp_path: Path, lines: Lines, seed: int
) -> None:
    async with dawn(Plan(seed), database_url, tmp_path) as day:
        counts = await day.run()
    print(f"seed {seed}:", dict(sorted(counts.items())))
    assert counts["COMPLETED"] > 1200
    assert counts["FAILED"] > 50
    assert counts["duplicate"] > 0, "no provider said of a conversion that it had it already"
    assert counts["killed"] == 4
    assert len(lines("Conversions sent")) > 500
    assert lines("slots.unavailable")
    assert lines("slots.available")
    assert not lines("Provider failed")
    assert not lines("Delivery cannot be settled")
    assert CANARY not in lines.text.lower()
