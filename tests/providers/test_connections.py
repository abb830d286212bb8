"""Connections to providers are reused, and never shared by two requests at the same time."""

from __future__ import annotations

import asyncio

import httpcore
import httpx
import pytest

from weighbridge.delivery.providers import answers, connections
from weighbridge.delivery.providers.connections import Client, Connections
from weighbridge.testing import FakeMeta, Fault


async def ask(http: httpx.AsyncClient, fake: FakeMeta) -> int:
    return (await answers.post(http, f"{fake.url}/v1", content=b"{}")).status_code


async def test_sequential_requests_share_a_connection() -> None:
    with FakeMeta() as fake:
        async with Client(Connections(), httpx.Timeout(5)) as http:
            for _ in range(5):
                await ask(http, fake)
            assert len(fake._connections) == 1


async def test_concurrent_requests_have_their_own_connections_which_are_reused() -> None:
    with FakeMeta() as fake:
        async with Client(Connections(), httpx.Timeout(5)) as http:
            for _ in range(3):
                fake.script(*[Fault.slow(0.05)] * 4)
                await asyncio.gather(*[ask(http, fake) for _ in range(4)])
            assert len(fake._connections) == 4


async def test_a_broken_connection_is_not_reused() -> None:
    with FakeMeta() as fake:
        async with Client(Connections(), httpx.Timeout(5)) as http:
            fake.script(Fault.cut())
            with pytest.raises(answers.ProviderTransientError):
                await ask(http, fake)
            assert await ask(http, fake)


async def test_a_connection_with_an_incomplete_response_is_not_reused() -> None:
    """A read may be interrupted at any point, also while the response is closed."""
    kept = Connections()
    with FakeMeta() as fake:
        async with Client(kept, httpx.Timeout(5)) as http:
            answer = await kept.send(httpx.Request("POST", f"{fake.url}/v1", content=b"{}"))
            await kept.release(answer.key, answer.connection)
            assert not kept._idle
            assert await ask(http, fake)


async def test_the_number_of_idle_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT", 2)
    kept = Connections()
    with FakeMeta() as fake:
        async with Client(kept, httpx.Timeout(5)) as http:
            fake.script(*[Fault.slow(0.05)] * 6)
            await asyncio.gather(*[ask(http, fake) for _ in range(6)])
            assert len(kept._idle) == 2
        assert len(kept._idle) == 0


async def test_the_last_idle_connection_may_be_taken_while_an_old_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, closing, closed = 0.0, asyncio.Event(), asyncio.Event()

    class Idle(httpcore.AsyncHTTPConnection):
        def is_available(self) -> bool:
            return True

    class Slow(Idle):
        async def aclose(self) -> None:
            closing.set()
            await closed.wait()

    monkeypatch.setattr(connections, "monotonic", lambda: now)
    origin = httpcore.Origin(b"http", b"new.test", 80)
    kept, ours = Connections(), Idle(origin)
    old, new = ("http", "old.test", 80, None), ("http", "new.test", 80, None)
    await kept.release(old, Slow(origin))
    now = connections.IDLE + 1
    giving = asyncio.create_task(kept.release(new, ours))
    await closing.wait()
    assert await kept.acquire(new) is ours  # by a request that begins meanwhile
    closed.set()
    await giving


async def test_a_url_that_is_not_http_is_refused_as_by_httpx() -> None:
    async with Client(Connections(), httpx.Timeout(5)) as http:
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get("ftp://example.test/")
        with pytest.raises(answers.ProviderTransientError):
            await answers.get(http, "ftp://example.test/")


def test_requests_behind_a_proxy_are_sent_by_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(connections.client(httpx.Timeout(1)), Client)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert type(connections.client(httpx.Timeout(1))) is httpx.AsyncClient
