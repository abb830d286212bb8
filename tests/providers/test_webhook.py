"""Behaviour that only webhooks have: signatures, one message per conversion, and the allowed URLs."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from tests.providers.cases import WEBHOOK
from weighbridge.delivery.providers import addresses
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.providers.webhook import AT_ONCE, MAX_FAILED_MESSAGES, Webhook
from weighbridge.model.delivery import Category, ProviderTransientError, Verdict
from weighbridge.settings import Settings
from weighbridge.testing import FakeWebhook, Fault
from weighbridge.testing._server import Reply
from weighbridge.testing._webhook import SECRET

OLD = "whsec_" + base64.b64encode(b"an older secret of 24 by").decode()
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def right_now() -> None:
    """The verifying package uses the machine's clock, and accepts no message older than five minutes."""
    global NOW
    NOW = datetime.now(UTC)


@pytest.fixture
def fake() -> Iterator[FakeWebhook]:
    with FakeWebhook() as server:
        server.clock = NOW.timestamp
        yield server


@pytest.fixture
def webhook() -> Webhook:
    return Webhook(allow_private=True)


async def test_the_reference_implementation_verifies_a_message(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    row = WEBHOOK.row(1)
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, conversions=[row], now=NOW), http)

    (call,) = fake.calls
    assert Verifier(SECRET).verify(call.raw, dict(call.headers)) == {
        "type": "conversion",
        "timestamp": row.occurred_at.isoformat(),
        "data": {
            "order_id": "order-1",
            "click_type": "gclid",
            "click_id": row.click_id,
            "occurred_at": row.occurred_at.isoformat(),
            "value": "19.99",
            "currency": "EUR",
            "user_data": row.user_data,
        },
    }
    assert outcome.request_id == call.headers["webhook-id"]
    assert call.path == "/in/PATHcanary"
    assert call.headers["content-type"] == "application/json"


async def test_a_message_sent_again_later_has_the_same_id_and_body(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    row = WEBHOOK.row(1)
    for minutes in (0, 4):
        batch = WEBHOOK.batch(fake, conversions=[row], now=NOW + timedelta(minutes=minutes))
        await webhook.send(batch, http)

    first, again = fake.calls
    assert (first.headers["webhook-id"], first.raw) == (again.headers["webhook-id"], again.raw)
    assert first.headers["webhook-timestamp"] != again.headers["webhook-timestamp"]
    assert fake.accepted == {"order-1": 1}


async def test_two_sites_with_the_same_order_id_are_two_messages(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    batch = WEBHOOK.batch(fake, 1, now=NOW)
    await webhook.send(batch, http)
    await webhook.send(replace(batch, site_id=uuid4()), http)
    assert fake.accepted == {"order-0": 2}


async def test_during_a_change_of_secret_both_secrets_sign(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    secrets = f"{SECRET} {OLD}"
    await webhook.send(WEBHOOK.batch(fake, 1, now=NOW, credentials={"secret": secrets}), http)

    (call,) = fake.calls
    for secret in (SECRET, OLD):
        Verifier(secret).verify(call.raw, dict(call.headers))
    assert call.headers["webhook-signature"].count("v1,") == 2


async def test_a_receiver_with_another_secret_refuses(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW, credentials={"secret": OLD}), http)
    assert (outcome.code, outcome.category) == ("HTTP_401", Category.AUTH)
    assert fake.accepted == {}


async def test_a_message_that_is_too_old_is_refused_by_the_fake(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW - timedelta(minutes=6)), http)
    assert outcome.code == "HTTP_401"


@pytest.mark.parametrize(
    "secret", ["whsec_canary!", "whsec_AAAA", "whsec_c2hvcnQ=", f"{SECRET} whsec_§canary", "hunter2"]
)
async def test_an_invalid_secret_is_refused_and_not_repeated(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, secret: str
) -> None:
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, credentials={"secret": secret}), http)
    assert (outcome.code, outcome.category) == ("CREDENTIALS", Category.AUTH)
    assert "secret" in str(outcome.message)
    assert secret not in str(outcome.message)
    assert list(fake.calls) == []


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_any_2xx_is_a_success_whatever_the_body(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, status: int
) -> None:
    fake.error = lambda call, status: Reply(status, b"<html>thanks</html>" if status != 204 else None)  # type: ignore[method-assign]
    fake.script(Fault.status(status))
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http)
    assert outcome.verdict is Verdict.COMPLETED


async def test_an_endpoint_that_answers_410_gets_no_more_messages(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.status(410)] * 20)
    outcomes = await webhook.send(WEBHOOK.batch(fake, 20, now=NOW), http)
    assert {(each.verdict, each.code, each.category) for each in outcomes} == {
        (Verdict.FAILED, "GONE", Category.AUTH)
    }
    assert "no longer exists" in str(outcomes[0].message)
    assert len(fake.calls) == AT_ONCE


@pytest.mark.parametrize(("status", "code"), [(404, "HTTP_404"), (422, "HTTP_422"), (413, "HTTP_413")])
async def test_other_refusals_fail_permanently(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, status: int, code: str
) -> None:
    fake.script(Fault.status(status))
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http)
    assert (outcome.verdict, outcome.code, outcome.category) == (Verdict.FAILED, code, Category.VALIDATION)


@pytest.mark.parametrize("status", [301, 308])
async def test_a_permanent_redirect_fails_and_is_not_followed(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, status: int
) -> None:
    fake.error = lambda call, status: Reply(status, {}, {"location": f"{fake.url}/elsewhere"})  # type: ignore[method-assign]
    fake.script(Fault.status(status))
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http)
    assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.AUTH)
    assert [call.path for call in fake.calls] == ["/in/PATHcanary"]


@pytest.mark.parametrize("status", [302, 307, 408])
async def test_a_temporary_redirect_is_retried(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, status: int
) -> None:
    fake.script(Fault.status(status))
    with pytest.raises(ProviderTransientError):
        await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http)


async def test_a_failed_message_does_not_affect_the_others(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    fake.script(Fault.status(500))
    outcomes = await webhook.send(WEBHOOK.batch(fake, 20, now=NOW), http)
    found = [outcome.verdict for outcome in outcomes]
    assert (found.count(Verdict.RETRY), found.count(Verdict.COMPLETED)) == (1, 19)


async def test_a_rate_limit_ends_the_round(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.status(429, retry_after=30)] * 20)
    outcomes = await webhook.send(WEBHOOK.batch(fake, 20, now=NOW), http)
    assert {(each.verdict, each.category, each.retry_after) for each in outcomes} == {
        (Verdict.RETRY, Category.RATE_LIMIT, timedelta(seconds=30))
    }
    assert [each.counts for each in outcomes] == [True] * AT_ONCE + [False] * (20 - AT_ONCE)
    assert len(fake.calls) == AT_ONCE


async def test_an_unreachable_endpoint_does_not_delay_a_whole_batch(
    fake: FakeWebhook, webhook: Webhook, hasty: httpx.AsyncClient
) -> None:
    fake.script(*[Fault.hang()] * 40)
    outcomes = await webhook.send(WEBHOOK.batch(fake, 40, now=NOW), hasty)
    assert {(each.verdict, each.code) for each in outcomes} == {(Verdict.RETRY, "TIMEOUT")}
    sent = [each.counts for each in outcomes].count(True)
    assert MAX_FAILED_MESSAGES <= sent < AT_ONCE + MAX_FAILED_MESSAGES  # the messages in flight at that time
    assert len(fake.calls) <= sent


async def test_no_message_is_started_that_would_exceed_the_time_of_the_call(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    outcomes = await webhook.send(WEBHOOK.batch(fake, 20, now=NOW, deadline=monotonic()), http)
    assert (outcomes[0].verdict, outcomes[0].counts) == (
        Verdict.COMPLETED,
        True,
    )  # one message is always started
    assert {(each.verdict, each.code, each.counts) for each in outcomes[1:]} == {
        (Verdict.RETRY, "NOT_SENT", False)
    }
    assert fake.accepted == {"order-0": 1}


async def test_all_messages_are_started_while_there_is_time(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    outcomes = await webhook.send(WEBHOOK.batch(fake, 20, now=NOW, deadline=monotonic() + 600), http)
    assert {each.verdict for each in outcomes} == {Verdict.COMPLETED}


@pytest.mark.parametrize("packed", [False, True])
async def test_a_long_response_of_a_receiver_is_not_read(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, packed: bool
) -> None:
    said = gzip.compress(bytes(1 << 20)) if packed else bytes(1 << 20)
    headers = {"content-encoding": "gzip"} if packed else {}
    fake.error = lambda call, status: Reply(status, said, headers)  # type: ignore[method-assign]
    fake.script(Fault.status(200), Fault.status(422))
    taken, refused = [(await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http))[0] for _ in range(2)]
    assert (taken.verdict, refused.code) == (Verdict.COMPLETED, "HTTP_422")


def test_a_full_batch_of_slow_messages_ends_before_the_lease() -> None:
    settings = Settings.model_fields
    rounds = Webhook.max_batch / AT_ONCE
    lease = settings["semaphore_ttl_ms"].default / 1000
    assert rounds * settings["provider_seconds"].default < lease * 0.75


async def test_a_dry_run_sends_nothing_and_reports_it(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient
) -> None:
    outcomes = await webhook.send(WEBHOOK.batch(fake, dry_run=True), http)
    assert all("not sent" in str(outcome.message) for outcome in outcomes)
    assert list(fake.calls) == []


# Allowed URLs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/canary",
        "file:///etc/canary",
        "https://canary:canary@example.com/",
        "https:///canary",
        "canary",
        "http://[canary",
        "http://example.com:canary/",
    ],
)
async def test_an_invalid_url_is_refused_and_not_repeated(
    fake: FakeWebhook, webhook: Webhook, http: httpx.AsyncClient, url: str
) -> None:
    (outcome,) = await webhook.send(WEBHOOK.batch(fake, 1, credentials={"url": url}), http)
    assert (outcome.code, outcome.category) == ("CREDENTIALS", Category.AUTH)
    assert "url" in str(outcome.message)
    assert "canary" not in str(outcome.message)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
     "[::1]", "[fe80::1]", "[fc00::1]", "[fec0::1]", "[::ffff:127.0.0.1]", "[::ffff:10.1.2.3]", "[::ffff:0:10.1.2.3]",
     "[::ffff:0:127.0.0.1]", "[::127.0.0.1]", "[::8.8.8.8]", "[64:ff9b::127.0.0.1]", "[64:ff9b::8.8.8.8]",
     "[64:ff9b:1::1]", "[2002:7f00:1::]", "2130706433", "0x7f000001", "127.1"],
)  # fmt: skip
async def test_an_address_in_a_private_network_is_refused(
    fake: FakeWebhook, http: httpx.AsyncClient, host: str
) -> None:
    url = f"http://{host}:{fake.url.rpartition(':')[2]}/"
    outcomes = await Webhook().send(WEBHOOK.batch(fake, now=NOW, credentials={"url": url}), http)
    assert {(each.verdict, each.code, each.category) for each in outcomes} == {
        (Verdict.FAILED, "PRIVATE_ADDRESS", Category.AUTH)
    }
    assert list(fake.calls) == []


async def test_only_a_host_that_is_allowed_by_name_is_reached(
    fake: FakeWebhook, http: httpx.AsyncClient
) -> None:
    webhook = Webhook(allow_private={"127.0.0.1"})
    (reached,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW), http)
    assert reached.verdict is Verdict.COMPLETED
    url = fake.url.replace("127.0.0.1", "localhost")
    (refused,) = await webhook.send(WEBHOOK.batch(fake, 1, now=NOW, credentials={"url": url}), http)
    assert refused.code == "PRIVATE_ADDRESS"


async def test_a_host_name_that_resolves_differently_at_connection_time_is_refused(
    fake: FakeWebhook, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def public(host: str) -> bool:
        return True  # as at the first lookup

    monkeypatch.setattr(addresses, "is_public", public)
    (outcome,) = await Webhook().send(WEBHOOK.batch(fake, 1, now=NOW), http)
    assert outcome.code == "PRIVATE_ADDRESS"
    assert list(fake.calls) == []


async def test_a_public_address_is_not_refused(http: httpx.AsyncClient) -> None:
    assert await addresses.is_public("93.184.216.34")
    assert await addresses.is_public("2606:4700:4700::1111")
    assert await addresses.is_public("::ffff:93.184.216.34")
    assert not await addresses.is_public("224.0.0.1")


async def test_an_unknown_host_name_is_a_temporary_failure(
    fake: FakeWebhook, http: httpx.AsyncClient
) -> None:
    batch = WEBHOOK.batch(fake, credentials={"url": "https://canary.invalid/"})
    with pytest.raises(ProviderTransientError) as raised:
        await Webhook().send(batch, http)
    assert "canary" not in str(raised.value)


async def test_an_operator_can_send_all_messages_to_another_url(
    fake: FakeWebhook, http: httpx.AsyncClient
) -> None:
    batch = WEBHOOK.batch(fake, 1, now=NOW, credentials={"url": "https://example.com/"})
    (outcome,) = await Webhook(base_url=f"{fake.url}/all").send(batch, http)
    assert outcome.verdict is Verdict.COMPLETED
    assert [call.path for call in fake.calls] == ["/all"]


# Events -----------------------------------------------------------------------------------------------------


async def announce(fake: FakeWebhook, http: httpx.AsyncClient, **more: Any):  # type: ignore[no-untyped-def]
    credentials = Credentials({"url": fake.url, "secret": SECRET})
    payload = {"upload_id": uuid4(), "rows": 3}
    webhook = Webhook(**more)
    return await webhook.announce(http, credentials, "evt_7", "ingestion.complete", payload, NOW)


async def test_an_event_is_sent_once_per_id(fake: FakeWebhook, http: httpx.AsyncClient) -> None:
    for _ in range(2):
        outcome = await announce(fake, http, allow_private=True)
        assert (outcome.verdict, outcome.request_id) == (Verdict.COMPLETED, "evt_7")
    call = fake.calls[0]
    body = Verifier(SECRET).verify(call.raw, dict(call.headers))
    assert (body["type"], body["data"]["rows"]) == ("ingestion.complete", 3)
    assert json.loads(call.raw)["timestamp"] == NOW.isoformat()
    assert fake.accepted == {"evt_7": 1}


async def test_the_same_rules_apply_to_an_event(fake: FakeWebhook, http: httpx.AsyncClient) -> None:
    assert (await announce(fake, http)).code == "PRIVATE_ADDRESS"
    fake.script(Fault.status(503, retry_after=9))
    with pytest.raises(ProviderTransientError) as raised:
        await announce(fake, http, allow_private=True)
    assert raised.value.retry_after == timedelta(seconds=9)
