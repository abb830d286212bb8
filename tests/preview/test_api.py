"""Previews over HTTP: upload, show, promote or discard."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.api.conftest import MakeKey
from tests.conftest import Clock
from tests.engine.conftest import HEADER, meta_file, meta_line
from tests.preview.conftest import QUICK, Query, Send
from weighbridge import service_figures
from weighbridge.api.live_updates import Hub
from weighbridge.app import App
from weighbridge.console import create as create_site
from weighbridge.uploads import figures, preview
from weighbridge.worker import Worker, run_until

Headers = dict[str, str]


async def sent(client: httpx.AsyncClient, key: Headers, content: bytes, **fields: str) -> str:
    answer = await client.post(
        "/api/uploads", headers=key, data={"platform": "meta", **fields}, files={"file": ("a.csv", content)}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["upload_id"])


async def worked(app: App, upload_id: str) -> None:
    await run_until(app.ctx, QUICK, [UUID(upload_id)])


async def test_a_preview_from_the_form_to_production(
    app: App, client: httpx.AsyncClient, key: Headers, load: Send
) -> None:
    await load(meta_file(days=1))
    bad = meta_line("2026-01-03", 1, impressions="many")
    lines = [meta_line("2026-01-01", ad, impressions=100 + ad % 2) for ad in range(4)]
    lines += [meta_line(f"2026-01-{day:02}", ad) for day in range(4, 9) for ad in range(4)]
    upload_id = await sent(client, key, "\n".join([HEADER, *lines, bad]).encode(), preview="true")
    path = f"/api/uploads/{upload_id}"
    early = await client.get(f"{path}/preview", headers=key)
    assert (early.status_code, early.json()["error"]) == (409, "not_held")
    await worked(app, upload_id)
    told = (await client.get(path, headers=key)).json()
    assert (told["status"], told["preview"], told["held"]) == ("staging_complete", True, True)
    seen = (await client.get(f"{path}/preview", headers=key)).json()
    assert seen["entities"]["daily_metric"] == {
        "table": "daily_metrics", "inserted": 20, "updated": 2, "unchanged": 2
    }  # fmt: skip
    assert (seen["rejected"], seen["reasons"][0]["code"], seen["total_rows"]) == (1, "bad_integer", 25)
    rows = (await client.get(f"{path}/preview/rows", headers=key)).json()
    assert [row["changes"] for row in rows["rows"]] == [
        [{"column": "impressions", "old": "100", "new": "101", "personal": False}]
    ] * 2
    first = (await client.get(f"{path}/preview/rows?kind=inserted&limit=15", headers=key)).json()
    second = await client.get(
        f"{path}/preview/rows?kind=inserted&limit=15&after={first['next']}", headers=key
    )
    lines_seen = [row["line"] for row in (*first["rows"], *second.json()["rows"])]
    assert (len(lines_seen), len(set(lines_seen)), second.json()["next"]) == (20, 20, None)
    promoted = await client.post(f"{path}/promote", headers=key)
    assert (promoted.status_code, promoted.json()["status"]) == (200, "staging_complete")
    await worked(app, upload_id)
    ended = (await client.get(path, headers=key)).json()
    assert (ended["status"], ended["preview"]) == ("completed", False)
    assert ended["promoted"]["daily_metric"] == {
        "inserted": 20, "updated": 2, "unchanged": 2, "superseded": 0, "failed": 0
    }  # fmt: skip


async def test_two_tabs_that_press_at_once(app: App, client: httpx.AsyncClient, key: Headers) -> None:
    upload_id = await sent(client, key, meta_file(), preview="true")
    await worked(app, upload_id)
    path = f"/api/uploads/{upload_id}"
    answers = await asyncio.gather(
        *(client.post(f"{path}/{verb}", headers=key) for verb in ("promote", "discard", "promote", "discard"))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["error"] == "not_held"
            assert answer.json()["message"].startswith("Only a preview that is on hold can be ")


async def test_preview_in_the_metadata_of_tus(app: App, client: httpx.AsyncClient, key: Headers) -> None:
    content = meta_file()
    said = {"platform": "meta", "preview": "true", "filename": "a.csv"}
    metadata = ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in said.items())
    headers = {**key, "Tus-Resumable": "1.0.0"}
    begun = await client.post(
        "/api/files",
        headers={**headers, "Upload-Length": str(len(content)), "Upload-Metadata": metadata},
    )
    ended = await client.patch(
        begun.headers["location"],
        headers={**headers, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"},
        content=content,
    )
    upload_id = ended.headers["weighbridge-upload-id"]
    await worked(app, upload_id)
    assert (await client.get(f"/api/uploads/{upload_id}", headers=key)).json()["held"] is True


@pytest.mark.parametrize(
    ("query", "named"), [("entity=advert", "entity"), ("kind=changed", "kind"), ("limit=0", "limit")]
)
async def test_an_invalid_parameter_of_preview_rows_is_named_in_the_error(
    app: App, client: httpx.AsyncClient, key: Headers, query: str, named: str
) -> None:
    upload_id = await sent(client, key, meta_file(), preview="yes")
    await worked(app, upload_id)
    answer = await client.get(f"/api/uploads/{upload_id}/preview/rows?{query}", headers=key)
    assert answer.status_code == 422
    assert named in answer.json()["message"]


async def test_another_workspaces_preview_does_not_exist(
    app: App, client: httpx.AsyncClient, key: Headers, make_key: MakeKey
) -> None:
    upload_id = await sent(client, key, meta_file(), preview="true")
    await worked(app, upload_id)
    other = await make_key("read", "operate", of=UUID(int=7))
    for method, path in (
        ("GET", "preview"),
        ("GET", "preview/rows"),
        ("POST", "promote"),
        ("POST", "discard"),
    ):
        answer = await client.request(method, f"/api/uploads/{upload_id}/{path}", headers=other)
        assert answer.status_code == 404
    assert (await client.get(f"/api/uploads/{upload_id}", headers=key)).json()["held"] is True


async def test_a_reader_has_no_file_read_again_neither_here_nor_on_the_page(
    app: App, client: httpx.AsyncClient, key: Headers, make_key: MakeKey, query: Query
) -> None:
    upload_id = await sent(client, key, meta_file(), preview="true")
    await worked(app, upload_id)
    query("DELETE FROM staging.ads_daily_metric")
    reader = await make_key("read")
    path = f"/api/uploads/{upload_id}"
    refused = await client.get(f"{path}/preview?fresh=true", headers=reader)
    assert (refused.status_code, refused.json()["error"]) == (409, "read_again")
    assert "operate" in refused.json()["message"]
    site = httpx.ASGITransport(create_site(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=site, base_url="http://weighbridge") as browser:
        secret = reader["Authorization"].removeprefix("Bearer ")
        await browser.post("/sign-in", data={"key": secret, "next": "/uploads"})
        shown = await browser.get(f"/uploads/{upload_id}/preview", follow_redirects=True)
    assert "needs a key with the scope operate" in shown.text
    assert (await client.get(path, headers=key)).json()["held"] is True
    asked = await client.get(f"{path}/preview", headers=key)
    assert "being read again" in asked.json()["message"]
    assert (await client.get(path, headers=key)).json()["status"] == "pending"


async def test_live_events_report_the_hold_and_the_decision(
    app: App, workspace: UUID, send: Send, eventually: Callable[..., Awaitable[Any]]
) -> None:
    hub = Hub(app.db)
    heard: list[dict[str, Any]] = []
    async with hub.running(None):
        with hub.subscribed(workspace) as subscriber:
            assert (await subscriber.next(5))["type"] == "snapshot"  # type: ignore[index]
            upload = await send(meta_file(), preview=True)

            async def listen() -> None:
                while message := await subscriber.next(20):
                    heard.append(message)

            listening = asyncio.create_task(listen())
            assert await Worker(app.ctx, QUICK).run_once()
            await eventually(lambda: any(each.get("held") for each in heard))
            # A change that comes before the hub has read the row is reported with it: one message or two.
            assert {each["status"] for each in heard if each.get("held")} == {"staging_complete"}
            assert (await hub.snapshot(workspace))["uploads"] == []  # it does not move
            await preview.promote_on_hold(app.ctx, upload, actor="test")
            await eventually(lambda: heard[-1]["status"] == "staging_complete" and not heard[-1]["held"])
            listening.cancel()


async def test_a_preview_on_hold_is_no_backlog_and_a_discarded_one_no_failure(
    app: App, client: httpx.AsyncClient, key: Headers, load: Send, query: Query, clock: Clock
) -> None:
    upload = await load(meta_file(), preview=True)
    clock.forward(hours=5)
    async with app.db.tx() as tx:
        whole = await service_figures.of_service(tx)
    assert (whole.backlog, whole.backlog_age, whole.previews_on_hold, whole.stale_runs) == (0, 0, 1, 0)
    assert query("SELECT backlog FROM weighbridge.watch_queues(5, 0)") == [(0,)]
    await client.post(f"/api/uploads/{upload.id}/discard", headers=key)
    async with app.db.tx() as tx:
        whole = await service_figures.of_service(tx)
    async with app.db.tx("weighbridge_tenant", upload.workspace_id) as tx:
        mine = await figures.of_workspace(tx)
    assert (whole.failed_24h, whole.dead_letters, whole.previews_on_hold) == (0, 0, 0)
    assert (mine.failed_24h, mine.backlog_count, mine.last_failed_batch) == (0, 0, None)
