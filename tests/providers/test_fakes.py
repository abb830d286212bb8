"""The fakes are servers: they keep connections open, accept large bodies, fail when scripted, and run standalone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest

from tests.providers.cases import CASES, NOW, Case
from weighbridge.testing import FakeMeta, FakeTikTok, Fault
from weighbridge.testing._server import FakeServer, ReceivedRequest, Reply

EVENT = {
    "event_name": "Lead",
    "event_time": 1763200000,
    "event_id": "order-1",
    "action_source": "other",
    "user_data": {"em": ["0" * 64]},
}


async def post(
    http: httpx.AsyncClient, fake: FakeServer, *events: dict[str, Any], **more: Any
) -> httpx.Response:
    body = {"data": list(events or (EVENT,)), "access_token": "t", **more}
    return await http.post(f"{fake.url}/v25.0/1/events", json=body)


class Echo(FakeServer):
    def answer(self, call: ReceivedRequest) -> Reply:
        return Reply(200, {"size": len(call.raw), "method": call.method, "query": dict(call.query)})


async def test_one_connection_serves_many_requests() -> None:
    with Echo() as fake:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(fake.url.rpartition(":")[2]))
        for _ in range(3):
            writer.write(b"POST /?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            assert json.loads(body) == {"size": 2, "method": "POST", "query": {"a": "1"}}
        writer.close()


async def test_large_bodies_arrive_completely(http: httpx.AsyncClient) -> None:
    with Echo(keep_calls=0) as fake:
        for _ in range(3):
            response = await http.post(fake.url, content=b"x" * 20_000_000)
            assert response.json()["size"] == 20_000_000
        assert len(fake.calls) == 0


async def test_many_connections_are_served_concurrently(http: httpx.AsyncClient) -> None:
    with FakeMeta() as fake:
        fake.script(*[Fault.slow(0.05)] * 50)
        events = [{**EVENT, "event_id": f"order-{at}"} for at in range(50)]
        responses = await asyncio.gather(*(post(http, fake, event) for event in events))
        assert {response.status_code for response in responses} == {200}
        assert len(fake.accepted) == 50


async def test_a_script_of_responses_is_followed_in_order_and_then_every_request_succeeds(
    hasty: httpx.AsyncClient,
) -> None:
    with FakeMeta() as fake:
        fake.script(Fault.status(500), Fault.status(429, retry_after=7), Fault.page(), Fault.slow(0.05))
        said = [await post(hasty, fake) for _ in range(5)]
        assert [response.status_code for response in said] == [500, 429, 200, 200, 200]
        assert said[1].headers["retry-after"] == "7"
        assert said[2].headers["content-type"] == "text/html"
        assert (fake.accepted, fake.seen, len(fake.calls)) == ({"order-1": 1}, {"order-1": 2}, 5)

        fake.script(Fault.hang(), Fault.cut(), Fault.cut(after=True))
        for expected in (httpx.ReadTimeout, httpx.TransportError, httpx.TransportError):
            with pytest.raises(expected):
                await post(hasty, fake)
        assert fake.seen == {"order-1": 3}  # only the last was looked at


async def test_closing_does_not_wait_for_hanging_requests() -> None:
    async with httpx.AsyncClient(timeout=10) as http:
        with FakeMeta() as fake:
            fake.script(Fault.hang())
            waiting = asyncio.create_task(post(http, fake))
            while not fake.calls:
                await asyncio.sleep(0)
        with pytest.raises(httpx.TransportError):
            await waiting


async def test_an_error_in_a_fake_is_raised_when_it_closes(http: httpx.AsyncClient) -> None:
    class Broken(FakeServer):
        def answer(self, call: ReceivedRequest) -> Reply:
            raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"), Broken() as fake:
        assert (await http.get(fake.url)).status_code == 500


def test_a_connection_without_http_is_closed() -> None:
    with Echo() as fake:
        with socket.create_connection(("127.0.0.1", int(fake.url.rpartition(":")[2])), 5) as line:
            line.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1000) == b""
        assert httpx.get(fake.url).status_code == 200


def test_a_port_in_use_is_reported() -> None:
    with Echo() as fake:
        second = Echo(port=int(fake.url.rpartition(":")[2]))
        with pytest.raises(OSError, match="in use"):
            second.start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_time": "1763200000"},
        {"event_time": 1763200000.5},
        {"event_name": ""},
        {"event_id": 7},
        {"action_source": "crm"},
        {"user_data": {}},
        {"user_data": {"em": ["jane@example.com"]}},
        {"user_data": {"fbc": "IwAR2"}},
        {"custom_data": {"value": "1"}},
        {"custom_data": {"currency": "euro"}},
        {"event_name": "Purchase"},
        {"surprise": 1},
    ],
    ids=str,
)
async def test_meta_refuses_the_whole_request_for_one_bad_event(
    http: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    with FakeMeta() as fake:
        response = await post(http, fake, EVENT, {**EVENT, **wrong})
        assert (response.status_code, response.json()["error"]["code"]) == (400, 100)
        assert fake.accepted == {}


async def test_meta_refuses_events_by_their_age(http: httpx.AsyncClient) -> None:
    with FakeMeta() as fake:
        fake.clock = lambda: 1763200000 + 7 * 86400 + 1
        assert (await post(http, fake)).status_code == 400
        fake.clock = lambda: 1763200000 + 7 * 86400
        assert (await post(http, fake)).status_code == 200


async def test_meta_takes_at_most_a_thousand(http: httpx.AsyncClient) -> None:
    with FakeMeta() as fake:
        assert (await post(http, fake, *[EVENT] * 1001)).status_code == 400


@pytest.mark.parametrize(
    "wrong",
    [{"event_time": "x"}, {"event": ""}, {"event_id": 7}, {"user": {}}, {"user": {"email": "jane@example.com"}},
     {"properties": {"value": "1"}}, {"properties": {"currency": "euro"}}, {"surprise": 1}],
    ids=str,
)  # fmt: skip
async def test_tiktok_refuses_with_status_200(http: httpx.AsyncClient, wrong: dict[str, Any]) -> None:
    event = {
        "event": "Purchase",
        "event_time": 1,
        "event_id": "order-1",
        "user": {"ttclid": "E.C.P."},
        **wrong,
    }
    body = {"event_source": "offline", "event_source_id": "7", "data": [event]}
    with FakeTikTok() as fake:
        url = f"{fake.url}/open_api/v1.3/event/track/"
        response = await http.post(url, json=body, headers={"access-token": "t"})
        assert (response.status_code, response.json()["code"]) == (200, 40002)
        assert (await http.post(url, json=body)).json()["code"] == 40105
        assert fake.accepted == {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_fake_runs_in_its_own_process(case: Case, http: httpx.AsyncClient) -> None:
    command = [sys.executable, "-m", "weighbridge.testing", case.name, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        remote = _Remote(process.stdout.readline().strip())
        try:
            outcomes = await case.adapter(remote).send(case.batch(remote, now=NOW), http)  # type: ignore[arg-type]
            assert all(outcome.request_id for outcome in outcomes)
            expected = {f"order-{at}": 1 for at in range(3)}
            assert (await http.get(f"{remote.url}/_fake/accepted")).json() == expected
            assert (await http.get(f"{remote.url}/_fake/counts")).json() == {
                "orders": 3,
                "accepted": 3,
                "seen": 3,
            }
            assert (await http.get(f"{remote.url}/_fake/x")).status_code == 404
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


class _Remote:
    def __init__(self, url: str) -> None:
        self.url = url


async def test_a_fake_that_is_started_again_has_its_earlier_events(http: httpx.AsyncClient) -> None:
    fake = FakeMeta()
    for _ in range(2):
        with fake:
            assert (await post(http, fake)).status_code == 200
        with pytest.raises(httpx.TransportError):
            await post(http, fake)
    assert (fake.accepted, fake.seen) == ({"order-1": 1}, {"order-1": 2})


def test_a_closed_fake_leaves_nothing_behind() -> None:
    def alive() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "meta_capi"]

    with FakeMeta():
        assert alive() == ["meta_capi"]
    assert alive() == []
