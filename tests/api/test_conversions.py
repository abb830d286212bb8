"""Conversions over HTTP: stored rows, responses and errors; lists and retries."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.api import cursor
from weighbridge.postgres.queries import load
from weighbridge.testing.fake_providers import FakeGoogleAds

from .conftest import Query, new_key
from .delivering import CRON, OCCURRED, PROCESS, Service, serving

URL = "/api/conversions"


@pytest.fixture
async def service(database_url: str, home: Path, workspace: UUID) -> AsyncIterator[Service]:
    async with serving(database_url, home, workspace) as service:
        yield service


async def test_a_conversion_creates_a_sale_and_a_row_for_each_provider_that_accepts_its_click(
    service: Service, query: Query
) -> None:
    site = await service.site("google_ads", "meta_capi", "webhook")
    told = await service.ask("POST", URL, status=202, json=service.one(site))
    assert (told["order_id"], told["site_id"], told["result"]) == ("order-1", site, "created")
    assert [(each["provider"], each["status"]) for each in told["deliveries"]] == [
        ("google_ads", "QUEUED"),
        ("webhook", "QUEUED"),
    ]
    assert query("SELECT id::text, gclid, value, currency, status, site_id = client_id FROM sales") == [
        (told["sale_id"], "gclid-canary-order-1", 12.5, "EUR", "CONFIRMED", True)
    ]


async def test_a_repeated_conversion_is_a_duplicate_and_a_changed_one_is_an_update(
    service: Service, query: Query
) -> None:
    site = await service.site()
    await service.sell(site, "order-1", "order-2")
    body = {"conversions": [service.one(site, "order-1"), service.one(site, "order-2") | {"value": "13.75"}]}
    body["conversions"].append(service.one(site, "order-3"))
    told = (await service.ask("POST", URL, status=202, json=body))["conversions"]
    assert [each["result"] for each in told] == ["duplicate", "updated", "created"]
    assert [len(each["deliveries"]) for each in told] == [1, 1, 1]
    values = "SELECT order_id, value FROM offline_conversion_queue ORDER BY order_id"
    assert query(values) == [("order-1", 12.5), ("order-2", 13.75), ("order-3", 12.5)]


async def test_an_update_keeps_fields_that_it_does_not_contain(service: Service, query: Query) -> None:
    site = await service.site()
    early = {
        "clicked_at": (OCCURRED.replace(minute=0, second=0, microsecond=0)).isoformat(),
        "email": "a@b.de",
    }
    await service.sell(site, "order-1", **early)
    later = {name: service.one(site)[name] for name in ("site_id", "order_id", "gclid")}
    later["occurred_at"] = OCCURRED.replace(
        year=OCCURRED.year - 1, day=1
    ).isoformat()  # before the click, now
    assert (await service.ask("POST", URL, status=202, json=later))["result"] == "updated"
    assert query("SELECT value, clicked_at, user_data ? 'email' FROM sales") == [(12.5, None, True)]


async def test_a_sale_without_an_order_id_is_identified_by_click_and_time(service: Service) -> None:
    site = await service.site()
    body = {name: value for name, value in service.one(site).items() if name != "order_id"}
    first = await service.ask("POST", URL, status=202, json=body)
    again = await service.ask("POST", URL, status=202, json=body)
    assert first["order_id"].startswith("wb-")
    assert len(first["order_id"]) == 35
    assert (again["order_id"], again["result"]) == (first["order_id"], "duplicate")


async def test_personal_data_is_hashed_and_stored_nowhere_else(
    service: Service, query: Query, capfd: pytest.CaptureFixture[str]
) -> None:
    site = await service.site()
    people = {"email": "Canary.Person@Gmail.com ", "phone": "+49 170 1234567"}
    told = await service.ask("POST", URL, status=202, json=service.one(site) | people)
    shown = await service.ask("GET", f"{URL}/{told['sale_id']}")
    listed = await service.ask("GET", URL)
    [(kept,)] = query("SELECT user_data FROM sales")
    assert set(kept) == {"email", "email_google", "phone", "phone_digits"}
    everything = (
        json.dumps([told, shown, listed, query("SELECT s::text FROM sales s")]) + capfd.readouterr().err
    )
    assert "person" not in everything.lower()
    assert "1234567" not in everything
    assert "gclid-canary" not in json.dumps([told, shown, listed])
    assert not any(digest in json.dumps([shown, listed]) for digest in kept.values())


async def test_an_invalid_conversion_refuses_the_request_and_is_named_by_its_position(
    service: Service, query: Query
) -> None:
    """Other errors are tested in tests/deliver/test_convert.py."""
    site = await service.site()
    for change, code, said in (
        ({"value": -1}, "invalid_value", "value: expected a number of at least 0"),
        ({"site_id": str(uuid4())}, "unknown_site", "POST /api/sites"),
    ):
        wrong = service.one(site, "order-2") | change
        body = {"conversions": [service.one(site), wrong, service.one(site, "order-3")]}
        answer = await service.ask("POST", URL, status=422, json=body)
        assert answer["error"] == code
        assert said in answer["message"]
        assert answer["message"].startswith("conversions[1].")
        assert query("SELECT count(*) FROM sales") == [(0,)]
        assert (await service.ask("POST", URL, status=422, json=wrong))["error"] == code


BODIES = [
    (b"{", 422, "expected JSON"),
    (b"[]", 422, "body: expected a JSON object"),
    (b'{"conversions": {}}', 422, "conversions: expected a list of 1 to 1000"),
    (b'{"conversions": []}', 422, "got 0"),
    (b'{"conversions": [7]}', 422, "conversions[0]: expected a JSON object"),
    (b'{"conversions": [], "site_id": "x"}', 422, "either one conversion or a list"),
    (b'{"conversions": [' + b"{}," * 1000 + b"{}]}", 422, "got 1001"),
    (b"[" * 100_000, 422, "expected JSON"),
    (b" " * (8 * 2**20 + 1), 413, "at most 8 MB"),
]


async def test_a_body_of_another_format_is_refused(service: Service) -> None:
    for body, status, said in BODIES:
        assert said in (await service.ask("POST", URL, status=status, content=body))["message"]


async def test_an_order_twice_in_one_request_is_refused(service: Service) -> None:
    site = await service.site()
    body = {"conversions": [service.one(site), service.one(site)]}
    answer = await service.ask("POST", URL, status=422, json=body)
    assert (answer["error"], "conversions[0]" in answer["message"]) == ("repeated_order", True)


async def test_another_workspace_sees_and_sends_nothing(service: Service) -> None:
    site = await service.site()
    [told] = await service.sell(site, "order-1")
    other = await new_key(service.app.db, uuid4(), ("admin",))
    answer = await service.ask("POST", URL, status=422, headers=other, json=service.one(site))
    assert answer["error"] == "unknown_site"
    assert (await service.ask("GET", URL, headers=other))["conversions"] == []
    await service.ask("GET", f"{URL}/{told['sale_id']}", headers=other, status=404)
    await service.ask("GET", f"{URL}/{told['sale_id']}")
    assert (await service.ask("GET", "/api/providers", headers=other))["groups"] == []
    body = {"site_id": site}
    assert (await service.ask("POST", f"{URL}/retry", headers=other, json=body)) == {"requeued": 0}


async def test_the_site_of_a_file_must_precede_it_in_the_form(service: Service, query: Query) -> None:
    content = f"Order ID,Conversion Time,GCLID\norder-1,{OCCURRED.isoformat()},abc\n".encode()
    for data, code, said in (
        ({}, "missing_site", "Send the fields before the files."),
        ({"client_id": str(uuid4())}, "unknown_site", "POST /api/sites"),
    ):
        answer = await service.ask(
            "POST",
            "/api/uploads",
            status=422,
            data={"pipeline": "conversions", **data},
            files={"file": ("leads.csv", content)},
        )
        assert (answer["error"], said in answer["message"]) == (code, True)
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]


# Lists and retries -----------------------------------------------------------------------------------------


async def _pages(service: Service, **params: Any) -> list[str]:
    """Order ids of all pages, two at a time."""
    found: list[str] = []
    before = None
    while True:
        more = {} if before is None else {"before": before}
        page = await service.ask("GET", URL, params={"limit": 2, **params, **more})
        found += [each["order_id"] for each in page["conversions"]]
        before = page["next"]
        if before is None:
            return found


async def test_pages_list_every_conversion_once_newest_first(service: Service, query: Query) -> None:
    site, other = await service.site(), await service.site("webhook", name="Other")
    for n in range(5):
        await service.sell(site, f"order-{n}")
    await service.sell(other, "other-0", "other-1")
    assert await _pages(service, site_id=site) == [f"order-{n}" for n in (4, 3, 2, 1, 0)]
    everything = await _pages(service)
    assert everything[2:] == [f"order-{n}" for n in (4, 3, 2, 1, 0)]
    assert set(everything[:2]) == {"other-0", "other-1"}
    assert sorted(await _pages(service, provider="webhook")) == ["other-0", "other-1"]
    waiting = await _pages(service, status="QUEUED", site_id=site)
    assert waiting == [f"order-{n}" for n in range(5)]  # as they are sent
    query(
        "UPDATE offline_conversion_queue SET status = 'RETRY', provider_error_category = 'TRANSIENT',"
        " next_retry_at = now() - interval '1 hour' WHERE order_id < 'order-3'"
    )
    assert await _pages(service, status="RETRY", category="TRANSIENT") == ["order-0", "order-1", "order-2"]
    query(
        "UPDATE offline_conversion_queue SET status = 'PROCESSING', claimed_at = now() WHERE order_id = 'order-3'"
    )
    assert await _pages(service, status="PROCESSING") == ["order-3"]
    query(
        "UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_category = 'AUTH', updated_at = now()"
        " - right(order_id, 1)::int * interval '1 minute' WHERE site_id = %s",
        (site,),
    )
    assert await _pages(service, status="FAILED") == [f"order-{n}" for n in range(5)]
    assert await _pages(service, status="FAILED", category="VALIDATION") == []
    query(
        "UPDATE offline_conversion_queue SET status = 'COMPLETED', uploaded_at = now() WHERE status = 'FAILED'"
    )
    assert sorted(await _pages(service, status="COMPLETED")) == [f"order-{n}" for n in range(5)]


async def test_an_order_is_found_in_all_sites_or_in_one(service: Service) -> None:
    site, other = await service.site("google_ads", "webhook"), await service.site("webhook", name="Other")
    await service.sell(site, "order-1", "order-2")
    await service.sell(other, "order-1")
    assert await _pages(service, order_id="order-1") == ["order-1"] * 3
    assert await _pages(service, order_id="order-1", status="QUEUED") == ["order-1"] * 3
    assert await _pages(service, order_id="order-1", site_id=site, provider="webhook") == ["order-1"]
    for params in ({"order_id": "order"}, {"order_id": "order-2", "site_id": other}):
        assert await _pages(service, **params) == []
    assert await _pages(service, order_id="order-1", status="FAILED") == []
    for wrong in ("", "o" * 201, "order\0"):
        await service.ask("GET", URL, params={"order_id": wrong}, status=422)
    stranger = await new_key(service.app.db, uuid4(), ("admin",))
    found = await service.ask("GET", URL, params={"order_id": "order-1"}, headers=stranger)
    assert found["conversions"] == []


async def test_an_invalid_cursor_is_refused(service: Service) -> None:
    words = ("x", cursor.write("now", "x", uuid4()), cursor.write("2026-W01-1", "x", uuid4()))
    for status, word in product((None, "QUEUED", "FAILED", "PROCESSING"), words):
        params = {"before": word} | ({"status": status} if status else {})
        answer = await service.ask("GET", URL, params=params, status=422)
        assert "expected the `next` value of the previous page" in answer["message"]


async def test_a_page_costs_the_same_however_many_conversions_there_are(
    service: Service, query: Query
) -> None:
    """The plan of each page walks an index: no scan, and no sort of more than a group's head."""
    site = await service.site()
    query(
        "INSERT INTO sales (workspace_id, site_id, client_id, order_id, occurred_at, gclid)"
        " SELECT %s, %s, %s, 'o' || n, now(), 'g' FROM generate_series(1, 20000) n",
        (service.workspace, site, site),
    )
    query("UPDATE offline_conversion_queue SET status = 'FAILED' WHERE right(order_id, 1) = '1'")
    query("ANALYZE sales, offline_conversion_queue, sites")
    params = dict.fromkeys(("site", "provider", "category", "moment", "tiebreaker", "sale", "key"))
    for name in ("recent_conversions", "failed_conversions", "waiting_conversions"):
        plan = query(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {load('weighbridge.delivery.conversions')[name]}",
            {**params, "workspace": service.workspace, "status": "QUEUED", "limit": 51},
        )[0][0][0]["Plan"]
        assert _rows(plan) < 1000, name
    for name, place in product(("ordered_conversions", "sales_of_order"), (None, site)):
        plan = query(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {load('weighbridge.delivery.conversions')[name]}",
            {
                **params,
                "workspace": service.workspace,
                "site": place,
                "status": None,
                "order": "o7",
                "limit": 51,
            },
        )[0][0][0]["Plan"]
        assert _rows(plan) < 10, name


def _rows(plan: dict[str, Any]) -> float:
    """The most rows that any step of a plan had in its hands."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return max([own * 1.0, *(_rows(each) for each in plan.get("Plans", ()))])


async def test_failed_conversions_are_retried_by_id_or_by_filter(
    database_url: str, home: Path, workspace: UUID, query: Query
) -> None:
    with FakeGoogleAds() as fake:
        async with serving(database_url, home, workspace, fake.url) as service:
            site = await service.seeded()
            await service.sell(site, "order-1", "order-2", "order-3")
            for n in (1, 2, 3):
                fake.refuse(f"order-{n}", "INVALID_GCLID")
            assert (await service.ask("POST", PROCESS, headers=CRON))["failed"] == 3
            failed = (await service.ask("GET", URL, params={"status": "FAILED", "category": "VALIDATION"}))[
                "conversions"
            ]
            assert {each["provider_error_code"] for each in failed} == {"INVALID_GCLID"}
            assert all("canary" not in each["last_error"] for each in failed)
            retry = f"{URL}/retry"
            for wish, count in (
                ({"sale_ids": [failed[0]["sale_id"]]}, 1),
                ({"category": "AUTH"}, 0),
                ({"sale_ids": []}, 0),
                ({"site_id": site, "provider": "google_ads", "code": "INVALID_GCLID"}, 2),
            ):
                assert await service.ask("POST", retry, json=wish) == {"requeued": count}
            for n in (1, 2, 3):
                fake.refuse(f"order-{n}")
            assert (await service.ask("POST", PROCESS, headers=CRON))["completed"] == 3
            assert set(fake.accepted.values()) == {1}
            for wish in ({}, {"site_id": None}, {"site": site}):
                assert (await service.ask("POST", retry, json=wish, status=422))["error"] == "invalid_request"
    assert query("SELECT count(*) FROM weighbridge.audit_log WHERE action = 'deliveries.requeue'") == [(2,)]
