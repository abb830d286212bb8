"""Access: every route is closed unless it declares a scope, and only keys with that scope may call it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from weighbridge.api import create
from weighbridge.api.access import scope_of
from weighbridge.app import App

from .conftest import CSV, MakeKey, Query

CALLS = [  # method, path, the scope that opens it
    ("POST", "/api/uploads", "upload"),
    ("POST", "/upload_file", "upload"),
    ("POST", "/api/tokens", "upload"),
    ("POST", "/api/recognise", "upload"),
    ("POST", "/api/files", "upload"),
    ("HEAD", "/api/files/{id}", "upload"),
    ("PATCH", "/api/files/{id}", "upload"),
    ("DELETE", "/api/files/{id}", "upload"),
    ("GET", "/api/files/{id}", "upload"),
    ("GET", "/api/uploads", "read"),
    ("GET", "/api/uploads/{id}", "read"),
    ("GET", "/api/uploads/{id}/rejects", "read"),
    ("GET", "/api/uploads/{id}/warnings", "read"),
    ("GET", "/api/uploads/{id}/preview", "read"),
    ("GET", "/api/uploads/{id}/preview/rows", "read"),
    ("POST", "/api/uploads/{id}/promote", "operate"),
    ("POST", "/api/uploads/{id}/discard", "operate"),
    ("POST", "/api/uploads/{id}/retry", "operate"),
    ("POST", "/api/uploads/{id}/dismiss", "operate"),
    ("POST", "/api/uploads/{id}/release-batch", "operate"),
    ("GET", "/projects/{id}/processing/status", "read"),
    ("GET", "/projects/{id}/processing-status", "read"),
    ("GET", "/api/projects", "read"),
    ("POST", "/api/projects", "operate"),
    ("GET", "/api/projects/{id}", "read"),
    ("GET", "/api/projects/{id}/jobs", "operate"),
    ("POST", "/api/projects/{id}/jobs/retry-failed", "operate"),
    ("POST", "/api/projects/{id}/kick", "upload"),
    ("GET", "/api/projects/{id}/groups", "read"),
    ("GET", "/api/projects/{id}/groups/{id}", "read"),
    ("PATCH", "/api/projects/{id}/groups/{id}", "operate"),
    ("POST", "/api/projects/{id}/groups/{id}/confirm", "operate"),
    ("POST", "/api/projects/{id}/groups/{id}/unconfirm", "operate"),
    ("GET", "/api/projects/{id}/keywords", "read"),
    ("POST", "/api/projects/{id}/keywords/move", "operate"),
    ("GET", "/api/projects/{id}/tokens/merges", "read"),
    ("POST", "/api/projects/{id}/tokens/merge", "operate"),
    ("POST", "/api/projects/{id}/tokens/unmerge", "operate"),
    ("POST", "/api/projects/{id}/regroup", "operate"),
    ("GET", "/api/live", "read"),
    ("GET", "/api/metrics", "read"),
    ("GET", "/api/usage", "read"),
    ("POST", "/api/conversions", "upload"),
    ("GET", "/api/conversions", "read"),
    ("GET", "/api/conversions/{id}", "read"),
    ("POST", "/api/conversions/retry", "operate"),
    ("GET", "/api/sites", "read"),
    ("POST", "/api/sites", "admin"),
    ("PATCH", "/api/sites/{id}", "admin"),
    ("PUT", "/api/sites/{id}/credentials/{id}", "admin"),
    ("DELETE", "/api/sites/{id}/credentials/{id}", "admin"),
    ("POST", "/api/sites/{id}/providers/{id}/reset", "operate"),
    ("GET", "/api/providers", "read"),
]
CRON = [  # needs a secret that is no key: test_cron.py
    "/api/cron/process-offline-conversions",
    "/api/cron/providers/recover-processing",
    "/api/cron/providers/seed-credentials",
]


@pytest.fixture
def database_url(shared_database_url: str) -> str:
    """One app for all tests: each test has its own workspace."""
    return shared_database_url


def api_routes(api: FastAPI) -> list[APIRoute]:
    found: list[APIRoute] = []

    def walk(routes: Any) -> None:
        for route in routes:
            if isinstance(route, APIRoute):
                found.append(route)
            walk(getattr(getattr(route, "original_router", None), "routes", ()))

    walk(api.routes)
    return found


async def test_every_route_is_tested_here(app: App) -> None:
    routes = {
        (method, re.sub(r"{\w+_id}", "{id}", route.path), scope_of(route.endpoint))
        for route in api_routes(create(app))
        for method in route.methods
    }
    anyone = [("GET", path, "") for path in ("/api/docs", "/healthz", "/readyz")]
    by_itself = [("GET", "/metrics", "")]  # needs a token that is no key
    described = [("OPTIONS", "/api/files", "")]  # what the server can do
    schedule = [("POST", path, "cron") for path in CRON]
    assert routes == {*CALLS, *anyone, *by_itself, *described, *schedule}


async def test_a_route_without_a_scope_is_closed(app: App, make_key: MakeKey) -> None:
    api = create(app)

    @api.get("/api/forgotten")
    async def forgotten() -> str:
        return "secret"

    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://weighbridge") as client:
        answer = await client.get("/api/forgotten", headers=await make_key("admin"))
    assert (answer.status_code, answer.json()["error"]) == (403, "closed")


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
async def test_no_key_or_a_wrong_one_is_401(
    client: httpx.AsyncClient, method: str, path: str, scope: str
) -> None:
    path = path.format(id=uuid4())
    for headers, code in (
        ({}, "missing_key"),
        ({"Authorization": "Bearer wb_wrong"}, "wrong_key"),
        ({"Authorization": "Basic d2I6d2I="}, "missing_key"),
        ({"X-Api-Key": "wb_wrong"}, "wrong_key"),
    ):
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert method == "HEAD" or answer.json()["error"] == code
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
async def test_a_key_without_the_scope_is_403(
    client: httpx.AsyncClient, make_key: MakeKey, method: str, path: str, scope: str
) -> None:
    others = [each for each in ("upload", "read", "operate") if each != scope]
    answer = await client.request(method, path.format(id=uuid4()), headers=await make_key(*others))
    assert answer.status_code == 403
    assert method == "HEAD" or answer.json() == {
        "error": "wrong_scope",
        "message": f"This key has the scopes {', '.join(others)}; the request needs the scope {scope}.",
    }


async def test_admin_opens_everything_and_the_other_header_works_too(
    client: httpx.AsyncClient, make_key: MakeKey
) -> None:
    secret = (await make_key("admin"))["Authorization"].removeprefix("Bearer ")
    headers = {"X-Api-Key": secret}
    sent = await client.post(
        "/api/uploads", headers=headers, data={"platform": "meta"}, files={"file": ("a.csv", CSV)}
    )
    assert sent.status_code == 201
    assert (await client.get("/api/uploads", headers=headers)).status_code == 200


async def test_an_expired_or_revoked_key_is_401(
    client: httpx.AsyncClient, make_key: MakeKey, clock: Any, query: Query
) -> None:
    expiring = await make_key("read", expires_at=datetime.now(UTC) + timedelta(days=1))
    lasting = await make_key("read")
    assert (await client.get("/api/uploads", headers=expiring)).status_code == 200
    clock.forward(days=2)
    assert (await client.get("/api/uploads", headers=expiring)).status_code == 401
    assert (await client.get("/api/uploads", headers=lasting)).status_code == 200
    query("UPDATE weighbridge.api_keys SET revoked_at = weighbridge.now()")
    assert (await client.get("/api/uploads", headers=lasting)).status_code == 401


async def test_another_workspace_cannot_be_seen(
    client: httpx.AsyncClient, make_key: MakeKey, make_upload: Callable[..., UUID], query: Query
) -> None:
    mine, theirs = make_upload(status="failed"), make_upload(status="failed", workspace_id=uuid4())
    key = await make_key("read", "operate")
    listed = (await client.get("/api/uploads", headers=key)).json()["uploads"]
    assert [each["upload_id"] for each in listed] == [str(mine)]
    reads, writes = ("", "/rejects", "/warnings"), ("/retry", "/dismiss", "/release-batch")
    for method, path in [("GET", path) for path in reads] + [("POST", path) for path in writes]:
        answer = await client.request(method, f"/api/uploads/{theirs}{path}", headers=key)
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown_upload")
    assert query("SELECT status FROM data_uploads WHERE id = %s", (theirs,)) == [("failed",)]


async def test_health_is_open(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_unknown_routes_and_methods_have_the_common_error_format(client: httpx.AsyncClient) -> None:
    assert (await client.get("/nothing")).json() == {"error": "not_found", "message": "Not Found."}
    answer = await client.delete("/api/uploads")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
