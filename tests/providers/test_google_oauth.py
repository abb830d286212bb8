"""Credentials of both Google providers: read, refused, renewed, and never shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from tests.providers.cases import GOOGLE_ADS, GOOGLE_DATAMANAGER, NOW, Case
from weighbridge.delivery.providers.base import Provider
from weighbridge.model.delivery import Category, ProviderRateLimitError, ProviderTransientError, Verdict
from weighbridge.testing._google_oauth import FakeGoogle
from weighbridge.testing._server import Fault

# A site that changes the provider keeps its credentials.
CHANGED_OVER = replace(GOOGLE_DATAMANAGER, credentials=GOOGLE_ADS.credentials)


@pytest.fixture(params=[GOOGLE_ADS, CHANGED_OVER], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("bad", "code", "hint"),
    [
        ({"customer_id": "my account"}, "CREDENTIALS", "'customer_id'"),
        ({"customer_id": "12345678901234567890123"}, "CREDENTIALS", "'customer_id'"),
        ({"login_customer_id": "../x"}, "CREDENTIALS", "'login_customer_id'"),
        ({"conversion_action_resource_name": "987"}, "CREDENTIALS", "'conversion_action_resource_name'"),
        ({"conversion_action_resource_name": "customers/1/campaigns/2"}, "CREDENTIALS", "conversionActions"),
        ({"refresh_token": "revoked"}, "invalid_grant", "grant access again"),
        ({"client_secret": "wrong"}, "invalid_client", "client_secret"),
        ({"refresh_token": "a\nb"}, "CREDENTIALS", "'refresh_token'"),
    ],
)
async def test_invalid_credentials_fail_every_row_with_a_message(
    fake: FakeGoogle,
    provider: Provider,
    case: Case,
    http: httpx.AsyncClient,
    bad: dict[str, str],
    code: str,
    hint: str,
) -> None:
    outcomes = await provider.send(case.batch(fake, credentials=bad), http)

    assert {(each.verdict, each.category, each.code) for each in outcomes} == {
        (Verdict.FAILED, Category.AUTH, code)
    }
    assert all(hint in (each.message or "") for each in outcomes)
    assert not any(
        value in repr(outcomes) for value in bad.values() if value not in ("revoked", "wrong", "987")
    )
    assert fake.accepted == {}


async def test_one_token_is_used_until_shortly_before_it_expires(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    for minutes, tokens in ((0, 1), (50, 1), (57, 1), (58, 2), (60, 2)):
        await provider.send(case.batch(fake, now=NOW + timedelta(minutes=minutes)), http)
        assert fake.tokens_given == tokens, minutes


async def test_sites_do_not_use_each_others_tokens(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    for refresh_token in ("one", "two", "one"):
        await provider.send(case.batch(fake, credentials={"refresh_token": refresh_token}), http)

    used = [call.headers["authorization"] for call in fake.calls if call.path != "/token"]
    assert used == ["Bearer ya29.fake-1", "Bearer ya29.fake-2", "Bearer ya29.fake-1"]


async def test_a_token_that_expired_early_is_renewed_once(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake), http)
    fake.expire_tokens()
    outcomes = await provider.send(case.batch(fake), http)

    assert {each.verdict for each in outcomes} == {Verdict.COMPLETED}
    assert fake.tokens_given == 2


async def test_a_token_that_is_refused_twice_is_reported_as_refused_access(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake, 1), http)
    before = len(fake.calls)
    fake.script(Fault.status(401), Fault.status(401))
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.category) for each in outcomes} == {(Verdict.FAILED, Category.AUTH)}
    assert [call.path == "/token" for call in list(fake.calls)[before:]] == [False, True, False]


async def test_a_token_that_was_revoked_is_reported_as_refused_access(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake), http)
    fake.expire_tokens()
    fake.revoked.add(case.credentials["refresh_token"])
    outcomes = await provider.send(case.batch(fake), http)

    assert {each.code for each in outcomes} == {"invalid_grant"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.status(500), ProviderTransientError),
        (Fault.status(429, retry_after=3), ProviderRateLimitError),
        (Fault.cut(), ProviderTransientError),
        (Fault.page(), ProviderTransientError),
    ],
    ids=["500", "429", "cut", "page"],
)
async def test_a_failure_of_the_token_request_is_temporary(
    fake: FakeGoogle,
    provider: Provider,
    case: Case,
    http: httpx.AsyncClient,
    fault: Fault,
    error: type[ProviderTransientError],
) -> None:
    fake.script(fault, on="token")
    with pytest.raises(error):
        await provider.send(case.batch(fake), http)
    assert {each.verdict for each in await provider.send(case.batch(fake), http)} == {Verdict.COMPLETED}


async def test_the_repr_of_the_provider_has_no_token(
    fake: FakeGoogle, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake), http)
    assert "ya29" not in repr(vars(provider))
