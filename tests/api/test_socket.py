"""The API in its own process over a real socket: behaviour that only this setup shows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests import prefork
from weighbridge.postgres.transactions import Database
from weighbridge.testing.exports import ExportSpec, write_export
from weighbridge.uploads import queue

from .conftest import CSV, MakeKey, Server, new_key

Serve = Callable[..., Server]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_headers_conformance,
    schemathesis.checks.response_schema_conformance,
]
PART = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'


@pytest.fixture(scope="module")
def up(serve: Serve) -> Server:
    """API and worker."""
    return serve("up")


@pytest.fixture(scope="module")
def small(serve: Serve) -> Server:
    """An API that takes files up to 1 MB, without a worker."""
    return serve("api", WEIGHBRIDGE_MAX_UPLOAD_MB=1)


@pytest.fixture
async def db(shared_database_url: str) -> AsyncIterator[Database]:
    database = Database(shared_database_url, size=2)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def make_key(db: Database, workspace: UUID) -> MakeKey:
    async def make_key(*scopes: str, of: UUID | None = None) -> dict[str, str]:
        return await new_key(db, of or workspace, scopes)

    return make_key


async def left_behind(db: Database, server: Server, workspace: UUID) -> list[Any]:
    """Rows, blobs and scratch files that intake left for the workspace."""
    async with db.tx() as tx:
        rows = await queue.recent_uploads(tx, workspace, limit=10)
    return [*rows, *(server.home / "blobs").glob(f"{workspace}/*"), *(server.home / "scratch").iterdir()]


def form(*fields: tuple[bytes, bytes]) -> bytes:
    """The start of a form: fields, then a file of any length."""
    said = b"".join(PART % (name, b"") + value + b"\r\n" for name, value in fields)
    return said + PART % (b"file", b'; filename="a.csv"')


async def test_a_large_file_is_received_in_little_memory(
    serve: Serve, key: dict[str, str], db: Database
) -> None:
    server = serve("api")
    process = psutil.Process(server.process.pid)
    line = CSV.splitlines(keepends=True)[1]
    chunk = line * (2**20 // len(line))
    peak = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal peak
        yield form((b"platform", b"meta")) + CSV.splitlines(keepends=True)[0]
        for _ in range(45):
            yield chunk
            peak = max(peak, process.memory_info().rss)
        yield b"\r\n--x--\r\n"

    headers = key | {"Content-Type": "multipart/form-data; boundary=x"}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        small = await client.post("/api/uploads?platform=meta", headers=key, files={"file": ("s.csv", CSV)})
        assert small.status_code == 201
        before = process.memory_info().rss
        answer = await client.post("/api/uploads", headers=headers, content=body())
    assert answer.status_code == 201
    async with db.tx() as tx:
        upload = await queue.get(tx, UUID(answer.json()["upload_id"]))
    assert upload is not None
    assert upload.byte_size > 44 * 2**20
    assert peak - before < 15 * 2**20, f"grew by {(peak - before) / 2**20:.1f} MB"


@pytest.mark.parametrize("way", ["form", "raw"])
async def test_a_body_that_is_too_large_is_refused_before_it_has_been_sent(
    small: Server, key: dict[str, str], db: Database, workspace: UUID, way: str
) -> None:
    head, said = (form((b"platform", b"meta")), "") if way == "form" else (b"", "?platform=meta")
    kind = "multipart/form-data; boundary=x" if way == "form" else "text/csv"
    with socket.create_connection(("127.0.0.1", small.port), timeout=20) as connection:
        connection.sendall(
            f"POST /api/uploads{said} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n"
            f"Authorization: {key['Authorization']}\r\nContent-Type: {kind}\r\n\r\n".encode()
            + head
        )
        if way == "form":  # one byte more than is allowed, of the 900 MB that were announced
            content = CSV * (2**20 // len(CSV) + 1)
            connection.sendall(content[: 2**20 + 1])
        answer = b""
        while b"file_too_large" not in answer:
            received = connection.recv(4096)
            assert received, f"closed after {answer!r}"
            answer += received
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert await left_behind(db, small, workspace) == []


async def test_a_client_that_continues_sending_receives_the_413(serve: Serve, key: dict[str, str]) -> None:
    server = serve(WEIGHBRIDGE_MAX_UPLOAD_MB=1)
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        answer = await client.post(
            "/api/uploads", headers=key, data={"platform": "meta"}, files={"file": ("a.csv", CSV * 30_000)}
        )
    assert (answer.status_code, answer.json()["error"]) == (413, "file_too_large")


async def test_a_client_that_disconnects_leaves_nothing(
    small: Server, key: dict[str, str], db: Database, workspace: UUID, eventually: Any
) -> None:
    connection = socket.create_connection(("127.0.0.1", small.port), timeout=20)
    connection.sendall(
        f"POST /api/uploads HTTP/1.1\r\nHost: x\r\nAuthorization: {key['Authorization']}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5000000\r\n\r\n".encode()
        + form((b"platform", b"meta"))
        + CSV * 2000
    )
    await eventually(lambda: any((small.home / "scratch").iterdir()))  # it has begun
    connection.close()
    await eventually(lambda: not any((small.home / "scratch").iterdir()))
    assert await left_behind(db, small, workspace) == []


class Events:
    """Server-sent events of an open answer, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self, *, within: float = 20) -> dict[str, Any]:
        async with asyncio.timeout(within):
            name = ""
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    message: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    assert message["type"] == name
                    return message
        raise AssertionError("the stream ended")


def export(path: Path) -> bytes:
    write_export(path, ExportSpec("meta", "campaign", campaigns=3, days=10))
    return path.read_bytes()


async def collect(next_message: Callable[[], Any], upload_id: str) -> list[dict[str, Any]]:
    """Messages until the upload has been announced."""
    said = []
    while not said or said[-1]["type"] != "IngestionCompleteEvent":
        message = await next_message()
        if message.get("upload_id") == upload_id:
            said.append(message)
    return said


async def test_server_sent_events_report_an_upload_from_start_to_end(
    up: Server, key: dict[str, str], make_key: MakeKey, tmp_path: Path, workspace: UUID
) -> None:
    stranger = await make_key("upload", "read", of=uuid4())
    content = export(tmp_path / "a.csv")
    async with (
        httpx.AsyncClient(base_url=up.url, timeout=60) as client,
        client.stream("GET", "/api/live", headers=key) as mine,
        client.stream("GET", "/api/live", headers=stranger) as theirs,
    ):
        assert mine.headers["content-type"].startswith("text/event-stream")
        events, others = Events(mine), Events(theirs)
        assert await events.next() == {"type": "snapshot", "uploads": [], "truncated": False}
        assert await others.next() == {"type": "snapshot", "uploads": [], "truncated": False}
        sent = await client.post(
            "/api/uploads", headers=key, data={"platform": "meta"}, files={"file": ("a.csv", content)}
        )
        said = await collect(events.next, sent.json()["upload_id"])
        statuses = [message["status"] for message in said if message["type"] == "upload"]
        moves = [
            status for status, before in zip(statuses, [None, *statuses], strict=False) if status != before
        ]
        assert moves == ["pending", "processing", "staging_complete", "promoting", "completed"]
        assert said[-2]["promoted_rows"] == said[-2]["total_rows"] == 30
        assert said[-1]["workspace_id"] == str(workspace)
        assert len(said[-1]["affected_dates"]) == 10
        # Another workspace receives none of its events: its next message is about its own upload.
        sent = await client.post(
            "/api/uploads", headers=stranger, data={"platform": "meta"}, files={"file": ("b.csv", content)}
        )
        assert (await others.next())["upload_id"] == sent.json()["upload_id"]


async def test_a_stream_restarts_after_a_lost_connection_to_the_database(
    up: Server, key: dict[str, str], db: Database, tmp_path: Path
) -> None:
    async with (
        httpx.AsyncClient(base_url=up.url, timeout=60) as client,
        client.stream("GET", "/api/live", headers=key) as answer,
    ):
        events = Events(answer)
        assert await events.next() == {"type": "snapshot", "uploads": [], "truncated": False}
        async with db.tx() as tx:
            await tx.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'weighbridge listen' AND datname = current_database()"
            )
        assert await events.next() == {"type": "snapshot", "uploads": [], "truncated": False}
        sent = await client.post(
            "/api/uploads?platform=meta", headers=key, files={"file": ("a.csv", export(tmp_path / "a.csv"))}
        )
        assert (await events.next())["upload_id"] == sent.json()["upload_id"]


async def test_a_websocket_reports_the_same_events(up: Server, key: dict[str, str], tmp_path: Path) -> None:
    address = f"ws://127.0.0.1:{up.port}/api/ws"
    content = export(tmp_path / "a.csv")
    secret = key["Authorization"].removeprefix("Bearer ")
    async with (
        connect(address, additional_headers=key) as by_header,
        connect(address) as by_message,
        httpx.AsyncClient(base_url=up.url, timeout=60) as client,
    ):
        await by_message.send(json.dumps({"key": secret}))
        for each in (by_header, by_message):
            assert json.loads(await asyncio.wait_for(each.recv(), 20)) == {
                "type": "snapshot",
                "uploads": [],
                "truncated": False,
            }
        sent = await client.post(
            "/api/uploads", headers=key, data={"platform": "meta"}, files={"file": ("a.csv", content)}
        )
        for each in (by_header, by_message):

            async def next_message(socket: Any = each) -> Any:
                return json.loads(await asyncio.wait_for(socket.recv(), 20))

            said = await collect(next_message, sent.json()["upload_id"])
            assert [message["status"] for message in said][-2:] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("scope", "message", "code", "error"),
    [
        (None, "{}", 4401, "missing_key"),
        (None, "no json", 4401, "missing_key"),
        (None, '{"key": "wb_wrong"}', 4401, "wrong_key"),
        ("upload", None, 4403, "wrong_scope"),
    ],
)
async def test_a_websocket_without_a_valid_key_is_closed(
    small: Server, make_key: MakeKey, scope: str | None, message: str | None, code: int, error: str
) -> None:
    headers = await make_key(scope) if scope else {}
    async with connect(f"ws://127.0.0.1:{small.port}/api/ws", additional_headers=headers) as websocket:
        if message:
            await websocket.send(message)
        assert json.loads(await asyncio.wait_for(websocket.recv(), 20))["error"] == error
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(websocket.recv(), 20)
        assert websocket.close_code == code


async def test_a_stop_ends_open_streams_and_exits_cleanly(serve: Serve, key: dict[str, str]) -> None:
    server = serve("up")
    address = f"ws://127.0.0.1:{server.port}/api/ws"
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
        client.stream("GET", "/api/live", headers=key) as answer,
        connect(address, additional_headers=key) as websocket,
    ):
        events = Events(answer)
        await events.next()
        await websocket.recv()
        os.kill(server.process.pid, signal.SIGTERM)
        with pytest.raises(AssertionError, match="the stream ended"):
            await events.next()
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(websocket.recv(), 20)
    assert await asyncio.to_thread(server.process.wait, 20) == 0


async def test_no_request_of_the_openapi_document_causes_a_server_error(
    small: Server, make_key: MakeKey
) -> None:
    """A few requests for each route, made from its description: every answer must be one that it names."""
    schema = schemathesis.openapi.from_url(f"{small.url}/api/openapi.json")
    key = await make_key("admin")
    for found in schema.exclude(path="/api/live").get_all_operations():  # that one never ends
        operation = found.ok()

        @settings(
            max_examples=15, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            case.call_and_validate(headers=key, checks=CHECKS, timeout=20)

        check()


def test_a_port_in_use_is_reported_in_one_sentence(
    small: Server, shared_database_url: str, home: Path
) -> None:
    second = subprocess.run(
        [prefork.command(), "api", "--port", str(small.port)],
        env={**os.environ, "DATABASE_URL": shared_database_url, "WEIGHBRIDGE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1
    said = f"weighbridge: The API cannot listen on 127.0.0.1:{small.port}: Address already in use."
    [sentence] = second.stderr.splitlines()
    assert sentence.startswith(said)
