"""An open stream ends with the key or the session that opened it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.conftest import Clock
from weighbridge.access import keys
from weighbridge.api.live_updates import Hub
from weighbridge.api.uploads import live
from weighbridge.app import App
from weighbridge.console import create

Headers = dict[str, str]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE", 0.05)


@pytest.fixture
async def port(app: App) -> AsyncIterator[int]:
    """The service on a socket, in this process: keys expire by the database clock, streams by the process clock."""
    config = uvicorn.Config(create(app), port=0, lifespan="off", log_config=None, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


@pytest.fixture
async def site(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client


async def _revoke(app: App) -> None:
    async with app.db.tx() as tx:
        (key,) = await keys.listing(tx, None)
        assert await keys.revoke(tx, key.id)


async def _silent(lines: AsyncIterator[str]) -> None:
    """Read until two keep-alive messages were received."""
    seen = 0
    async for line in lines:
        seen += line == ": still here"
        if seen == 2:
            return
    raise AssertionError("the stream ended")


async def _rest(lines: AsyncIterator[str]) -> list[str]:
    async with asyncio.timeout(10):
        return [line async for line in lines]


async def test_an_event_stream_ends_when_its_key_is_revoked(
    app: App, site: httpx.AsyncClient, key: Headers
) -> None:
    async with site.stream("GET", "/api/live", headers=key) as answer:
        lines = answer.aiter_lines()
        await _silent(lines)
        await _revoke(app)
        await _rest(lines)
    assert (await site.get("/api/live", headers=key)).status_code == 401


async def test_an_event_stream_ends_with_its_session(
    site: httpx.AsyncClient, key: Headers, clock: Clock
) -> None:
    secret = key["Authorization"].removeprefix("Bearer ")
    await site.post("/sign-in", data={"key": secret, "next": "/uploads"})
    async with site.stream("GET", "/api/live") as answer:
        lines = answer.aiter_lines()
        await _silent(lines)
        clock.forward(hours=13)
        await _rest(lines)
    assert (await site.get("/api/live")).status_code == 401


async def test_a_websocket_closes_when_its_key_is_revoked(app: App, port: int, key: Headers) -> None:
    secret = key["Authorization"].removeprefix("Bearer ")
    async with connect(f"ws://127.0.0.1:{port}/api/ws") as socket, asyncio.timeout(10):
        await socket.send(json.dumps({"key": secret}))
        assert json.loads(await socket.recv())["type"] == "snapshot"
        await _revoke(app)
        assert json.loads(await socket.recv())["error"] == "wrong_key"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 4401


async def test_a_stream_with_constant_events_ends_too(
    app: App, workspace: UUID, key: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0
    monkeypatch.setattr(live, "KEEP_ALIVE", 15.0)
    monkeypatch.setattr(live, "monotonic", lambda: seconds)
    secret, hub, heard = key["Authorization"].removeprefix("Bearer "), Hub(app.db), []
    with hub.subscribed(workspace) as subscriber, contextlib.suppress(live.RequestRefused):
        async for message in live._messages(subscriber, lambda: live.admit(app, secret, "read")):
            heard.append((seconds, message["type"]))
            subscriber.send({"type": "upload"})
            if seconds == 2:
                await _revoke(app)
            seconds += 1
            assert seconds < 100, "it goes on for ever"
    assert heard == [(0, "snapshot"), *((at, "upload") for at in range(1, 15))]


async def test_a_snapshot_shows_that_there_are_more_uploads(
    app: App, workspace: UUID, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.api.live_updates.SNAPSHOT", 2)
    found = []
    for number in range(3):
        query(
            "INSERT INTO data_uploads"
            " (workspace_id, pipeline, platform, source, filename, file_url, content_sha256, byte_size)"
            " VALUES (%s, 'ads', 'meta', 'manual', 'a.csv', 'file:///a', %s, 1)",
            (workspace, bytes([number] * 32)),
        )
        found.append(await Hub(app.db).snapshot(workspace))
    assert [len(each["uploads"]) for each in found] == [1, 2, 2]
    assert [each["truncated"] for each in found] == [False, False, True]
