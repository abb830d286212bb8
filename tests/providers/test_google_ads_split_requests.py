"""google_ads with several requests for a batch: conflicting rows, large batches, and no time for another request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from uuid import uuid4

import httpx
import pytest

from tests.providers.cases import GOOGLE_ADS, Case
from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.providers.google_ads import ROUNDS
from weighbridge.model.delivery import Category, Outcome, Verdict
from weighbridge.testing._google_ads import FakeGoogleAds
from weighbridge.testing._server import Fault, ReceivedRequest, Reply

OK, RETRY, FAILED = Verdict.COMPLETED, Verdict.RETRY, Verdict.FAILED


@pytest.fixture
def case() -> Case:
    return GOOGLE_ADS


@pytest.fixture
def fake() -> Iterator[FakeGoogleAds]:
    with FakeGoogleAds() as server:
        yield server


def uploads(fake: FakeGoogleAds) -> list[ReceivedRequest]:
    return [call for call in fake.calls if call.path != "/token"]


def verdicts(outcomes: list[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


async def test_conflicting_rows_are_sent_again_in_separate_requests(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    twin = case.row(0)
    same_click = case.row(1)
    rows = [
        twin,
        twin._replace(id=uuid4()),
        same_click,
        case.row(2, click_id=same_click.click_id, occurred_at=same_click.occurred_at),
        case.row(3),
    ]
    outcomes = await provider.send(case.batch(fake, conversions=rows), http)

    assert [len(call.body["conversions"]) for call in uploads(fake)] == [5, 2, 2]
    assert [(each.verdict, each.duplicate) for each in outcomes] == [
        (OK, False),
        (OK, True),
        (OK, False),
        (OK, True),
        (OK, False),
    ]
    assert set(fake.accepted.values()) == {1}


async def test_a_row_that_still_conflicts_when_sent_alone_fails(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "DUPLICATE_ORDER_ID")
    outcomes = await provider.send(case.batch(fake), http)

    assert verdicts(outcomes) == [OK, FAILED, OK]
    assert [len(call.body["conversions"]) for call in uploads(fake)] == [3, 1]


async def test_a_request_that_is_too_large_is_split_once(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.deny("TOO_MANY_CONVERSIONS_IN_REQUEST")
    assert verdicts(await provider.send(case.batch(fake, 5), http)) == [OK] * 5
    assert [len(call.body["conversions"]) for call in uploads(fake)] == [5, 2, 3]

    fake.deny("TOO_MANY_CONVERSIONS_IN_REQUEST", times=3)
    assert verdicts(await provider.send(case.batch(fake, 4), http)) == [RETRY] * 4


async def test_a_failed_part_is_retried_and_the_other_part_stays_delivered(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "DUPLICATE_ORDER_ID")
    fake.script(Fault.slow(0), Fault.status(503, retry_after=9))
    outcomes = await provider.send(case.batch(fake), http)

    assert verdicts(outcomes) == [OK, RETRY, OK]
    assert (outcomes[1].category, outcomes[1].retry_after) == (Category.TRANSIENT, timedelta(seconds=9))
    assert outcomes[1].counts


async def test_rows_that_wait_for_conflicting_rows_use_no_retry(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    rows = [case.row(0)._replace(id=uuid4()) for _ in range(ROUNDS + 2)]
    outcomes = await provider.send(case.batch(fake, conversions=rows), http)

    assert verdicts(outcomes) == [OK] * ROUNDS + [RETRY] * 2
    assert [each.counts for each in outcomes] == [True] * ROUNDS + [False] * 2


async def test_no_request_is_started_that_would_exceed_the_time_of_the_call(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    rows = [case.row(0), case.row(0)._replace(id=uuid4()), case.row(1)]
    outcomes = await provider.send(case.batch(fake, conversions=rows, deadline=monotonic()), http)

    assert len(uploads(fake)) == 1
    assert [(each.verdict, each.code, each.counts) for each in outcomes] == [
        (RETRY, "NOT_SENT", False),
        (RETRY, "NOT_SENT", False),
        (OK, None, True),
    ]


async def test_a_call_that_settles_no_row_uses_a_retry_of_every_row(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.deny("TOO_MANY_CONVERSIONS_IN_REQUEST")
    outcomes = await provider.send(case.batch(fake, 4, deadline=monotonic()), http)
    assert {(each.verdict, each.code, each.counts) for each in outcomes} == {(RETRY, "NOT_SENT", True)}


async def test_the_longest_response_of_google_is_read(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    codes = ("ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID", "UNPARSEABLE_GCLID")
    rows = [case.row(at, click_id="x" * 100) for at in range(2000)]
    for row in rows:
        fake.refuse(row.order_id, *codes)
    whole = fake.spoken
    fake.spoken = lambda call: _spread(whole(call))  # type: ignore[method-assign]
    outcomes = await provider.send(case.batch(fake, conversions=rows), http)
    assert {(each.verdict, each.code) for each in outcomes} == {(FAILED, codes[0])}


def _spread(reply: Reply) -> Reply:
    """As Google writes it: indented, with long sentences."""
    for error in reply.body["partialFailureError"]["details"][0]["errors"]:
        error["message"] += "x" * 450
    raw = json.dumps(reply.body, indent=2).encode()
    assert len(raw) > 4 << 20
    return replace(reply, body=raw)
