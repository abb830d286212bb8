"""Behaviour that only Meta has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.providers.cases import META, NOW
from weighbridge.delivery.providers.meta_capi import PROBE, MetaCapi
from weighbridge.model.delivery import Category, ProviderRateLimitError, ProviderTransientError, Verdict
from weighbridge.testing import FakeMeta, Fault
from weighbridge.testing._server import ReceivedRequest, Reply


@pytest.fixture
def fake() -> Iterator[FakeMeta]:
    with FakeMeta() as server:
        server.clock = NOW.timestamp
        yield server


@pytest.fixture
def meta(fake: FakeMeta) -> MetaCapi:
    return MetaCapi(base_url=fake.url)


def saying(fake: FakeMeta, status: int, headers: dict[str, str] | None = None, **error: Any) -> None:
    """The next request gets this error."""
    fake.error = lambda call, _: Reply(status, {"error": error}, headers or {})  # type: ignore[method-assign]
    fake.script(Fault.status(status))


async def test_an_event_is_as_documented(fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient) -> None:
    row = META.row(1)
    await meta.send(META.batch(fake, conversions=[row]), http)

    (call,) = fake.calls
    assert call.path == "/v25.0/1234567890/events"
    assert call.query == {}  # URLs are written to logs
    assert call.body["access_token"] == "TOKENcanaryEAAB"
    assert "test_event_code" not in call.body
    assert row.clicked_at is not None
    assert call.body["data"] == [
        {
            "event_name": "Purchase",
            "event_time": int(row.occurred_at.timestamp()),
            "event_id": "order-1",
            "action_source": "system_generated",
            "user_data": {
                "em": [row.user_data["email"]],
                "ph": [row.user_data["phone_digits"]],
                "fbc": f"fb.1.{int(row.clicked_at.timestamp())}000.{row.click_id}",
            },
            "custom_data": {"value": 19.99, "currency": "EUR", "order_id": "order-1"},
        }
    ]


async def test_a_site_names_its_event_and_where_it_happened(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    names = {"event_name": "Lead", "action_source": "phone_call"}
    rows = [META.row(0, value=None, currency=None, clicked_at=None)]
    (outcome,) = await meta.send(META.batch(fake, conversions=rows, credentials=names), http)

    assert outcome.verdict is Verdict.COMPLETED
    (event,) = fake.calls[0].body["data"]
    assert (event["event_name"], event["action_source"]) == ("Lead", "phone_call")
    assert event["user_data"]["fbc"].startswith(f"fb.1.{int(rows[0].occurred_at.timestamp())}000.")


@pytest.mark.parametrize("wrong", [{"action_source": "website"}, {"dataset_id": "12a"}], ids=str)
async def test_credentials_that_meta_would_refuse_are_refused(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, wrong: dict[str, str]
) -> None:
    (outcome,) = await meta.send(META.batch(fake, 1, credentials=wrong), http)
    assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.AUTH)
    assert next(iter(wrong)) in str(outcome.message)
    assert list(fake.calls) == []


async def test_rows_that_would_fail_the_whole_request_are_not_sent(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    rows = [
        META.row(0, occurred_at=NOW - timedelta(days=7, seconds=1)),
        META.row(1, occurred_at=NOW - timedelta(days=7)),
        META.row(2, click_type="gclid", user_data={}),
        META.row(3, click_type="gclid"),
        META.row(4, value=None),
        META.row(5, currency=None),
        META.row(6, value=Decimal("NaN")),
    ]
    outcomes = await meta.send(META.batch(fake, conversions=rows), http)

    codes = [outcome.code for outcome in outcomes]
    assert codes == ["EXPIRED", None, "NO_MATCH_KEY", None, "NO_VALUE", "NO_VALUE", "VALUE"]
    assert fake.accepted == {"order-1": 1, "order-3": 1}
    assert len(fake.calls) == 1
    assert "fbc" not in fake.calls[0].body["data"][1]["user_data"]


async def test_rows_that_are_not_sent_are_settled_even_if_the_connection_breaks(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.cut())
    rows = [META.row(0, value=None), META.row(1)]
    outcomes = await meta.send(META.batch(fake, conversions=rows), http)
    assert [outcome.verdict for outcome in outcomes] == [Verdict.FAILED, Verdict.RETRY]


async def test_rows_that_are_not_sent_are_refused_even_if_the_others_meet_a_rate_limit(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    use = '{"1234567890": [{"estimated_time_to_regain_access": 3}]}'
    saying(fake, 400, {"x-business-use-case-usage": use}, code=4, message="Too many calls")
    rows = [META.row(0), META.row(1, value=None)]
    limited, refused = await meta.send(META.batch(fake, conversions=rows), http)
    assert (refused.verdict, refused.code) == (Verdict.FAILED, "NO_VALUE")
    assert (limited.category, limited.retry_after) == (Category.RATE_LIMIT, timedelta(minutes=3))
    saying(fake, 400, {"x-business-use-case-usage": use}, code=4, message="Too many calls")
    with pytest.raises(ProviderRateLimitError):
        await meta.send(META.batch(fake, conversions=rows[:1]), http)


@pytest.mark.parametrize("code", [4, 17, 32, 613, 80004])
async def test_meta_rate_limits_have_status_400(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, code: int
) -> None:
    use = '{"1234567890": [{"type": "ads_management", "estimated_time_to_regain_access": 19}]}'
    saying(fake, 400, {"x-business-use-case-usage": use}, code=code, message="Too many calls")
    with pytest.raises(ProviderRateLimitError) as raised:
        await meta.send(META.batch(fake), http)
    assert raised.value.retry_after == timedelta(minutes=19)
    assert raised.value.code == str(code)


@pytest.mark.parametrize(
    "use", ["{}", "[]", "x", '{"1": [3]}', '{"1": [{"estimated_time_to_regain_access": "x"}]}']
)
async def test_a_rate_limit_without_a_duration_is_still_a_rate_limit(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, use: str
) -> None:
    saying(fake, 400, {"x-business-use-case-usage": use}, code=4, message="Too many calls")
    with pytest.raises(ProviderRateLimitError) as raised:
        await meta.send(META.batch(fake), http)
    assert raised.value.retry_after is None


@pytest.mark.parametrize(
    "error", [{"code": 1}, {"code": 2}, {"code": 100, "is_transient": True}], ids=["1", "2", "is_transient"]
)
async def test_temporary_failures_of_meta_have_status_400(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, error: dict[str, Any]
) -> None:
    saying(fake, 400, **error)
    with pytest.raises(ProviderTransientError):
        await meta.send(META.batch(fake), http)


@pytest.mark.parametrize("error", [{"code": 190}, {"code": 102}, {"code": 10}, {"code": 200}, {"code": 299},
                                   {"code": 100, "error_subcode": 33}], ids=str)  # fmt: skip
async def test_an_invalid_token_or_dataset_starts_no_bisection(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, error: dict[str, int]
) -> None:
    saying(fake, 400, **error)
    outcomes = await meta.send(META.batch(fake), http)
    assert {outcome.category for outcome in outcomes} == {Category.AUTH}
    assert len(fake.calls) == 1


async def test_a_wrong_token_is_named_in_the_error(http: httpx.AsyncClient) -> None:
    with FakeMeta(tokens={"another"}) as fake:
        (outcome,) = await MetaCapi(base_url=fake.url).send(META.batch(fake, 1), http)
    assert (outcome.code, outcome.category) == ("190", Category.AUTH)
    assert "access_token" in str(outcome.message)


@pytest.mark.parametrize(
    "body",
    [{}, {"events_received": 2, "fbtrace_id": "A1"}, {"events_received": 3}, {"events_received": "3"}],
    ids=str,
)
async def test_a_response_without_proof_for_every_event_is_no_success(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    def answer(call: ReceivedRequest) -> Reply:
        return Reply(200, body)

    fake.answer = answer  # type: ignore[method-assign]
    with pytest.raises(ProviderTransientError):
        await meta.send(META.batch(fake), http)


async def test_the_bad_rows_of_a_full_batch_are_found_in_few_requests(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    for order in ("order-17", "order-900"):
        fake.refuse(order, "2804003")
    outcomes = await meta.send(META.batch(fake, 1000), http)
    assert [at for at, each in enumerate(outcomes) if each.verdict is Verdict.FAILED] == [17, 900]
    assert len(fake.accepted) == 998
    assert len(fake.calls) < 45


async def test_a_dry_run_sends_one_sample_event_because_meta_stores_test_events(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    rows = [META.row(0), META.row(1, value=None)]
    outcomes = await meta.send(META.batch(fake, conversions=rows, dry_run=True), http)

    assert [outcome.verdict for outcome in outcomes] == [Verdict.COMPLETED, Verdict.FAILED]
    assert [event["event_name"] for event in fake.tested] == [PROBE]
    (call,) = fake.calls
    assert call.body["test_event_code"] == "TEST4711canary"
    assert rows[0].click_id not in call.raw.decode()


async def test_a_dry_run_without_a_test_event_code_reports_it(
    fake: FakeMeta, meta: MetaCapi, http: httpx.AsyncClient
) -> None:
    batch = META.batch(fake, dry_run=True, credentials={"test_event_code": None})
    outcomes = await meta.send(batch, http)
    assert all("no test_event_code" in str(outcome.message) for outcome in outcomes)
    assert list(fake.calls) == []


async def test_a_dry_run_with_a_bad_token_fails(http: httpx.AsyncClient) -> None:
    with FakeMeta(tokens={"another"}) as fake:
        outcomes = await MetaCapi(base_url=fake.url).send(META.batch(fake, dry_run=True), http)
    assert {outcome.category for outcome in outcomes} == {Category.AUTH}
