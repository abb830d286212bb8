"""Confirmations of requests that Google Data Manager accepted earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from google.ads import datamanager_v1 as wheel

from tests.providers.cases import GOOGLE_ADS, GOOGLE_DATAMANAGER, Case
from weighbridge.delivery.providers.base import Confirmation, Credentials
from weighbridge.delivery.providers.google_datamanager import GoogleDataManager, confirmation
from weighbridge.model.delivery import ProviderTransientError
from weighbridge.testing._google_datamanager import FakeGoogleDataManager
from weighbridge.testing._server import Fault

CREDENTIALS = GOOGLE_ADS.credentials
GCLID, OLD, TWICE = (
    f"PROCESSING_ERROR_REASON_{name}"
    for name in ("INVALID_GCLID", "EVENT_TOO_OLD", "DUPLICATE_TRANSACTION_ID")
)


@pytest.fixture
def case() -> Case:
    return replace(GOOGLE_DATAMANAGER, credentials=CREDENTIALS)


@pytest.fixture
def fake() -> Iterator[FakeGoogleDataManager]:
    with FakeGoogleDataManager() as server:
        yield server


@pytest.mark.parametrize(
    ("state", "reasons", "told"),
    [
        ("PROCESSING", {}, Confirmation("PROCESSING")),
        ("REQUEST_STATUS_UNKNOWN", {}, Confirmation("PROCESSING")),
        ("SUCCESS", {}, Confirmation("CONFIRMED", accepted=5)),
        ("PARTIAL_SUCCESS", {GCLID: 1, OLD: 2}, Confirmation("PARTIAL", 2, 3, {GCLID: 1, OLD: 2})),
        ("FAILED", {GCLID: 5}, Confirmation("REFUSED", 0, 5, {GCLID: 5})),
        ("FAILED", {}, Confirmation("REFUSED", 0, 5)),
        (
            "FAILED",
            {TWICE: 5},
            Confirmation("CONFIRMED", 5, 0, {TWICE: 5}),
        ),  # Google has them from an earlier call
        ("PARTIAL_SUCCESS", {TWICE: 2, GCLID: 1}, Confirmation("PARTIAL", 4, 1, {TWICE: 2, GCLID: 1})),
    ],
)
async def test_a_confirmation_has_the_counts_of_the_request(
    fake: FakeGoogleDataManager,
    provider: GoogleDataManager,
    case: Case,
    http: httpx.AsyncClient,
    state: str,
    reasons: dict[str, int],
    told: Confirmation,
) -> None:
    outcomes = await provider.send(case.batch(fake, 5), http)
    fake.process(state, reasons)
    assert outcomes[0].request_id is not None
    assert await provider.confirm(outcomes[0].request_id, Credentials(CREDENTIALS), http) == told

    call = fake.calls[-1]
    assert (call.method, call.path) == ("GET", "/v1/requestStatus:retrieve")
    assert call.query == {"requestId": "fake-request-1"}
    headers = {"authorization": call.headers["authorization"]}
    answer = await http.get(f"{fake.url}{call.path}", params=dict(call.query), headers=headers)
    read = wheel.RetrieveRequestStatusResponse.from_json(answer.text, ignore_unknown_fields=False)
    assert read.request_status_per_destination[0].request_status.name == state


async def test_a_confirmation_needs_no_earlier_token_and_renews_one_that_expired(
    fake: FakeGoogleDataManager, provider: GoogleDataManager, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake), http)
    fake.process("SUCCESS")
    fake.expire_tokens()
    credentials = Credentials(CREDENTIALS)
    assert (await provider.confirm("fake-request-1", credentials, http)).state == "CONFIRMED"
    assert (
        await GoogleDataManager(base_url=fake.url).confirm("fake-request-1", credentials, http)
    ).accepted == 3
    assert fake.tokens_given == 3


@pytest.mark.parametrize("fault", [Fault.status(500), Fault.status(429), Fault.cut(), Fault.page()])
async def test_a_confirmation_is_requested_again_after_a_temporary_failure(
    fake: FakeGoogleDataManager,
    provider: GoogleDataManager,
    case: Case,
    http: httpx.AsyncClient,
    fault: Fault,
) -> None:
    await provider.send(case.batch(fake), http)
    fake.script(fault, on="status")
    with pytest.raises(ProviderTransientError):
        await provider.confirm("fake-request-1", Credentials(CREDENTIALS), http)


async def test_an_unknown_request_and_a_revoked_token_are_named(
    fake: FakeGoogleDataManager, provider: GoogleDataManager, http: httpx.AsyncClient
) -> None:
    for values, code in (
        (CREDENTIALS, "INVALID_REQUEST_ID"),
        ({**CREDENTIALS, "refresh_token": "revoked"}, "invalid_grant"),
    ):
        with pytest.raises(ProviderTransientError) as raised:
            await provider.confirm("nobody's & nothing's", Credentials(values), http)
        assert raised.value.code == code
    (call,) = (each for each in fake.calls if each.method == "GET")
    assert call.query == {"requestId": "nobody's & nothing's"}


@pytest.mark.parametrize(
    "answer", [{}, {"requestStatusPerDestination": []}, {"requestStatusPerDestination": ["x"]}]
)
def test_a_response_without_a_status_confirms_nothing(answer: dict[str, Any]) -> None:
    with pytest.raises(ProviderTransientError):
        confirmation(answer)
