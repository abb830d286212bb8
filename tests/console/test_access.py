"""Every page needs a session, and every form needs the token of its session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.conftest import Clock, worked_out
from weighbridge.access import keys
from weighbridge.api.access import is_page, scope_of
from weighbridge.app import App
from weighbridge.console import assets, create


@pytest.fixture
async def visitor(app: App) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(worked_out(create(app)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        yield client


@pytest.fixture
async def member(app: App, visitor: httpx.AsyncClient) -> httpx.AsyncClient:
    async with app.db.tx() as tx:
        _, secret = await keys.create(tx, uuid4(), "member", ("admin",), None)
    answer = await visitor.post("/sign-in", data={"key": secret, "next": "/storage"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/storage")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert secret not in cookie
    return visitor


def _routes(app: App) -> list[APIRoute]:
    """All routes; newer versions of FastAPI keep the routes of a router in the router."""
    found: list[APIRoute] = []

    def walk(routes: Any) -> None:
        for route in routes:
            if isinstance(route, APIRoute):
                found.append(route)
            walk(getattr(getattr(route, "original_router", None), "routes", ()))

    walk(create(app).routes)
    return found


def _pages(app: App, method: str) -> list[str]:
    found = [route.path for route in _routes(app) if is_page(route.endpoint) and method in route.methods]
    assert len(found) > 8
    return [_filled(path) for path in found]


def _filled(path: str) -> str:
    parts = []
    for part in path.split("/"):
        if part == "{project_id}":
            parts.append("7")
        elif part.startswith("{"):
            parts.append("google_ads" if "provider" in part else str(uuid4()))
        else:
            parts.append(part)
    return "/".join(parts)


async def test_no_page_is_open_without_a_session(app: App, visitor: httpx.AsyncClient) -> None:
    for path in _pages(app, "GET"):
        answer = await visitor.get(path)
        if path == "/sign-in":
            continue
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/sign-in?next="), path


async def test_no_form_is_accepted_without_the_token_of_the_session(
    app: App, member: httpx.AsyncClient
) -> None:
    for path in _pages(app, "POST"):
        if path == "/sign-in":
            continue
        for body in ({"data": {"csrf": "wrong"}}, {"json": {}}, {"files": {"csrf": (None, "wrong")}}):
            answer = await member.post(path, **body)  # type: ignore[arg-type]
            assert answer.status_code in (403, 415), (path, body, answer.text)
            assert "out of date" in answer.text or "form of this site" in answer.text, (path, body)


async def test_a_form_of_another_site_is_refused(member: httpx.AsyncClient) -> None:
    answer = await member.post("/sign-out", headers={"Origin": "https://evil.example"}, data={"csrf": "x"})
    assert answer.status_code == 403
    assert "another site" in answer.text


async def test_a_session_changes_nothing_in_the_api_without_its_token(member: httpx.AsyncClient) -> None:
    answer = await member.post("/api/projects", json={"name": "Shoes"})
    assert answer.status_code == 403
    assert answer.json()["error"] == "wrong_csrf_token"
    page = (await member.get("/storage")).text
    token = page.split('name="csrf" content="', 1)[1].split('"', 1)[0]
    answer = await member.post("/api/projects", json={"name": "Shoes"}, headers={"X-CSRF-Token": token})
    assert answer.status_code < 300


async def test_a_session_ends_with_its_key(app: App, member: httpx.AsyncClient) -> None:
    assert (await member.get("/storage")).status_code == 200
    async with app.db.tx() as tx:
        (key,) = await keys.listing(tx, None)
        await keys.revoke(tx, key.id)
    assert (await member.get("/storage")).status_code == 303
    assert (await member.get("/api/uploads")).status_code == 401


async def test_a_session_ends_by_the_databases_clock(member: httpx.AsyncClient, clock: Clock) -> None:
    clock.forward(timedelta(hours=13))
    assert (await member.get("/storage")).status_code == 303


@pytest.mark.parametrize(
    "next_", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"]
)
async def test_sign_in_does_not_redirect_to_another_site(
    app: App, visitor: httpx.AsyncClient, next_: str
) -> None:
    async with app.db.tx() as tx:
        _, secret = await keys.create(tx, uuid4(), "x", ("read",), None)
    answer = await visitor.post("/sign-in", data={"key": secret, "next": next_})
    assert answer.headers["location"] == "/"


async def test_sign_in_redirects_to_the_requested_page(visitor: httpx.AsyncClient) -> None:
    answer = await visitor.get("/uploads?kind=failed&q=a%26b")
    assert answer.headers["location"] == "/sign-in?next=/uploads%3Fkind%3Dfailed%26q%3Da%2526b"
    page = await visitor.get(answer.headers["location"])
    assert 'name="next" value="/uploads?kind=failed&amp;q=a%26b"' in page.text


async def test_a_refused_form_does_not_redirect_to_another_site(member: httpx.AsyncClient) -> None:
    referer = "http://weighbridge//evil.example/x"
    answer = await member.post("/sign-out", headers={"Referer": referer}, data={"csrf": "wrong"})
    assert answer.headers.get("location", "/") == "/"


@pytest.mark.parametrize(
    "path",
    [
        "/uploads?project_id=99999999999999999999",
        "/uploads?pipeline=%00",
        "/uploads?q=%00",
        "/uploads?after=x",
        "/uploads?until=%FF",
        "/uploads?kind=%00",
        "/uploads/{}/rows?code=%00",
        "/uploads/{}/rows?code=x&column=%00",
        "/uploads/{}/rows?code=x&after=-1",
        "/uploads/{}",
        "/uploads/x",
        "/uploads/{}/preview?after=-1",
        "/health?period=%00",
        "/deliveries?site_id=x&after=y",
        "/projects?after=%00",
        "/projects/99999999999999999999",
        "/projects/7?tab=%00",
        "/no/such/page",
    ],
)
async def test_invalid_queries_get_a_message(member: httpx.AsyncClient, path: str) -> None:
    answer = await member.get(path.format(uuid4()), headers={"Accept": "text/html"})
    assert answer.status_code in (200, 404, 422), answer.status_code
    assert "<h1>" in answer.text


@pytest.mark.parametrize("url", ["//[", "http://["])
async def test_invalid_urls_are_refused_without_a_server_error(member: httpx.AsyncClient, url: str) -> None:
    assert (await member.get("/sign-in", params={"next": url})).status_code == 200
    for header in ("Origin", "Referer"):
        answer = await member.post("/sign-out", headers={header: url}, data={"csrf": "wrong"})
        assert answer.status_code in (303, 403), header


async def test_a_page_answers_a_head_request(member: httpx.AsyncClient) -> None:
    assert (await member.head("/storage")).status_code == 200


async def test_a_key_cannot_send_a_form(visitor: httpx.AsyncClient, app: App) -> None:
    async with app.db.tx() as tx:
        _, secret = await keys.create(tx, uuid4(), "x", ("admin",), None)
    answer = await visitor.post(
        "/uploads", headers={"X-Api-Key": secret}, files={"csrf": (None, ""), "file": ("a.csv", b"x")}
    )
    assert answer.status_code == 403
    assert "POST /api/uploads" in answer.text


async def test_a_static_file_is_cached_for_ever_only_under_its_own_version(
    visitor: httpx.AsyncClient,
) -> None:
    assert "immutable" in (await visitor.get(assets.address("refresh.js"))).headers["cache-control"]
    for other in ("/static/refresh.js?v=another", "/static/refresh.js"):
        assert (await visitor.get(other)).headers["cache-control"] == "no-cache"


async def test_pages_allow_only_their_own_scripts(member: httpx.AsyncClient) -> None:
    for path in ("/uploads", "/health", "/storage", "/deliveries", "/projects"):
        answer = await member.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "style=" not in answer.text
        assert "<script>" not in answer.text
        assert "http://" not in answer.text.replace("http://weighbridge", "")


def test_scripts_are_small() -> None:
    from weighbridge.console.assets import _FOLDER

    scripts = [each for each in _FOLDER.iterdir() if each.name.endswith(".js")]
    assert len(scripts) >= 2
    assert sum(len(each.read_bytes()) for each in scripts) < 40_000


async def test_every_page_declares_its_scope(app: App) -> None:
    for route in _routes(app):
        assert scope_of(route.endpoint) is not None, route.path
