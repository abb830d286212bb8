"""Behaviour that only TikTok has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest

from tests.providers.cases import NOW, TIKTOK
from weighbridge.delivery.providers.tiktok_events import PROBE, TikTokEvents
from weighbridge.model.delivery import Category, ProviderRateLimitError, ProviderTransientError, Verdict
from weighbridge.testing import FakeTikTok
from weighbridge.testing._server import Reply


@pytest.fixture
def fake() -> Iterator[FakeTikTok]:
    with FakeTikTok() as server:
        yield server


@pytest.fixture
def tiktok(fake: FakeTikTok) -> TikTokEvents:
    return TikTokEvents(base_url=fake.url)


async def test_an_event_is_as_documented(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    row = TIKTOK.row(1)
    await tiktok.send(TIKTOK.batch(fake, conversions=[row]), http)

    (call,) = fake.calls
    assert call.path == "/open_api/v1.3/event/track/"
    assert call.headers["access-token"] == "TOKENcanary"
    assert call.body == {
        "event_source": "offline",
        "event_source_id": "7654321098765432109",
        "data": [
            {
                "event": "Purchase",
                "event_time": int(row.occurred_at.timestamp()),
                "event_id": "order-1",
                "user": {
                    "ttclid": row.click_id,
                    "email": row.user_data["email"],
                    "phone": row.user_data["phone"],
                },
                "properties": {"order_id": "order-1", "value": 19.99, "currency": "EUR"},
            }
        ],
    }


async def test_a_pixels_events_are_web_events(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    pixel = {"event_set_id": None, "pixel_code": "C0PIXEL", "event_name": "CompletePayment"}
    await tiktok.send(TIKTOK.batch(fake, 1, credentials=pixel), http)
    body = fake.calls[0].body
    assert (body["event_source"], body["event_source_id"]) == ("web", "C0PIXEL")
    assert body["data"][0]["event"] == "CompletePayment"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"event_set_id": None}, "'pixel_code'"),
        ({"pixel_code": "C0PIXEL"}, "both"),
        ({"event_source": "app"}, "event_source"),
    ],
)
async def test_credentials_that_tiktok_would_refuse_are_refused(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient, wrong: dict[str, str], named: str
) -> None:
    (outcome,) = await tiktok.send(TIKTOK.batch(fake, 1, credentials=wrong), http)
    assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.AUTH)
    assert named in str(outcome.message)
    assert list(fake.calls) == []


async def test_rows_that_cannot_be_matched_are_not_sent(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    rows = [
        TIKTOK.row(0, occurred_at=NOW - timedelta(days=28, seconds=1)),
        TIKTOK.row(1, click_type="gclid", user_data={}),
        TIKTOK.row(2, click_type="gclid", value=None, currency=None),
        TIKTOK.row(3, value=Decimal("Infinity")),
    ]
    outcomes = await tiktok.send(TIKTOK.batch(fake, conversions=rows), http)
    assert [outcome.code for outcome in outcomes] == ["EXPIRED", "NO_MATCH_KEY", None, "VALUE"]
    assert fake.accepted == {"order-2": 1}


async def test_20001_without_failed_events_is_a_success(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    fake.say(20001)
    outcomes = await tiktok.send(TIKTOK.batch(fake), http)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.COMPLETED}


async def test_events_missing_from_a_partial_success_are_found(http: httpx.AsyncClient) -> None:
    with FakeTikTok(partly=True) as fake:
        fake.refuse("order-5", "ttclid")
        outcomes = await TikTokEvents(base_url=fake.url).send(TIKTOK.batch(fake, 8), http)

    assert [at for at, each in enumerate(outcomes) if each.verdict is Verdict.FAILED] == [5]
    assert fake.accepted == {f"order-{at}": 1 for at in range(8) if at != 5}


@pytest.mark.parametrize("code", [40001, 40101, 40102, 40104, 40105, 40110])
async def test_200_with_an_access_code_fails_all_rows_at_once(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient, code: int
) -> None:
    fake.say(code)
    outcomes = await tiktok.send(TIKTOK.batch(fake), http)
    assert {(each.verdict, each.category, each.code) for each in outcomes} == {
        (Verdict.FAILED, Category.AUTH, str(code))
    }
    assert len(fake.calls) == 1


@pytest.mark.parametrize("code", [40002, 40007, 40900])
async def test_200_with_a_refusal_code_fails(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient, code: int
) -> None:
    fake.say(code)
    (outcome,) = await tiktok.send(TIKTOK.batch(fake, 1), http)
    assert (outcome.verdict, outcome.category, outcome.code) == (
        Verdict.FAILED,
        Category.VALIDATION,
        str(code),
    )


async def test_200_with_the_throttling_code_is_a_rate_limit(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    fake.say(40100)
    with pytest.raises(ProviderRateLimitError):
        await tiktok.send(TIKTOK.batch(fake), http)


@pytest.mark.parametrize("code", [40700, 50000, 50002, 51010, 60001, 7, -1])
async def test_200_with_a_temporary_code_is_retried(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient, code: int
) -> None:
    fake.say(code)
    with pytest.raises(ProviderTransientError) as raised:
        await tiktok.send(TIKTOK.batch(fake), http)
    assert raised.value.code == str(code)


@pytest.mark.parametrize(
    "body", [{}, {"code": "0", "request_id": "R"}, {"code": 0}, {"code": 0, "request_id": ""}]
)
async def test_a_response_without_code_or_proof_is_no_success(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient, body: dict[str, object]
) -> None:
    fake.answer = lambda call: Reply(200, body)  # type: ignore[method-assign]
    with pytest.raises(ProviderTransientError):
        await tiktok.send(TIKTOK.batch(fake), http)


async def test_a_dry_run_sends_one_sample_event(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    outcomes = await tiktok.send(TIKTOK.batch(fake, dry_run=True), http)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.COMPLETED}
    assert [event["event"] for event in fake.tested] == [PROBE]
    (call,) = fake.calls
    assert "CLICK" not in call.raw.decode()


async def test_a_dry_run_without_a_test_event_code_reports_it(
    fake: FakeTikTok, tiktok: TikTokEvents, http: httpx.AsyncClient
) -> None:
    outcomes = await tiktok.send(
        TIKTOK.batch(fake, dry_run=True, credentials={"test_event_code": None}), http
    )
    assert all("no test_event_code" in str(outcome.message) for outcome in outcomes)
    assert list(fake.calls) == []


async def test_a_dry_run_with_a_bad_token_fails(http: httpx.AsyncClient) -> None:
    with FakeTikTok(tokens={"another"}) as fake:
        outcomes = await TikTokEvents(base_url=fake.url).send(TIKTOK.batch(fake, dry_run=True), http)
    assert {(outcome.category, outcome.code) for outcome in outcomes} == {(Category.AUTH, "40105")}
