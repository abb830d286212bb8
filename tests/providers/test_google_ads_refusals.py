"""google_ads and errors of the whole request: quota, access, a 400, a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.providers.cases import GOOGLE_ADS, Case
from weighbridge.delivery.providers.base import Provider
from weighbridge.model.delivery import Category, ProviderRateLimitError, ProviderTransientError, Verdict
from weighbridge.testing._google_ads import FakeGoogleAds
from weighbridge.testing._server import ReceivedRequest

OK, FAILED = Verdict.COMPLETED, Verdict.FAILED


@pytest.fixture
def case() -> Case:
    return GOOGLE_ADS


@pytest.fixture
def fake() -> Iterator[FakeGoogleAds]:
    with FakeGoogleAds() as server:
        yield server


def uploads(fake: FakeGoogleAds) -> list[ReceivedRequest]:
    return [call for call in fake.calls if call.path != "/token"]


@pytest.mark.parametrize(("scope", "whole"), [("ACCOUNT", False), ("DEVELOPER", True)])
async def test_a_quota_is_a_rate_limit_of_the_group_or_of_all(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient, scope: str, whole: bool
) -> None:
    fake.deny("quotaError.RESOURCE_EXHAUSTED", rate_scope=scope, retry_delay="30.5s")
    with pytest.raises(ProviderRateLimitError) as raised:
        await provider.send(case.batch(fake), http)

    assert raised.value.whole_provider is whole
    assert raised.value.retry_after == timedelta(seconds=30.5)
    assert raised.value.code == "RESOURCE_EXHAUSTED"
    assert raised.value.pause == (timedelta(seconds=30.5) if whole else None)


async def test_the_limit_of_one_developer_token_does_not_pause_all_sites_for_a_day(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.deny("quotaError.RESOURCE_EXHAUSTED", rate_scope="DEVELOPER", retry_delay="86400s")
    with pytest.raises(ProviderRateLimitError) as raised:
        await provider.send(case.batch(fake), http)
    assert raised.value.retry_after == timedelta(days=1)
    assert raised.value.pause == timedelta(minutes=5)


async def test_a_400_that_names_rows_fails_them_and_sends_the_others_again(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    where = {"fieldPathElements": [{"fieldName": "conversions", "index": 1}, {"fieldName": "gclid"}]}
    error = {"errorCode": {"stringLengthError": "TOO_LONG"}, "location": where}
    status = {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"errors": [error]}]}
    fake.say({"error": status}, status=400)
    outcomes = await provider.send(case.batch(fake), http)

    assert [(each.verdict, each.code) for each in outcomes] == [(OK, None), (FAILED, "TOO_LONG"), (OK, None)]


@pytest.mark.parametrize(
    "body", [{}, [], {"error": "x"}, {"error": {}}, {"error": {"status": "INVALID_ARGUMENT"}}]
)
async def test_a_400_fails_every_row_whatever_it_says(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient, body: Any
) -> None:
    fake.say(body, status=400)
    outcomes = await provider.send(case.batch(fake), http)
    assert {(each.verdict, each.code, each.category) for each in outcomes} == {
        (FAILED, "INVALID_ARGUMENT", Category.VALIDATION)
    }


async def test_a_404_that_is_not_from_google_is_a_temporary_failure(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.say(b"<html>nothing here</html>", status=404)
    with pytest.raises(ProviderTransientError):
        await provider.send(case.batch(fake), http)


async def test_the_error_of_an_account_without_access_names_the_api_to_use(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.deny("CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE")
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.category) for each in outcomes} == {(FAILED, Category.AUTH)}
    assert all("google_datamanager" in (each.message or "") for each in outcomes)
    assert outcomes[0].request_id == "fake-request-1"


@pytest.mark.parametrize(
    "code", ["authenticationError.CUSTOMER_NOT_FOUND", "authorizationError.CUSTOMER_NOT_ENABLED"]
)
async def test_an_account_that_google_refuses_fails_as_refused_access_without_a_retry(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient, code: str
) -> None:
    fake.deny(code)
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.category, each.code) for each in outcomes} == {
        (FAILED, Category.AUTH, code.rpartition(".")[2])
    }
    assert len(uploads(fake)) == 1


async def test_a_token_that_google_always_reports_as_expired_is_renewed_only_once(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.deny("OAUTH_TOKEN_EXPIRED", times=4)
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.category) for each in outcomes} == {(FAILED, Category.AUTH)}
    assert (len(uploads(fake)), fake.tokens_given) == (2, 2)
