"""Uploads, files, sales and projects of another workspace are not found, even if their ids are known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.api.delivering import Service
from tests.conftest import Clock, worked_out
from weighbridge import service_figures
from weighbridge.access import keys
from weighbridge.app import App
from weighbridge.console import create
from weighbridge.engine.options import WorkerOptions
from weighbridge.worker import run_until

from .test_access import _routes

Query = Callable[..., list[tuple[Any, ...]]]
SignIn = Callable[[UUID], Awaitable["Person"]]
ADS = "Day,Campaign name,Amount spent (USD)\n2025-01-01,{},10.50\n"
PROJECT, NO_PROJECT = 70_001, 70_002
# Values for the fields of every form; a form ignores the others.
SAID = {
    "name": "mine now", "tokens": "canary", "into": "bird", "keyword": "canary cage", "where": "new",
    "provider": "google_ads", "category": "VALIDATION", "by_hand": "true", "force_partial": "true",
}  # fmt: skip


@dataclass(frozen=True)
class Person:
    """A user with an admin key for a workspace, in a browser."""

    browser: httpx.AsyncClient
    headers: dict[str, str]  # the API with the same key
    csrf: str

    async def ask(self, method: str, path: str, **fields: Any) -> httpx.Response:
        if method == "GET":
            return await self.browser.get(path, params={"code": "bad_amount"} if "/rows" in path else {})
        return await self.browser.post(path, data={**SAID, **fields, "csrf": self.csrf})


@pytest.fixture
async def sign_in(app: App) -> AsyncIterator[SignIn]:
    site, browsers = worked_out(create(app)), []

    async def sign_in(workspace: UUID) -> Person:
        async with app.db.tx() as tx:
            _, secret = await keys.create(tx, workspace, "person", ("admin",), None)
        transport = httpx.ASGITransport(site, raise_app_exceptions=False)
        browsers.append(browser := httpx.AsyncClient(transport=transport, base_url="http://weighbridge"))
        await browser.post("/sign-in", data={"key": secret, "next": "/storage"})
        page = (await browser.get("/storage")).text
        csrf = page.split('name="csrf" content="', 1)[1].split('"', 1)[0]
        return Person(browser, {"Authorization": f"Bearer {secret}"}, csrf)

    yield sign_in
    for browser in browsers:
        await browser.aclose()


@pytest.fixture
async def owner(sign_in: SignIn, workspace: UUID) -> Person:
    return await sign_in(workspace)


@pytest.fixture
async def stranger(sign_in: SignIn) -> Person:
    return await sign_in(uuid4())


@dataclass(frozen=True)
class Things:
    """The objects of a workspace, by the names of their path parameters."""

    failed: UUID
    held: UUID
    queue_id: UUID
    sale_id: UUID
    group_id: UUID
    site_id: UUID

    def path(self, route: str, project: int = PROJECT) -> str:
        held = route.rsplit("/", 1)[1] in ("preview", "promote", "discard")
        ids = {"upload_id": self.held if held else self.failed, **vars(self), "project_id": project}
        return route.format(**ids)

    @classmethod
    def of_nobody(cls) -> Things:
        return cls(*(uuid4() for _ in vars(cls)["__dataclass_fields__"]))


@pytest.fixture
async def theirs(app: App, owner: Person, workspace: UUID, query: Query, home: Path) -> Things:
    """One object of each kind, all named canary."""

    async def send(content: str, **fields: str) -> Any:
        file = {"file": ("canary.csv", content.encode())}
        answer = await owner.browser.post("/api/uploads", headers=owner.headers, data=fields, files=file)
        assert answer.status_code in (201, 202), answer.text
        return answer.json()

    failed = await send(ADS.format("canary").replace("10.50", "much"), platform="meta")
    held = await send(ADS.format("canary cage"), platform="meta", preview="true")
    keywords = await send("Keyword,Volume\ncanary cage,10\n", pipeline="keywords", project_id=str(PROJECT))
    ids = [UUID(each["upload_id"]) for each in (failed, held, keywords)]
    await run_until(app.ctx, WorkerOptions(name="test"), ids)
    named = {"name": "canary project", "project_id": PROJECT}
    await owner.browser.post("/api/projects", json=named, headers=owner.headers)
    (home / "blobs").rename(home / "away")
    (home / "blobs").write_text("not a folder")  # the store accepts no file now
    waiting = await send(ADS.format("canary seed"), platform="meta")
    queue_id = UUID(waiting["queue_id"])
    shop = Service(app, owner.browser, owner.headers, workspace)
    site = await shop.site(name="canary shop")
    [sale] = await shop.sell(site, "canary-1")
    query(
        "UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_category = 'VALIDATION',"
        " provider_error_code = 'canary', updated_at = weighbridge.now()"
    )
    [(group_id,)] = query("SELECT id FROM keyword_groups")
    return Things(ids[0], ids[1], queue_id, UUID(sale["sale_id"]), group_id, UUID(site))


@pytest.fixture
def everything(query: Query) -> Callable[[], dict[str, Any]]:
    """The content of the database, except the time when keys were last used."""

    def everything() -> dict[str, Any]:
        tables = query(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema IN ('public', 'weighbridge', 'staging') AND table_name <> 'api_keys'"
        )
        return {name: sorted(query(f"SELECT t::text FROM {name} t")) for (name,) in tables}

    return everything


def _with_ids(app: App) -> list[tuple[str, str]]:
    found = [
        (method, route.path)
        for route in _routes(app)
        for method in route.methods & {"GET", "POST"}
        if "{" in route.path and route.path.split("/")[1] in ("uploads", "storage", "deliveries", "projects")
    ]
    assert len(found) >= 20
    return sorted(found, key=lambda each: ("drop" in each[1], *each))  # a dropped file is deleted


async def test_objects_of_another_workspace_have_the_same_answer_as_missing_ones(
    app: App, owner: Person, stranger: Person, theirs: Things, everything: Callable[[], dict[str, Any]]
) -> None:
    routes, nobodys, before = _with_ids(app), Things.of_nobody(), everything()
    for method, route in routes:
        path, nowhere = theirs.path(route), nobodys.path(route, NO_PROJECT)
        answer = await stranger.ask(method, path, site_id=theirs.site_id)
        unknown = await stranger.ask(method, nowhere, site_id=nobodys.site_id)
        assert answer.status_code == unknown.status_code, (path, answer.text)
        assert answer.status_code in (404, 409), (path, answer.text)  # 409: nothing to requeue
        assert _sentence(answer, theirs) == _sentence(unknown, nobodys), path
        assert "canary" not in answer.text, path
    assert everything() == before
    for method, route in routes:  # the same requests of the owner have another answer
        if method == "GET":
            answer = await owner.ask(method, theirs.path(route))
            assert answer.status_code == 200, (route, answer.text)
    for method, route in routes:
        if method == "POST":
            answer = await owner.ask(method, theirs.path(route))
            assert answer.status_code in (303, 409), (route, answer.text)
    assert everything() != before


def _sentence(answer: httpx.Response, things: Things) -> str:
    text = answer.text
    for each in vars(things).values():
        text = text.replace(str(each), "ID")
    return text.replace(str(PROJECT), "N").replace(str(NO_PROJECT), "N")


async def test_no_list_or_form_shows_or_changes_objects_of_another_workspace(
    owner: Person, stranger: Person, theirs: Things, everything: Callable[[], dict[str, Any]]
) -> None:
    before = everything()
    pages = (
        "/uploads", "/uploads?q=anar", f"/uploads?project_id={PROJECT}", "/projects", "/storage", "/health",
        "/deliveries", f"/deliveries?site_id={theirs.site_id}",
    )  # fmt: skip
    marks = ("canary", str(theirs.queue_id))
    for path in pages:
        shown = (await stranger.browser.get(path)).text
        assert not any(mark in shown for mark in marks), path
        shown = (await owner.browser.get(path)).text
        assert any(mark in shown for mark in marks), path
    for form in ("/deliveries/reset", "/deliveries/requeue"):
        answer = await stranger.ask("POST", form, site_id=theirs.site_id)
        assert answer.status_code in (404, 409), answer.text
    assert everything() == before
    assert (await owner.ask("POST", "/deliveries/requeue", site_id=theirs.site_id)).status_code == 303


async def test_a_group_of_another_workspace_is_not_in_a_project_of_the_same_number(
    stranger: Person, theirs: Things, query: Query
) -> None:
    """Projects are numbered by workspace; groups have ids of their own."""
    wish = {"name": "mine", "project_id": PROJECT}
    made = await stranger.browser.post("/api/projects", json=wish, headers=stranger.headers)
    assert made.status_code < 300, made.text
    before = query("SELECT * FROM keyword_groups")
    for verb in ("rename", "confirm", "unconfirm"):
        path = f"/projects/{PROJECT}/groups/{theirs.group_id}/{verb}"
        assert (await stranger.ask("POST", path)).status_code == 404
    shown = await stranger.browser.get(f"/projects/{PROJECT}?tab=keywords&group_id={theirs.group_id}")
    assert (shown.status_code, "canary" in shown.text) == (200, False)
    assert query("SELECT * FROM keyword_groups") == before


async def test_a_workspace_sees_its_own_alerts_and_only_admins_see_those_of_the_service(
    app: App, workspace: UUID, theirs: Things, clock: Clock, query: Query
) -> None:
    query("UPDATE weighbridge.alerts SET closed_at = weighbridge.now()")
    subjects = {
        "dead_letter": str(theirs.failed),
        "circuit_open": f"{theirs.site_id}/google_ads",
        "backlog": "",
    }
    for condition, subject in subjects.items():
        query("SELECT weighbridge.raise_alert(%s, %s, 'WARNING', 'canary')", (condition, subject))

    async def seen(of: UUID, *, of_service: bool) -> set[str]:
        async with app.db.tx(workspace_id=of) as tx:
            return {alert.condition for alert in await service_figures.open_alerts(tx, of_service=of_service)}

    assert await seen(workspace, of_service=False) == {"dead_letter", "circuit_open"}
    assert await seen(workspace, of_service=True) == {*subjects}
    assert await seen(uuid4(), of_service=False) == set()
    assert await seen(uuid4(), of_service=True) == {"backlog"}
