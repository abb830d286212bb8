"""google_ads against its fake, over sockets: the request, and the result of every kind of response."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.providers.cases import GOOGLE_ADS, Case
from tests.providers.google_types import conversion_upload_errors, google_type
from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.providers.google_ads import GoogleAds
from weighbridge.delivery.providers.google_errors import CONVERSION_UPLOAD, Handling
from weighbridge.model.delivery import Category, Outcome, ProviderTransientError, Verdict
from weighbridge.testing._google_ads import FakeGoogleAds
from weighbridge.testing._server import Fault, ReceivedRequest

MESSAGES = "services.types.conversion_upload_service"
UPLOAD = "/v26/customers/1234567890:uploadClickConversions"
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


# Requests -----------------------------------------------------------------------------------------------------


async def test_the_request_is_what_googles_own_types_read(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    west = datetime(2026, 11, 14, 12, 32, 45, 999, tzinfo=timezone(-timedelta(hours=8)))
    rows = [
        case.row(0, occurred_at=west, value=Decimal("1234567.89")),
        case.row(1, click_type="gbraid", value=None, currency=None, user_data={}),
        case.row(
            2, click_type="wbraid", user_data={"email": "a" * 64, "phone": "b" * 64, "email_google": "c" * 64}
        ),
    ]
    await provider.send(case.batch(fake, conversions=rows), http)

    (call,) = uploads(fake)
    request = google_type(MESSAGES, "UploadClickConversionsRequest")
    read = request.from_json(call.raw.decode(), ignore_unknown_fields=False)
    first, second, third = read.conversions
    assert (call.method, call.path) == ("POST", UPLOAD)
    assert read.partial_failure
    assert not read.validate_only
    assert (first.gclid, second.gbraid, third.wbraid) == tuple(row.click_id for row in rows)
    assert [first.gbraid, first.wbraid, second.gclid, second.wbraid, third.gclid, third.gbraid] == [""] * 6
    assert {each.conversion_action for each in read.conversions} == {
        "customers/1234567890/conversionActions/987"
    }
    assert first.conversion_date_time == "2026-11-14 12:32:45-08:00"
    assert second.conversion_date_time == "2026-11-14 05:59:59+00:00"
    assert [each.order_id for each in read.conversions] == ["order-0", "order-1", "order-2"]
    assert (first.conversion_value, first.currency_code) == (1234567.89, "EUR")
    assert "conversion_value" not in second
    assert "currency_code" not in second
    people = [(each.hashed_email, each.hashed_phone_number) for each in third.user_identifiers]
    assert people == [("c" * 64, ""), ("", "b" * 64)]
    assert not second.user_identifiers


async def test_the_headers_name_the_accounts(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    await provider.send(case.batch(fake, 1, credentials={"login_customer_id": "111-222-3333"}), http)

    (call,) = uploads(fake)
    assert call.headers["authorization"] == "Bearer ya29.fake-1"
    assert call.headers["developer-token"] == "TOKENcanary"
    assert call.headers["login-customer-id"] == "1112223333"


@pytest.mark.parametrize("text", ["0.1", "0.30", "19.99", "1E+3", "0.07", "999999999999.99", "-5.10"])
async def test_an_amount_is_sent_as_it_is_written(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient, text: str
) -> None:
    await provider.send(case.batch(fake, conversions=[case.row(0, value=Decimal(text))]), http)

    (row,) = json.loads(uploads(fake)[0].raw, parse_float=Decimal)["conversions"]
    assert row["conversionValue"] == Decimal(text)


async def test_only_the_row_that_cannot_be_put_into_a_request_fails(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    rows = [case.row(0, value=Decimal("NaN")), case.row(1), case.row(2, click_type="fbclid")]
    outcomes = await provider.send(case.batch(fake, conversions=rows), http)

    assert [(each.verdict, each.code) for each in outcomes] == [
        (FAILED, "VALUE"),
        (OK, None),
        (FAILED, "CLICK_TYPE"),
    ]
    assert fake.accepted == {"order-1": 1}


async def test_google_checks_a_dry_run_and_stores_nothing(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "EXPIRED_EVENT")
    outcomes = await provider.send(case.batch(fake, dry_run=True), http)

    assert uploads(fake)[0].body["validateOnly"] is True
    assert verdicts(outcomes) == [OK, FAILED, OK]
    assert fake.accepted == {}


# Results of a response ----------------------------------------------------------------------------------------


async def test_each_row_has_its_own_error_and_the_requests_id(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    codes = conversion_upload_errors()
    once_more = {code for code in codes if CONVERSION_UPLOAD[code] is Handling.ALONE}
    order = sorted(codes - once_more)
    for at, code in enumerate(order):
        fake.refuse(f"order-{2 * at}", code)  # every second row is good
    outcomes = await provider.send(case.batch(fake, 2 * len(order)), http)

    for at, code in enumerate(order):
        delivered = CONVERSION_UPLOAD[code] is Handling.DELIVERED
        assert (outcomes[2 * at].code, outcomes[2 * at].duplicate) == (None if delivered else code, delivered)
    assert verdicts(outcomes[1::2]) == [OK] * len(order)
    assert {outcome.request_id for outcome in outcomes} == {"fake-request-1"}
    assert fake.accepted == {f"order-{2 * at + 1}": 1 for at in range(len(order))}


async def test_a_temporary_error_of_one_row_in_a_successful_response_is_retried(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-0", "internalError.INTERNAL_ERROR")
    fake.refuse("order-1", "quotaError.RESOURCE_EXHAUSTED")
    fake.refuse("order-2", "authorizationError.USER_PERMISSION_DENIED")
    fake.refuse("order-3", "fieldError.INVALID_VALUE")
    outcomes = await provider.send(case.batch(fake, 5), http)

    assert [(each.verdict, each.category) for each in outcomes] == [
        (RETRY, Category.TRANSIENT),
        (RETRY, Category.RATE_LIMIT),
        (FAILED, Category.AUTH),
        (FAILED, Category.VALIDATION),
        (OK, None),
    ]


async def test_a_resend_is_reported_as_already_delivered(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.cut(after=True))
    with pytest.raises(ProviderTransientError):
        await provider.send(case.batch(fake), http)
    outcomes = await provider.send(case.batch(fake), http)

    assert [(each.verdict, each.duplicate) for each in outcomes] == [(OK, True)] * 3
    assert set(fake.accepted.values()) == {1}


async def test_several_errors_of_a_row_of_which_one_is_not_about_delivery(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-0", "ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS")
    fake.refuse("order-1", "ORDER_ID_ALREADY_IN_USE", "NO_CONVERSION_ACTION_FOUND")
    first, second = await provider.send(case.batch(fake, 2), http)

    assert (first.verdict, first.duplicate) == (OK, True)
    assert (second.verdict, second.code) == (FAILED, "NO_CONVERSION_ACTION_FOUND")


async def test_errors_that_name_no_row_complete_only_rows_with_a_result(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.nameless = True
    fake.refuse("order-1", "NO_CONVERSION_ACTION_FOUND")
    outcomes = await provider.send(case.batch(fake), http)

    assert verdicts(outcomes) == [OK, RETRY, OK]
    assert (outcomes[1].code, outcomes[1].category) == ("NO_CONVERSION_ACTION_FOUND", Category.TRANSIENT)


async def test_an_error_without_a_row_in_a_dry_run_confirms_no_row(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    fake.nameless = True
    fake.refuse("order-1", "NO_CONVERSION_ACTION_FOUND")
    assert verdicts(await provider.send(case.batch(fake, dry_run=True), http)) == [RETRY] * 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"results": [{}, {}, {}]},
        {"results": "x"},
        {"results": [], "partialFailureError": {"code": 3, "message": "?"}},
        {"partialFailureError": {"code": 3, "details": [{"@type": "of.somebody.Else"}]}},
    ],
)
async def test_a_200_without_results_completes_nothing(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    fake.say(body)
    assert verdicts(await provider.send(case.batch(fake), http)) == [RETRY] * 3


async def test_an_index_outside_the_request_is_ignored(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    where = {"fieldPathElements": [{"fieldName": "conversions", "index": 7}]}
    error = {"errorCode": {"conversionUploadError": "EXPIRED_EVENT"}, "location": where}
    fake.say({"results": [{"gclid": "x"}, {}], "partialFailureError": {"details": [{"errors": [error]}]}})
    fake.say({"error": {"status": "INVALID_ARGUMENT", "details": [{"errors": [error]}]}}, status=400)
    first, second = await provider.send(case.batch(fake, 2), http)

    assert (first.verdict, second.verdict, second.code) == (OK, RETRY, "EXPIRED_EVENT")
    assert verdicts(await provider.send(case.batch(fake, 2), http)) == [FAILED, FAILED]


async def test_the_proof_is_the_header_or_the_failures_id_or_the_job(
    fake: FakeGoogleAds, provider: Provider, case: Case, http: httpx.AsyncClient
) -> None:
    results = [{"gclid": "x"}]
    fake.say({"results": results, "jobId": "77"}, headers={"x-goog-request-id": "from-the-header"})
    failure = {"details": [{"errors": [], "requestId": "from-the-failure"}]}
    fake.say({"results": results, "partialFailureError": failure, "jobId": "77"})
    fake.say({"results": results, "jobId": "77"})
    found = [(await provider.send(case.batch(fake, 1), http))[0].request_id for _ in range(3)]

    assert found == ["from-the-header", "from-the-failure", "job:77"]


# The fake, and the declaration of the provider --------------------------------------------------------------


async def test_the_fake_uses_the_format_of_googles_own_types(
    fake: FakeGoogleAds, case: Case, http: httpx.AsyncClient
) -> None:
    fake.refuse("order-1", "EXPIRED_EVENT")
    fake.refuse("order-2", "quotaError.RESOURCE_EXHAUSTED")
    provider = GoogleAds(base_url=fake.url)
    await provider.send(case.batch(fake), http)
    sent = uploads(fake)[0]
    answer = await http.post(f"{fake.url}{UPLOAD}", content=sent.raw, headers=dict(sent.headers))
    response = google_type(MESSAGES, "UploadClickConversionsResponse")
    read = response.from_json(answer.text, ignore_unknown_fields=False)
    assert len(read.results) == 3
    assert read.partial_failure_error.details

    fake.deny("quotaError.RESOURCE_EXHAUSTED", rate_scope="ACCOUNT", retry_delay="5s")
    refused = (await http.post(f"{fake.url}{UPLOAD}", content=sent.raw, headers=dict(sent.headers))).json()
    (detail,) = refused["error"]["details"]
    kind = detail.pop("@type")
    google_ads_failure = google_type("errors.types.errors", "GoogleAdsFailure")
    failure = google_ads_failure.from_json(json.dumps(detail), ignore_unknown_fields=False)
    assert kind == "type.googleapis.com/google.ads.googleads.v26.errors.GoogleAdsFailure"
    assert failure.errors[0].details.quota_error_details.retry_delay == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"conversionDateTime": "2026-01-01T00:00:00Z"}, "INVALID_STRING_DATE_TIME_SECONDS_WITH_OFFSET"),
        ({"conversionAction": "987"}, "RESOURCE_NAME_MALFORMED"),
        ({"currencyCode": "Euro"}, "UNSUPPORTED"),
        ({"wbraid": "x"}, "VALUE_MUST_BE_UNSET"),
        ({"userIdentifiers": [{"hashedEmail": "jane@example.com"}]}, "INVALID_USER_IDENTIFIER"),
    ],
)
async def test_the_fake_is_strict(
    fake: FakeGoogleAds,
    provider: Provider,
    case: Case,
    http: httpx.AsyncClient,
    change: dict[str, Any],
    code: str,
) -> None:
    await provider.send(case.batch(fake, 1), http)
    call = uploads(fake)[0]
    body = json.loads(call.raw)
    body["conversions"][0] |= {"orderId": "another", **change}
    headers = {"authorization": call.headers["authorization"]}
    answer = (await http.post(f"{fake.url}{UPLOAD}", json=body, headers=headers)).json()
    (error,) = answer["partialFailureError"]["details"][0]["errors"]
    assert code in error["errorCode"].values()

    body["conversions"][0]["order_id"] = "x"
    assert (await http.post(f"{fake.url}{UPLOAD}", json=body, headers=headers)).status_code == 400


def test_the_provider_declares_its_limits_and_credentials() -> None:
    provider = GoogleAds()
    assert (provider.name, provider.max_batch) == ("google_ads", 2000)
    assert provider.clicks == ("gclid", "gbraid", "wbraid")
    assert (provider.window, provider.window_from) == (timedelta(days=90), "click")
    assert {need.name: need.required for need in provider.needs} == {
        "customer_id": True,
        "developer_token": True,
        "client_id": True,
        "client_secret": True,
        "refresh_token": True,
        "conversion_action_resource_name": True,
        "login_customer_id": False,
    }
    assert all(need.help for need in provider.needs)
