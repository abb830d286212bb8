"""The requirements of every provider. A new provider adds a case and no test."""

from __future__ import annotations

import traceback
from datetime import timedelta
from time import monotonic

import httpx
import pytest

from tests.providers.cases import CASES, Case
from weighbridge.delivery.providers.base import Batch, Provider
from weighbridge.model.delivery import (
    Category,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)
from weighbridge.testing._server import FakeServer, Fault

ORDERS = {"order-0": 1, "order-1": 1, "order-2": 1}
CANARY = "canary"


def verdicts(outcomes: list[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


async def test_every_row_is_sent_and_reported_in_order_with_proof(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    outcomes = await provider.send(case.batch(fake), http)

    assert verdicts(outcomes) == [Verdict.COMPLETED] * 3
    assert all(outcome.request_id for outcome in outcomes)
    assert fake.accepted == fake.seen == ORDERS  # the order ids as they are


async def test_a_batch_sent_again_is_completed_and_accepted_once(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake), http)
    outcomes = await provider.send(case.batch(fake), http)

    assert verdicts(outcomes) == [Verdict.COMPLETED] * 3
    assert fake.accepted == ORDERS
    assert set(fake.seen.values()) == {2}


async def test_the_largest_batch_goes_through(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    outcomes = await provider.send(case.batch(fake, provider.max_batch), http)

    assert verdicts(outcomes) == [Verdict.COMPLETED] * provider.max_batch
    assert len(fake.accepted) == provider.max_batch


async def test_a_400_fails_permanently(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.status(400))
    (outcome,) = await provider.send(case.batch(fake, 1), http)

    assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.VALIDATION)
    assert outcome.code
    assert outcome.message
    assert fake.accepted == {}


@pytest.mark.parametrize("status", [401, 403])
async def test_a_401_and_a_403_fail_as_refused_access(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient, status: int
) -> None:
    fake.script(*[Fault.status(status)] * 3)  # the same token is not used twice
    outcomes = await provider.send(case.batch(fake), http)

    assert {(outcome.verdict, outcome.category) for outcome in outcomes} == {(Verdict.FAILED, Category.AUTH)}
    assert all(outcome.code and outcome.message for outcome in outcomes)
    assert fake.accepted == {}


async def test_a_429_is_a_rate_limit_with_its_duration(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.status(429, retry_after=7)] * case.requests(3))
    with pytest.raises(ProviderRateLimitError) as raised:
        await provider.send(case.batch(fake), http)

    assert raised.value.retry_after == timedelta(seconds=7)
    assert fake.accepted == {}


@pytest.mark.parametrize(
    "fault",
    [Fault.status(500), Fault.status(503), Fault.hang(), Fault.cut(), Fault.cut(after=True)],
    ids=["500", "503", "hang", "cut-before", "cut-after"],
)
async def test_a_resend_after_a_temporary_failure_is_accepted_once(
    case: Case, fake: FakeServer, provider: Provider, hasty: httpx.AsyncClient, fault: Fault
) -> None:
    fake.script(*[fault] * case.requests(3))
    with pytest.raises(ProviderTransientError) as raised:
        await provider.send(case.batch(fake), hasty)
    assert not isinstance(raised.value, ProviderRateLimitError)
    assert fake.accepted == (ORDERS if fault.after else {})

    assert verdicts(await provider.send(case.batch(fake), hasty)) == [Verdict.COMPLETED] * 3
    assert fake.accepted == ORDERS


async def test_a_503_with_retry_after_sets_the_pause(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.status(503, retry_after=11)] * case.requests(3))
    with pytest.raises(ProviderTransientError) as raised:
        await provider.send(case.batch(fake), http)
    assert raised.value.retry_after == timedelta(seconds=11)


async def test_a_slow_response_is_accepted(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.slow(0.1)] * case.requests(3))
    assert verdicts(await provider.send(case.batch(fake), http)) == [Verdict.COMPLETED] * 3


async def test_an_unreachable_provider_is_a_temporary_failure(case: Case, http: httpx.AsyncClient) -> None:
    with case.fake() as fake:
        provider, batch = case.adapter(fake), case.batch(fake)
    with pytest.raises(ProviderTransientError):
        await provider.send(batch, http)


@pytest.mark.parametrize("case", [case for case in CASES if case.reads_bodies], ids=lambda case: case.name)
async def test_the_html_page_of_a_proxy_is_no_success(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.page())
    with pytest.raises(ProviderTransientError):
        await provider.send(case.batch(fake), http)


async def test_one_bad_row_fails_alone_with_its_own_code(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    told, code = case.bad_row
    fake.refuse("order-3", told)
    outcomes = await provider.send(case.batch(fake, 8), http)

    bad = outcomes.pop(3)
    assert (bad.verdict, bad.code, bad.category) == (Verdict.FAILED, code, Category.VALIDATION)
    assert verdicts(outcomes) == [Verdict.COMPLETED] * 7
    assert fake.accepted == {f"order-{at}": 1 for at in range(8) if at != 3}


async def test_rows_that_are_not_started_in_time_use_no_retry(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake, 1), http)  # what it needs to know first, such as an access token
    known = len(fake.calls)
    fake.refuse("order-3", case.bad_row[0])
    rows = [case.row(at) for at in range(1, 9)]
    outcomes = await provider.send(case.batch(fake, conversions=rows, deadline=monotonic()), http)

    assert len(fake.calls) == known + 1
    unsent = [each for each in outcomes if each.code == "NOT_SENT"]
    assert all(each.verdict is Verdict.RETRY for each in unsent)
    # Unless the one request settled no row: such a call could be repeated without end.
    assert {each.counts for each in unsent} <= {len(unsent) == len(rows)}


async def test_a_dry_run_creates_no_conversion(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient
) -> None:
    outcomes = await provider.send(case.batch(fake, dry_run=True), http)

    assert verdicts(outcomes) == [Verdict.COMPLETED] * 3
    assert not ORDERS.keys() & fake.accepted.keys()


@pytest.mark.parametrize("credentials", [{}, {"acess_tokn": "TOKENcanary"}], ids=["missing", "unknown"])
async def test_a_credential_that_is_missing_or_unknown_is_named(
    case: Case, fake: FakeServer, provider: Provider, http: httpx.AsyncClient, credentials: dict[str, str]
) -> None:
    given = credentials or {case.needs: None}
    outcomes = await provider.send(case.batch(fake, credentials=given), http)

    assert {(outcome.verdict, outcome.category) for outcome in outcomes} == {(Verdict.FAILED, Category.AUTH)}
    (name,) = given
    assert all(f"'{name}'" in (outcome.message or "") for outcome in outcomes)
    assert list(fake.calls) == []


async def test_no_secret_and_no_click_id_is_disclosed(
    case: Case,
    fake: FakeServer,
    provider: Provider,
    hasty: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []
    fake.refuse("order-1", case.bad_row[0])  # the fakes repeat what they were sent
    batch = case.batch(fake)
    told += [repr(batch), str(batch.credentials), repr(batch.conversions), repr(provider)]
    told += map(repr, await provider.send(batch, hasty))
    for fault in (
        Fault.status(400),
        Fault.status(401),
        Fault.status(429),
        Fault.status(500),
        Fault.hang(),
        Fault.cut(),
    ):
        fake.script(*[fault] * case.requests(3))
        told += await _all_it_says(provider, batch, hasty)
    told += await _all_it_says(provider, case.batch(fake, credentials={case.needs: "bad\ncanary "}), hasty)

    secrets = [CANARY, *(digest for row in batch.conversions for digest in row.user_data.values())]
    assert [text for text in told for secret in secrets if secret in text] == []
    ours = [record for record in caplog.records if record.name.partition(".")[0] not in ("httpx", "httpcore")]
    assert [record for record in ours if CANARY in record.getMessage()] == []


async def _all_it_says(provider: Provider, batch: Batch, http: httpx.AsyncClient) -> list[str]:
    try:
        return [repr(outcome) for outcome in await provider.send(batch, http)]
    except ProviderTransientError as error:
        return [*map(repr, (error, error.code, error.args)), *traceback.format_exception(error)]
