"""The base of every fake provider: a real HTTP/1.1 server on 127.0.0.1 that can simulate failures.

    with FakeMeta() as fake:
        fake.url                                             the adapter's base_url
        fake.script(Fault.status(500), Fault.cut(after=True), Fault.slow(0.2))
        fake.refuse("order-7", "INVALID")                    that row, with an error in the provider's format
        fake.calls, fake.accepted, fake.seen                 the requests, the new conversions, how often each was sent

A fake says which requests carry conversions (`kind`), what it answers (`answer`) and how it words a bad status
(`error`). All of it runs in one thread of its own, so that nothing in a fake needs a lock.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

import h11

DATA = "data"  # the kind of request that carries conversions
_READ = 1 << 18
_PAGE = b"<html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>"


@dataclass(frozen=True)
class Fault:
    """A simulated failure of a request."""

    kind: Literal["status", "hang", "cut", "slow", "page"]
    code: int = 0
    retry_after: int | str | None = None
    seconds: float = 0.0
    after: bool = False

    @classmethod
    def status(cls, code: int, *, retry_after: int | str | None = None) -> Fault:
        """Respond with this status and the provider's error body. Nothing of the request is stored."""
        return cls("status", code=code, retry_after=retry_after)

    @classmethod
    def hang(cls) -> Fault:
        """Do not respond until the client disconnects or the server closes. Nothing of the request is stored."""
        return cls("hang")

    @classmethod
    def cut(cls, *, after: bool = False) -> Fault:
        """Close the connection: before the request is processed, or after it and before the response."""
        return cls("cut", after=after)

    @classmethod
    def slow(cls, seconds: float) -> Fault:
        """Respond normally, but late."""
        return cls("slow", seconds=seconds)

    @classmethod
    def page(cls) -> Fault:
        """Respond with 200 and an HTML page, like a proxy. Nothing of the request is stored."""
        return cls("page")


@dataclass(frozen=True)
class ReceivedRequest:
    """One received request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    raw: bytes = field(repr=False)

    @cached_property
    def body(self) -> Any:
        """The parsed body: JSON or the fields of a form. None if it is empty or neither."""
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(self.raw.decode(), keep_blank_values=True))
        try:
            return json.loads(self.raw)
        except ValueError:
            return None


@dataclass(frozen=True)
class Reply:
    """A response: a JSON value, or raw bytes."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class FakeServer:
    """The base. A fake overrides `answer` and `error`, and `kind` if some requests carry no conversions."""

    name = "fake"

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, keep_calls: int | None = None) -> None:
        """`keep_calls`: maximum number of recorded requests, for long runs."""
        self.calls: deque[ReceivedRequest] | list[ReceivedRequest] = (
            [] if keep_calls is None else deque(maxlen=keep_calls)
        )
        self.accepted: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.refusals: dict[str, tuple[str, ...]] = {}
        self.clock: Callable[[], float] | None = None  # seconds since 1970; None: no age is checked
        self._known: set[object] = set()
        self._faults: dict[str, deque[Fault]] = {}
        self._host, self._port = host, port
        self._bugs: list[Exception] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    # For tests ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    def script(self, *faults: Fault, on: str = DATA) -> None:
        """Apply these failures to the next requests of this kind, in order; then respond normally."""
        self._faults.setdefault(on, deque()).extend(faults)

    def calm(self) -> None:
        """Drop all scripted failures: respond normally from now on."""
        for waiting in self._faults.values():
            waiting.clear()

    def refuse(self, order_id: str, *codes: str) -> None:
        """Refuse rows with this order id with these errors from now on; without errors, accept them again."""
        self.refusals[order_id] = codes
        if not codes:
            del self.refusals[order_id]

    def start(self) -> None:
        """Start the server. Raises OSError if the port is taken. A closed server restarts on its port with its data."""
        assert self._thread is None, "it runs already"
        listening = socket.create_server((self._host, self._port), backlog=1024)
        self._port = listening.getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening, ready)), name=self.name, daemon=True
        )
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Close all connections. Raises errors that occurred inside the fake itself."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None
        if self._bugs:
            raise self._bugs.pop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as bug:
            raise bug from error

    # For fakes ----------------------------------------------------------------------------------------------

    def kind(self, call: ReceivedRequest) -> str:
        """The kind of a request, which selects its script: DATA if it carries conversions, else another name."""
        return DATA

    def answer(self, call: ReceivedRequest) -> Reply:
        """The provider's normal response to a request."""
        raise NotImplementedError

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        """The response for a scripted status, with the provider's error body."""
        return Reply(status, {"error": HTTPStatus(status).phrase})

    def take(self, order_id: str, key: object = None) -> bool:
        """Count an accepted conversion; True if it is new. `key`: the provider's key for duplicates."""
        self.seen[order_id] = self.seen.get(order_id, 0) + 1
        known = order_id if key is None else key
        if known in self._known:
            return False
        self._known.add(known)
        self.accepted[order_id] = self.accepted.get(order_id, 0) + 1
        return True

    # The server ---------------------------------------------------------------------------------------------

    async def _serve(self, listening: socket.socket, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        ready.set()  # clients that connect early wait in the backlog
        server = await asyncio.start_server(self._connected, sock=listening, limit=_READ)
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await _Line(self, reader, writer).talk()
        except (ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # the client disconnected, does not speak HTTP, or the server closes
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _react(self, call: ReceivedRequest, line: _Line) -> Reply | None:
        """The response, or None to close the connection."""
        if call.path.startswith("/_fake/"):
            return self._tell(call.path)
        self.calls.append(call)
        waiting = self._faults.get(self.kind(call))
        fault = waiting.popleft() if waiting else None
        match fault:
            case None:
                return self._answered(call)
            case Fault("status"):
                reply = self.error(call, fault.code)
                if fault.retry_after is None:
                    return reply
                return Reply(
                    reply.status, reply.body, {**reply.headers, "retry-after": str(fault.retry_after)}
                )
            case Fault("hang"):
                await line.left()
                return None
            case Fault("cut"):
                if fault.after:
                    self._answered(call)
                return None
            case Fault("slow"):
                await asyncio.sleep(fault.seconds)
                return self._answered(call)
            case Fault("page"):
                return Reply(200, _PAGE, {"content-type": "text/html"})
            case _:
                raise AssertionError(fault)

    def _answered(self, call: ReceivedRequest) -> Reply:
        try:
            return self.answer(call)
        except Exception as bug:  # a bug of the fake: raised in the test on close
            self._bugs.append(bug)
            return Reply(500, {"error": "the fake itself failed"})

    def _tell(self, path: str) -> Reply:
        """Control requests to a fake in another process."""
        match path.removeprefix("/_fake/"):
            case "accepted":
                return Reply(200, self.accepted)
            case "seen":
                return Reply(200, self.seen)
            case "counts":
                return Reply(
                    200,
                    {
                        "orders": len(self.accepted),
                        "accepted": sum(self.accepted.values()),
                        "seen": sum(self.seen.values()),
                    },
                )
            case _:
                return Reply(404, {"error": "expected /_fake/accepted, /_fake/seen or /_fake/counts"})


class _Line:
    """One keep-alive connection."""

    def __init__(self, fake: FakeServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._fake, self._reader, self._writer = fake, reader, writer
        self._http = h11.Connection(h11.SERVER)

    async def talk(self) -> None:
        while (call := await self._request()) is not None:
            reply = await self._fake._react(call, self)
            if reply is None:
                return
            self._send(reply)
            await self._writer.drain()
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def left(self) -> None:
        """Wait until the client disconnects."""
        with suppress(ConnectionError):
            while await self._reader.read(_READ):
                pass

    async def _request(self) -> ReceivedRequest | None:
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return _call(head, b"".join(body))
            else:
                return None  # closed

    def _send(self, reply: Reply) -> None:
        raw = reply.body if isinstance(reply.body, bytes) else _json(reply.body)
        headers = {
            "content-type": "application/json",
            **{name.lower(): value for name, value in reply.headers.items()},
            "content-length": str(len(raw)),
        }
        if reply.status == 204:
            del headers["content-length"], headers["content-type"]
        response = h11.Response(status_code=reply.status, headers=list(headers.items()))
        self._write(response, h11.Data(data=raw), h11.EndOfMessage())

    def _write(self, *events: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        """Write in one packet: two packets would wait for delayed acknowledgements."""
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))


def _call(head: h11.Request, raw: bytes) -> ReceivedRequest:
    target = urlsplit(head.target.decode())
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    return ReceivedRequest(head.method.decode(), target.path, dict(parse_qsl(target.query)), headers, raw)


def _json(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
