"""Sites, their credentials, and their status with each provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.delivery.vault import Sealed

from .conftest import Query, new_key
from .delivering import CRON, GOOGLE_ADS, PROCESS, Service, serving


@pytest.fixture
async def service(database_url: str, home: Path, workspace: UUID) -> AsyncIterator[Service]:
    async with serving(database_url, home, workspace) as service:
        yield service


async def test_a_site_is_created_listed_and_changed(service: Service) -> None:
    made = await service.ask("POST", "/api/sites", status=201, json={"name": "Shop"})
    assert (made["name"], made["providers"]) == ("Shop", ["google_datamanager"])
    taken = await service.ask("POST", "/api/sites", status=409, json={"name": "Shop"})
    assert taken["error"] == "site_exists"
    await service.site(name="Blog")
    url = f"/api/sites/{made['site_id']}"
    changed = await service.ask("PATCH", url, json={"providers": ["webhook", "google_ads", "webhook"]})
    assert (changed["name"], changed["providers"]) == ("Shop", ["google_ads", "webhook"])
    assert (await service.ask("PATCH", url, json={"name": "Blog"}, status=409))["error"] == "site_exists"
    assert (await service.ask("PATCH", url, json={"name": "Store"}))["providers"] == ["google_ads", "webhook"]
    first = await service.ask("GET", "/api/sites", params={"limit": 1})
    second = await service.ask("GET", "/api/sites", params={"limit": 1, "after": first["next"]})
    assert [each["sites"][0]["name"] for each in (first, second)] == ["Blog", "Store"]
    assert second["next"] is None


async def test_an_unknown_provider_is_named_in_the_error(service: Service) -> None:
    body = {"name": "Shop", "providers": ["google_adds"]}
    answer = await service.ask("POST", "/api/sites", status=422, json=body)
    assert answer["error"] == "unknown_provider"
    assert "expected one of google_ads, google_datamanager" in answer["message"]
    assert "did you mean 'google_ads'?" in answer["message"]
    site = await service.site()
    await service.ask("PATCH", f"/api/sites/{site}", status=422, json={"providers": ["x"]})
    for name in ("", "a\u0000b", "a" * 201):
        await service.ask("POST", "/api/sites", status=422, json={"name": name})


async def test_the_site_of_another_workspace_is_not_found(service: Service, query: Query) -> None:
    site = await service.site()
    other = await new_key(service.app.db, uuid4(), ("admin",))
    body = {"credentials": GOOGLE_ADS}
    for method, path, more in (
        ("PATCH", "", {"json": {"name": "Mine"}}),
        ("PUT", "/credentials/google_ads", {"json": body}),
        ("DELETE", "/credentials/google_ads", {}),
        ("POST", "/providers/google_ads/reset", {}),
    ):
        url = f"/api/sites/{site}{path}"
        answer = await service.ask(method, url, headers=other, status=404, **more)
        assert answer["error"] == "unknown_site"
    assert (await service.ask("GET", "/api/sites", headers=other))["sites"] == []
    assert query("SELECT name FROM sites") == [("Shop",)]
    assert query("SELECT count(*) FROM provider_credentials") == [(0,)]


async def test_credentials_are_sealed_replaced_removed_and_never_shown(
    service: Service, query: Query, capfd: pytest.CaptureFixture[str]
) -> None:
    site = await service.site()
    url = f"/api/sites/{site}/credentials/google_ads"
    told = [await service.ask("PUT", url, json={"credentials": GOOGLE_ADS})]
    told.append(
        await service.ask("PUT", url, json={"credentials": GOOGLE_ADS | {"refresh_token": "OTHERcanary"}})
    )
    assert [each["version"] for each in told] == [1, 2]
    assert told[0]["in_use"] is True
    outbound = service.app.ctx.outbound
    assert outbound is not None
    [(key_id, nonce, ciphertext)] = query("SELECT key_id, nonce, ciphertext FROM provider_credentials")
    opened = outbound.vault.unseal(UUID(site), "google_ads", Sealed(key_id, nonce, ciphertext, 2))
    assert opened["refresh_token"] == "OTHERcanary"
    told.append(await service.ask("GET", "/api/providers", params={"site_id": site}))
    assert told[-1]["groups"][0]["credentials"]["key_id"] == key_id == outbound.vault.key_ids[0]
    told.append(await service.ask("DELETE", url))
    assert query("SELECT count(*) FROM provider_credentials") == [(0,)]
    assert (await service.ask("DELETE", url, status=404))["error"] == "no_credentials"
    audited = query("SELECT action, detail ->> 'version' FROM weighbridge.audit_log ORDER BY id")
    assert audited == [("credentials.set", "1"), ("credentials.set", "2"), ("credentials.remove", "2")]
    told.append(query("SELECT to_jsonb(a)::text FROM weighbridge.audit_log a"))
    captured = capfd.readouterr()
    assert "canary" not in json.dumps(told) + captured.out + captured.err


WRONG: list[tuple[Any, str]] = [
    (GOOGLE_ADS | {"refresh_tokn": "canary"}, "did you mean 'refresh_token'?"),
    (GOOGLE_ADS | {"ya29.canary": "x"}, "it contains an unknown name; google_ads has customer_id"),
    (
        GOOGLE_ADS | {"customer_id": 1234567890},
        "customer_id: expected text (the number of the Google Ads account",
    ),
    (GOOGLE_ADS | {"refresh_token": "canary\nx"}, "refresh_token: expected text"),
    (GOOGLE_ADS | {"refresh_token": "  "}, "google_ads requires refresh_token (of a user who"),
    ({}, "google_ads requires customer_id"),
    (["canary"], "expected a JSON object of names and values"),
    ("canary", "expected a JSON object of names and values"),
]


async def test_wrong_credentials_are_refused_without_repeating_them(service: Service, query: Query) -> None:
    url = f"/api/sites/{await service.site()}/credentials/google_ads"
    for credentials, said in WRONG:
        answer = await service.ask("PUT", url, status=422, json={"credentials": credentials})
        assert answer["error"] == "invalid_credentials"
        assert said in answer["message"]
        assert "canary" not in answer["message"]
    assert query("SELECT count(*) FROM provider_credentials") == [(0,)]


async def test_invalid_bodies_and_names_are_refused(service: Service) -> None:
    site = await service.site()
    url = f"/api/sites/{site}/credentials"
    assert (
        "expected JSON"
        in (await service.ask("PUT", f"{url}/google_ads", status=422, content=b"{"))["message"]
    )
    await service.ask("PUT", f"{url}/google_ads", status=422, json=GOOGLE_ADS)
    answer = await service.ask("PUT", f"{url}/google_add", status=404, json={"credentials": GOOGLE_ADS})
    assert "did you mean 'google_ads'?" in answer["message"]
    await service.ask("POST", f"/api/sites/{site}/providers/google_add/reset", status=404)


async def test_credentials_cannot_be_set_without_the_vault_key(
    database_url: str, home: Path, workspace: UUID
) -> None:
    async with serving(database_url, home, workspace, vault_key=None) as service:
        url = f"/api/sites/{await service.site()}/credentials/google_ads"
        answer = await service.ask("PUT", url, status=503, json={"credentials": GOOGLE_ADS})
        assert (answer["error"], "WEIGHBRIDGE_VAULT_KEY" in answer["message"]) == ("no_vault_key", True)


async def test_groups_show_queued_and_failed_rows_and_what_blocks_them(
    service: Service, query: Query
) -> None:
    site = await service.seeded()
    bare = await service.site("google_ads", "webhook", name="Bare")
    await service.sell(site, "order-1", "order-2", "order-3")
    await service.sell(bare, "order-1")
    query("UPDATE offline_conversion_queue SET status = 'FAILED' WHERE order_id = 'order-3'")
    query("SELECT record_provider_outcome(%s, 'google_ads', false, true) FROM generate_series(1, 5)", (site,))
    query("SELECT increment_provider_upload_metrics(%s, 'google_ads', 9, 5, 1, 3)", (site,))
    answer = await service.ask("GET", "/api/providers")
    groups = {(each["site_name"], each["provider"]): each for each in answer["groups"]}
    assert set(groups) == {("Shop", "google_ads"), ("Bare", "google_ads"), ("Bare", "webhook")}
    group = groups["Shop", "google_ads"]
    assert (group["circuit"]["state"], group["circuit"]["failure_count"]) == ("OPEN", 5)
    assert group["circuit"]["next_probe_at"] is not None
    assert (group["waiting"], group["failed"]) == (2, 1)
    assert group["totals"] == {"attempts_total": 9, "completed_total": 5, "failed_total": 1, "retry_total": 3}
    assert group["credentials"]["version"] == 1
    assert groups["Bare", "webhook"]["credentials"] is None
    assert (await service.ask("POST", PROCESS, headers=CRON))["skipped"] == {
        "circuit_open": 1,
        "no_credentials": 2,
    }
    only = await service.ask("GET", "/api/providers", params={"site_id": bare, "provider": "webhook"})
    assert [(each["site_name"], each["provider"]) for each in only["groups"]] == [("Bare", "webhook")]
    found, after = [], None
    for _ in range(3):
        params = {"limit": 1} | ({} if after is None else {"after": after})
        page = await service.ask("GET", "/api/providers", params=params)
        found += [(each["site_name"], each["provider"]) for each in page["groups"]]
        after = page["next"]
    assert after is None
    assert sorted(found) == sorted(groups)


async def test_a_reset_closes_the_circuit_and_retries_the_credentials(service: Service, query: Query) -> None:
    site = await service.seeded()
    query("SELECT record_provider_outcome(%s, 'google_ads', false, true) FROM generate_series(1, 5)", (site,))
    query("UPDATE provider_credentials SET refused_at = now(), refused_code = 'X'")
    answer = await service.ask("POST", f"/api/sites/{site}/providers/google_ads/reset")
    assert answer == {"site_id": site, "provider": "google_ads", "state": "CLOSED"}
    [group] = (await service.ask("GET", "/api/providers"))["groups"]
    assert (group["circuit"]["state"], group["credentials"]["refused_at"]) == ("CLOSED", None)
    assert query("SELECT actor LIKE 'key %' FROM weighbridge.audit_log WHERE action = 'provider.reset'") == [
        (True,)
    ]
