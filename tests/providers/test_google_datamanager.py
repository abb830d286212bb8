"""google_datamanager against its fake, over sockets: the request, the bisection for a bad event, the confirmation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from time import monotonic
from typing import Any

import httpx
import pytest
from google.ads import datamanager_v1 as wheel

from tests.providers.cases import GOOGLE_ADS, GOOGLE_DATAMANAGER, Case
from weighbridge.delivery.providers.base import Confirms, Provider
from weighbridge.delivery.providers.google_datamanager import REQUESTS, GoogleDataManager
from weighbridge.model.delivery import (
    Category,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)
from weighbridge.testing._google_datamanager import FakeGoogleDataManager
from weighbridge.testing._server import Fault, ReceivedRequest

CREDENTIALS = GOOGLE_ADS.credentials  # a site that changes the provider keeps its credentials
OK, RETRY, FAILED = Verdict.COMPLETED, Verdict.RETRY, Verdict.FAILED


@pytest.fixture
def case() -> Case:
    return replace(GOOGLE_DATAMANAGER, credentials=CREDENTIALS)


@pytest.fixture
def fake() -> Iterator[FakeGoogleDataManager]:
    with FakeGoogleDataManager() as server:
        yield server


def ingests(fake: FakeGoogleDataManager) -> list[ReceivedRequest]:
    return [call for call in fake.calls if call.path == "/v1/events:ingest"]


def verdicts(outcomes: list[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


# Requests -----------------------------------------------------------------------------------------------------


async def test_the_request_is_what_googles_own_types_read(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    west = datetime(2026, 11, 14, 12, 32, 45, tzinfo=timezone(-timedelta(hours=8)))
    rows = [
        case.row(0, occurred_at=west, value=Decimal("19.99")),
        case.row(1, click_type="gbraid", value=None, currency=None, user_data={}, order_id="4711"),
        case.row(
            2, click_type="wbraid", user_data={"email": "a" * 64, "phone": "b" * 64, "email_google": "c" * 64}
        ),
    ]
    await provider.send(case.batch(fake, conversions=rows), http)

    (call,) = ingests(fake)
    read = wheel.IngestEventsRequest.from_json(call.raw.decode(), ignore_unknown_fields=False)
    (destination,) = read.destinations
    first, second, third = read.events
    assert call.method == "POST"
    assert destination.operating_account.account_type == wheel.ProductAccount.AccountType.GOOGLE_ADS
    assert destination.operating_account.account_id == "1234567890"
    assert destination.product_destination_id == "987"  # out of the resource name
    assert not destination.login_account.account_id
    assert (read.encoding, read.validate_only) == (wheel.Encoding.HEX, False)
    identifiers = [each.ad_identifiers for each in read.events]
    clicks = (identifiers[0].gclid, identifiers[1].gbraid, identifiers[2].wbraid)
    assert clicks == tuple(row.click_id for row in rows)
    assert [each.transaction_id for each in read.events] == ["order-0", "wb-4711", "order-2"]
    assert first.event_timestamp == west
    assert {each.event_source for each in read.events} == {wheel.EventSource.WEB}
    assert (first.conversion_value, first.currency) == (19.99, "EUR")
    assert "conversion_value" not in second
    assert not second.currency
    assert not second.user_data.user_identifiers
    people = [(each.email_address, each.phone_number) for each in third.user_data.user_identifiers]
    assert people == [("c" * 64, ""), ("", "b" * 64)]
    assert fake.accepted == {"order-0": 1, "4711": 1, "order-2": 1}


async def test_the_accounts_are_named_in_the_request(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    given = {"conversion_action_id": "555", "login_customer_id": "111-222-3333"}
    await provider.send(case.batch(fake, 1, credentials=given), http)

    read = wheel.IngestEventsRequest.from_json(ingests(fake)[0].raw.decode(), ignore_unknown_fields=False)
    assert read.destinations[0].product_destination_id == "555"
    assert read.destinations[0].login_account.account_id == "1112223333"
    assert "developer-token" not in ingests(fake)[0].headers


async def test_it_needs_one_name_of_the_conversion_action(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    lacking: dict[str, Any] = {"conversion_action_resource_name": None}
    (outcome,) = await provider.send(case.batch(fake, 1, credentials=lacking), http)
    assert (outcome.verdict, outcome.category) == (FAILED, Category.AUTH)
    (outcome,) = await provider.send(
        case.batch(fake, 1, credentials={**lacking, "conversion_action_id": "x"}), http
    )
    assert "'conversion_action_id'" in (outcome.message or "")
    (outcome,) = await provider.send(
        case.batch(fake, 1, credentials={**lacking, "conversion_action_id": "5"}), http
    )
    assert outcome.verdict is OK


async def test_a_receipt_awaits_its_confirmation(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    outcomes = await provider.send(case.batch(fake), http)
    assert {(each.verdict, each.request_id, each.awaits_confirmation) for each in outcomes} == {
        (OK, "fake-request-1", True)
    }


async def test_a_dry_run_awaits_nothing(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "EVENT_TIME_INVALID")
    outcomes = await provider.send(case.batch(fake, dry_run=True), http)

    assert {call.body["validateOnly"] for call in ingests(fake)} == {True}
    assert verdicts(outcomes) == [OK, FAILED, OK]
    assert not any(each.awaits_confirmation for each in outcomes)
    assert fake.accepted == {}


# A bad event --------------------------------------------------------------------------------------------------


async def test_events_that_the_response_names_are_removed_and_the_others_sent_again(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-3", "EVENT_TIME_INVALID")
    fake.refuse("order-0", "INVALID_CURRENCY_CODE", "INVALID_FORMAT")
    outcomes = await provider.send(case.batch(fake, 10), http)

    assert [len(call.body["events"]) for call in ingests(fake)] == [10, 8]
    assert (outcomes[3].verdict, outcomes[3].code) == (FAILED, "EVENT_TIME_INVALID")
    assert (outcomes[0].code, outcomes[0].request_id) == ("INVALID_CURRENCY_CODE", "fake-refusal")
    assert len(fake.accepted) == verdicts(outcomes).count(OK) == 8


async def test_a_refusal_that_names_no_event_starts_a_bisection(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.silent = True
    fake.refuse("order-1234", "INVALID_SHA256_FORMAT")
    outcomes = await provider.send(case.batch(fake, 2000), http)

    assert (outcomes[1234].verdict, outcomes[1234].code) == (FAILED, "INVALID_ARGUMENT")
    assert verdicts(outcomes).count(OK) == 1999
    assert set(fake.accepted.values()) == {1}
    assert len(fake.accepted) == 1999
    assert len(ingests(fake)) <= 23


async def test_a_bisection_with_too_many_requests_is_left_for_the_next_batch(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.silent = True
    for at in range(2000):
        fake.refuse(f"order-{at}", "INVALID_FORMAT")
    outcomes = await provider.send(case.batch(fake, 2000), http)

    assert len(ingests(fake)) == REQUESTS
    assert {(each.verdict, each.code, each.counts) for each in outcomes} == {
        (FAILED, "INVALID_ARGUMENT", True),
        (RETRY, "NOT_SENT", False),
    }
    assert verdicts(outcomes).count(FAILED) > 10


async def test_no_request_is_started_that_would_exceed_the_time_of_the_call(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "INVALID_FORMAT")
    outcomes = await provider.send(case.batch(fake, deadline=monotonic()), http)

    assert len(ingests(fake)) == 1
    assert verdicts(outcomes) == [RETRY, FAILED, RETRY]
    assert [(each.code, each.counts) for each in outcomes if each.verdict is RETRY] == [
        ("NOT_SENT", False)
    ] * 2


async def test_a_wrong_destination_fails_all_rows_without_a_bisection(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.status(400))
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.code) for each in outcomes} == {(FAILED, "INVALID_FORMAT")}
    assert len(ingests(fake)) == 1


async def test_an_account_error_fails_all_rows_without_a_bisection(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TERMS_AND_CONDITIONS_NOT_SIGNED",
    }
    fake.say({"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [detail]}}, status=400)
    outcomes = await provider.send(case.batch(fake), http)
    assert {(each.verdict, each.code) for each in outcomes} == {(FAILED, "TERMS_AND_CONDITIONS_NOT_SIGNED")}


async def test_rows_of_a_conversion_action_that_is_too_new_are_retried(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "CONVERSION_ACTION_TOO_RECENTLY_CREATED")
    outcomes = await provider.send(case.batch(fake), http)
    assert (outcomes[1].verdict, outcomes[1].retry_after) == (RETRY, timedelta(hours=6))


async def test_a_failure_in_the_middle_keeps_the_accepted_rows_and_stops(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.silent = True
    fake.refuse("order-3", "INVALID_FORMAT")  # 4 rows: refused; 0 and 1: accepted; 2 and 3: temporary failure
    fake.script(Fault.slow(0), Fault.slow(0), Fault.status(429, retry_after=5))
    outcomes = await provider.send(case.batch(fake, 4), http)

    assert verdicts(outcomes) == [OK, OK, RETRY, RETRY]
    assert {(each.category, each.retry_after) for each in outcomes[2:]} == {
        (Category.RATE_LIMIT, timedelta(seconds=5))
    }
    assert len(ingests(fake)) == 3


async def test_rows_that_were_not_sent_wait_as_long_as_the_rows_that_met_the_limit(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.silent = True
    fake.refuse("order-0", "INVALID_FORMAT")  # refused: all 4, 0 and 1, 0 alone. Then 1 meets the limit
    fake.script(*[Fault.slow(0)] * 3, Fault.status(429, retry_after=5))
    outcomes = await provider.send(case.batch(fake, 4), http)

    assert verdicts(outcomes) == [FAILED, RETRY, RETRY, RETRY]
    assert {each.retry_after for each in outcomes[1:]} == {timedelta(seconds=5)}
    assert [each.counts for each in outcomes] == [True, True, False, False]


async def test_a_token_that_google_always_reports_as_expired_is_renewed_only_once(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "ACCESS_TOKEN_EXPIRED"}
    for _ in range(4):
        fake.say({"error": {"code": 401, "status": "UNAUTHENTICATED", "details": [detail]}}, status=401)
    outcomes = await provider.send(case.batch(fake), http)

    assert {(each.verdict, each.category) for each in outcomes} == {(FAILED, Category.AUTH)}
    assert (len(ingests(fake)), fake.tokens_given) == (2, 2)


async def test_a_retry_info_sets_the_pause(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}
    fake.say({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [detail]}}, status=429)
    with pytest.raises(ProviderRateLimitError) as raised:
        await provider.send(case.batch(fake), http)
    assert (raised.value.retry_after, raised.value.code) == (timedelta(seconds=12), "RESOURCE_EXHAUSTED")


async def test_a_token_for_another_scope_is_explained(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
    }
    fake.say({"error": {"code": 403, "status": "PERMISSION_DENIED", "details": [detail]}}, status=403)
    outcomes = await provider.send(case.batch(fake), http)
    assert {(each.verdict, each.category) for each in outcomes} == {(FAILED, Category.AUTH)}
    assert all("auth/datamanager" in (each.message or "") for each in outcomes)


@pytest.mark.parametrize(
    ("status", "body"), [(200, {}), (200, {"requestId": 7}), (404, b"<html>"), (409, {"other": 1})]
)
async def test_a_response_that_is_not_from_google_completes_and_fails_no_row(
    fake: FakeGoogleDataManager,
    provider: Provider,
    case: Case,
    http: httpx.AsyncClient,
    status: int,
    body: Any,
) -> None:
    fake.say(body, status=status)
    with pytest.raises(ProviderTransientError):
        await provider.send(case.batch(fake), http)


@pytest.mark.parametrize(
    "details",
    [None, "x", ["x"], [{"@type": "google.rpc.BadRequest", "fieldViolations": [None, {}, {"field": 3}]}]],
)
async def test_a_refusal_in_an_unknown_format_causes_no_error(
    fake: FakeGoogleDataManager, provider: Provider, case: Case, http: httpx.AsyncClient, details: Any
) -> None:
    fake.say({"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": details}}, status=400)
    (outcome,) = await provider.send(case.batch(fake, 1), http)
    assert (outcome.verdict, outcome.code) == (FAILED, "INVALID_ARGUMENT")


# The fake, and the declaration of the provider --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"eventSource": None}, "REQUIRED_FIELD_MISSING"),
        ({"transactionId": "4711"}, "INVALID_FORMAT"),
        ({"eventTimestamp": "2026-01-01 00:00:00"}, "EVENT_TIME_INVALID"),
        ({"adIdentifiers": {}}, "NO_IDENTIFIERS_PROVIDED"),
        ({"userData": {"userIdentifiers": [{"emailAddress": "jane@example.com"}]}}, "INVALID_SHA256_FORMAT"),
    ],
)
async def test_the_fake_is_strict(
    fake: FakeGoogleDataManager,
    provider: Provider,
    case: Case,
    http: httpx.AsyncClient,
    change: dict[str, Any],
    code: str,
) -> None:
    await provider.send(case.batch(fake, 1), http)
    (call,) = ingests(fake)
    body = json.loads(call.raw)
    body["events"][0] |= change
    headers = {"authorization": call.headers["authorization"]}
    answer = await http.post(f"{fake.url}/v1/events:ingest", json=body, headers=headers)
    (violation,) = answer.json()["error"]["details"][-1]["fieldViolations"]
    assert (answer.status_code, violation["reason"]) == (400, code)
    assert violation["field"].startswith("events.events[0].")
    assert violation["reason"] in wheel.ErrorReason.__members__


def test_the_provider_declares_its_limits_and_credentials() -> None:
    provider = GoogleDataManager()
    assert (provider.name, provider.max_batch) == ("google_datamanager", 2000)
    assert provider.clicks == ("gclid", "gbraid", "wbraid")
    assert (provider.window, provider.window_from) == (timedelta(days=90), "click")
    assert isinstance(provider, Confirms)
    assert provider.confirm_after == timedelta(minutes=30)
    (token,) = (need for need in provider.needs if need.name == "refresh_token")
    assert "refresh token with the scope https://www.googleapis.com/auth/datamanager" in token.help
    required = {need.name for need in provider.needs if need.required}
    assert required == {"customer_id", "client_id", "client_secret", "refresh_token"}
    assert all(need.help for need in provider.needs)
