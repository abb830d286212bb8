"""The cron routes, and their smoke steps over HTTP against a provider on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.testing._server import ReceivedRequest, Reply
from weighbridge.testing.fake_providers import FakeGoogleAds, Fault

from .conftest import Query
from .delivering import CRON, GOOGLE_ADS, PROCESS, RECOVER, SEED, Service, serving


@pytest.fixture
def fake() -> Iterator[FakeGoogleAds]:
    with FakeGoogleAds() as fake:
        yield fake


@pytest.fixture
async def service(
    database_url: str, home: Path, workspace: UUID, fake: FakeGoogleAds
) -> AsyncIterator[Service]:
    async with serving(database_url, home, workspace, fake.url) as service:
        yield service


async def test_the_specified_smoke_steps(service: Service, fake: FakeGoogleAds, query: Query) -> None:
    # Seeding, then 1. a confirmed sale with a gclid.
    site = await service.seeded()
    [told] = await service.sell(site, "order-1")
    # 2. Its row is QUEUED.
    found = "SELECT status, provider_key, order_id FROM offline_conversion_queue WHERE sale_id = %s"
    assert query(found, (told["sale_id"],)) == [("QUEUED", "google_ads", "order-1")]
    # 3. The worker.
    answer = await service.ask("POST", PROCESS, headers=CRON, params={"limit": 50})
    # 4. Its row is COMPLETED, with proof.
    named = {name: answer[name] for name in ("ok", "processed", "completed", "failed", "retry")}
    assert named == {"ok": True, "processed": 1, "completed": 1, "failed": 0, "retry": 0}
    [shown] = (await service.ask("GET", f"/api/conversions/{told['sale_id']}"))["deliveries"]
    assert shown["sale_id"] == told["sale_id"]
    assert shown["status"] == "COMPLETED"
    assert shown["uploaded_at"]
    assert shown["provider_request_id"]
    assert [entry["phase"] for entry in shown["ledger"]] == ["STARTED", "FINISHED"]
    assert fake.accepted == {"order-1": 1}
    # Nothing is left, and a second run sends nothing.
    assert (await service.ask("POST", PROCESS, headers=CRON))["processed"] == 0


async def test_the_fifth_smoke_step_recovers_the_rows_of_a_dead_worker(
    service: Service, query: Query, clock: Any
) -> None:
    site = await service.seeded()
    await service.sell(site, "order-1", "order-2")
    query("SELECT count(*) FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', 2)", (site,))
    params = {"min_age_minutes": 15}
    assert await service.ask("POST", RECOVER, headers=CRON, params=params) == {"ok": True, "recovered": 0}
    clock.forward(minutes=16)
    assert await service.ask("POST", RECOVER, headers=CRON, params=params) == {"ok": True, "recovered": 2}
    assert query("SELECT DISTINCT status, next_retry_at FROM offline_conversion_queue") == [("RETRY", None)]


class Held(FakeGoogleAds):
    """A provider that does not respond until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.let = threading.Event(), threading.Event()

    def answer(self, call: ReceivedRequest) -> Reply:
        if call.path != "/token":
            self.called.set()
            assert self.let.wait(20)
        return super().answer(call)


async def test_with_one_slot_a_second_worker_gets_concurrency_limit_and_makes_no_call(
    database_url: str, home: Path, workspace: UUID, query: Query
) -> None:
    with Held() as fake:
        try:
            async with serving(
                database_url, home, workspace, fake.url, CONCURRENCY_PER_SITE_PROVIDER=1
            ) as service:
                site = await service.seeded()
                await service.sell(site, "order-1", "order-2")
                first = asyncio.create_task(service.ask("POST", PROCESS, headers=CRON, params={"limit": 1}))
                assert await asyncio.to_thread(fake.called.wait, 20)
                second = await service.ask("POST", PROCESS, headers=CRON, params={"limit": 1})
                assert (second["processed"], second["retry"]) == (1, 1)
                fake.let.set()
                assert (await first)["completed"] == 1
        finally:
            fake.let.set()
        assert fake.accepted == {"order-1": 1}
    [parked] = query(
        "SELECT status, last_error, provider_error_code, provider_error_category,"
        " extract(epoch FROM next_retry_at - updated_at) BETWEEN 30 AND 40"
        " FROM offline_conversion_queue WHERE order_id = 'order-2'"
    )
    assert parked == ("RETRY", "CONCURRENCY_LIMIT: Semaphore full", "CONCURRENCY_LIMIT", "TRANSIENT", True)


async def test_two_runs_at_once_send_each_conversion_once(service: Service, fake: FakeGoogleAds) -> None:
    site = await service.seeded()
    orders = [f"order-{n}" for n in range(20)]
    await service.sell(site, *orders)
    runs = [service.ask("POST", PROCESS, headers=CRON, params={"limit": 10}) for _ in range(2)]
    told = await asyncio.gather(*runs)
    assert sum(each["completed"] for each in told) + sum(each["retry"] for each in told) == 20
    assert set(fake.accepted.values()) == {1}


async def test_the_error_of_the_provider_is_in_the_response(
    service: Service, fake: FakeGoogleAds, query: Query
) -> None:
    site = await service.seeded()
    await service.sell(site, "order-1", "order-2")
    fake.refuse("order-2", "INVALID_GCLID")
    answer = await service.ask("POST", PROCESS, headers=CRON)
    assert (answer["completed"], answer["failed"]) == (1, 1)
    await service.sell(site, "order-3")
    fake.script(Fault.status(503))
    assert (await service.ask("POST", PROCESS, headers=CRON))["retry"] == 1


# Access ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PROCESS, RECOVER, SEED])
async def test_only_the_secret_opens_the_cron_routes(service: Service, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer cron-secret-canar\xfc"},
        {"Authorization": f"Basic {CRON['Authorization'][7:]}"},
        {"X-Api-Key": CRON["Authorization"][7:]},
        {"x-vercel-cron": "1"},
        service.key,  # an admin's
    ):
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = await service.client.post(path, headers=raw, content=b"{")
        assert (answer.status_code, answer.json()["error"]) == (401, "wrong_secret"), headers


async def test_without_a_secret_the_cron_routes_are_closed_and_name_the_setting(
    database_url: str, home: Path, workspace: UUID
) -> None:
    async with serving(database_url, home, workspace, CRON_SECRET=None) as service:
        for path in (PROCESS, RECOVER, SEED):
            for headers in (
                {},
                {"Authorization": "Bearer "},
                {"Authorization": "Bearer x"},
                {"x-vercel-cron": "1"},
            ):
                answer = await service.client.post(path, headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (403, "cron_closed")
                assert "Set CRON_SECRET" in answer.json()["message"]


async def test_the_vercel_header_opens_the_cron_routes_only_if_it_is_trusted(
    database_url: str, home: Path, workspace: UUID
) -> None:
    async with serving(database_url, home, workspace, trust_vercel_cron=True) as service:
        assert await service.ask("POST", RECOVER, headers={"x-vercel-cron": "1"}) == {
            "ok": True,
            "recovered": 0,
        }
        await service.ask("POST", RECOVER, headers={"x-vercel-cron": "0"}, status=401)


@pytest.mark.parametrize("environment", ["production", "Production", None])
async def test_seeding_in_production_is_refused_without_details(
    database_url: str, home: Path, workspace: UUID, query: Query, environment: str | None
) -> None:
    async with serving(database_url, home, workspace, environment=environment) as service:
        site = await service.site()
        body = {"site_id": site, "provider_key": "google_ads", "credentials": GOOGLE_ADS}
        answers = [
            await service.client.post(SEED, headers=CRON, json=body),
            await service.client.post(SEED, headers=CRON, json={**body, "site_id": str(uuid4())}),
            await service.client.post(SEED, headers=CRON, content=b"not json"),
            await service.client.post(SEED, headers={"Authorization": "Bearer wrong"}, json=body),
            await service.client.post(SEED),
        ]
        assert {(each.status_code, each.text) for each in answers} == {(403, answers[0].text)}
        assert answers[0].json()["error"] == "not_in_production"
    assert query("SELECT count(*) FROM provider_credentials") == [(0,)]


async def test_without_the_vault_key_the_cron_routes_name_the_setting(
    database_url: str, home: Path, workspace: UUID
) -> None:
    async with serving(database_url, home, workspace, vault_key=None) as service:
        site = await service.site()
        body = {"site_id": site, "provider_key": "google_ads", "credentials": GOOGLE_ADS}
        for path, sent in ((PROCESS, None), (SEED, body)):
            answer = await service.ask("POST", path, headers=CRON, json=sent, status=503)
            assert answer["error"] == "no_vault_key"
            assert "WEIGHBRIDGE_VAULT_KEY" in answer["message"]
        assert await service.ask("POST", RECOVER, headers=CRON) == {"ok": True, "recovered": 0}


WRONG: list[tuple[Callable[[Any], Any], int, str]] = [
    (lambda body: body | {"site_id": str(uuid4())}, 404, "There is no site"),
    (lambda body: body | {"site_id": "7"}, 422, "site_id: expected a UUID"),
    (lambda body: body | {"provider_key": "google"}, 404, "did you mean 'google_ads'?"),
    (lambda body: body | {"credentials": {}}, 422, "google_ads requires customer_id"),
    (lambda body: body | {"credential": {}}, 422, "expected an object with site_id"),
    (lambda body: [body], 422, "expected an object with site_id"),
]


async def test_the_error_of_an_invalid_seed_names_the_field(service: Service) -> None:
    body = {"site_id": await service.site(), "provider_key": "google_ads", "credentials": GOOGLE_ADS}
    for change, status, said in WRONG:
        answer = await service.ask("POST", SEED, headers=CRON, json=change(body), status=status)
        assert said in answer["message"]
        assert "canary" not in answer["message"]


async def test_limits_are_checked(service: Service) -> None:
    for path, params in (
        (PROCESS, {"limit": 0}),
        (PROCESS, {"limit": 10_001}),
        (RECOVER, {"min_age_minutes": 0}),
    ):
        assert (await service.ask("POST", path, headers=CRON, params=params, status=422))["error"]
