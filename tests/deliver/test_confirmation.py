"""Requests that a provider accepted and confirms or refuses later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.confirm import confirm
from weighbridge.delivery.context import Context
from weighbridge.delivery.providers.base import Confirmation, Credentials, Provider
from weighbridge.model.delivery import Outcome, ProviderTransientError
from weighbridge.model.retry import CONFIRMATION_TRIES


@dataclass
class Slow(Scripted):
    """A provider that accepts every row and confirms it later."""

    confirm_after: timedelta = timedelta(minutes=30)
    said: list[Confirmation | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def confirm(
        self, request_id: str, credentials: Credentials, http: httpx.AsyncClient
    ) -> Confirmation:
        self.asked.append(request_id)
        said = self.said.pop(0) if self.said else Confirmation("PROCESSING")
        if isinstance(said, Exception):
            raise said
        return said


@pytest.fixture
def google() -> Slow:
    slow = Slow()
    slow.answer = lambda batch: [
        Outcome.completed("r-1", awaits_confirmation=True) for _ in batch.conversions
    ]
    return slow


@pytest.fixture
def providers(google: Slow) -> Mapping[str, Provider]:
    return {google.name: google}


ROWS = "SELECT status, confirmation, confirmed_at IS NOT NULL FROM offline_conversion_queue GROUP BY 1, 2, 3"


async def test_accepted_is_not_confirmed_until_the_provider_says_so(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Slow, ctx: Context, clock: Any
) -> None:
    sell(make_site(), 3)
    assert (await run()).completed == 3
    assert query(ROWS) == [("COMPLETED", "AWAITED", False)]
    clock.forward(minutes=29)
    assert await confirm(ctx) == 0
    clock.forward(minutes=2)
    google.said = [
        ProviderTransientError("Not now."),
        Confirmation("PROCESSING"),
        Confirmation("CONFIRMED", 3),
    ]
    for _ in range(3):
        assert query(ROWS) == [("COMPLETED", "AWAITED", False)]
        assert await confirm(ctx) == 1
        assert await confirm(ctx) == 0  # taking it put it off
        clock.forward(minutes=11)
    assert query(ROWS) == [("COMPLETED", "CONFIRMED", True)]
    assert google.asked == ["r-1"] * 3
    assert await confirm(ctx) == 0


@pytest.mark.parametrize("state", ["PARTIAL", "REFUSED"])
async def test_an_unconfirmed_request_is_alerted_with_its_reasons(
    state: str,
    make_site: MakeSite,
    sell: Sell,
    run: Run,
    query: Query,
    google: Slow,
    ctx: Context,
    clock: Any,
) -> None:
    sell(make_site(), 3)
    await run()
    clock.forward(minutes=31)
    google.said = [Confirmation(state, 1, 2, {"INVALID_CLICK": 2})]
    await confirm(ctx)
    assert query(ROWS) == [("COMPLETED", state, False)]
    [(condition, message)] = query("SELECT condition, message FROM weighbridge.alerts")
    assert condition == "conversions_unconfirmed"
    assert message.endswith("of its 3 conversions: INVALID_CLICK 2")


async def test_a_request_that_is_never_confirmed_is_given_up(
    make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Slow, ctx: Context, clock: Any
) -> None:
    sell(make_site())
    await run()
    query("UPDATE weighbridge.confirmations SET tries = %s", (CONFIRMATION_TRIES - 1,))
    clock.forward(minutes=31)
    await confirm(ctx)
    assert query(ROWS) == [("COMPLETED", "UNKNOWN", False)]
