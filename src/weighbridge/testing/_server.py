"""What every fake provider stands on: a real HTTP/1.1 server on 127.0.0.1 that can be told to misbehave.

    with FakeMeta() as fake:
        fake.url                                             the adapter's base_url
        fake.script(Fault.status(500), Fault.cut(after=True), Fault.slow(0.2))
        fake.refuse("order-7", "INVALID")                    that row, in the provider's own words
        fake.calls, fake.accepted, fake.seen                 what came, what was taken as new, how often each came

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
    """What a request meets in place of a good answer."""

    kind: Literal["status", "hang", "cut", "slow", "page"]
    code: int = 0
    retry_after: int | str | None = None
    seconds: float = 0.0
    after: bool = False

    @classmethod
    def status(cls, code: int, *, retry_after: int | str | None = None) -> Fault:
        """This status, with the provider's own error body. Nothing of the request is kept."""
        return cls("status", code=code, retry_after=retry_after)

    @classmethod
    def hang(cls) -> Fault:
        """No answer, until the client leaves or the server closes. Nothing of the request is kept."""
        return cls("hang")

    @classmethod
    def cut(cls, *, after: bool = False) -> Fault:
        """The line breaks: before the request is looked at, or when all is done but the answer."""
        return cls("cut", after=after)

    @classmethod
    def slow(cls, seconds: float) -> Fault:
        """A good answer, late."""
        return cls("slow", seconds=seconds)

    @classmethod
    def page(cls) -> Fault:
        """200 with a page of HTML, as some proxy on the way would answer. Nothing of the request is kept."""
        return cls("page")


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    raw: bytes = field(repr=False)

    @cached_property
    def body(self) -> Any:
        """Parsed: JSON, or the fields of a form. None where there is none, or where it is neither."""
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(self.raw.decode(), keep_blank_values=True))
        try:
            return json.loads(self.raw)
        except ValueError:
            return None


@dataclass(frozen=True)
class Reply:
    """What is answered: a JSON value, or bytes as they are."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class FakeServer:
    """The base. A fake overrides `answer` and `error`, and `kind` where not every request carries conversions."""

    name = "fake"

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, keep_calls: int | None = None) -> None:
        """`keep_calls`: only so many of the last requests are kept, for runs that would fill the memory."""
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
        """The next requests of this kind meet these, in order; then all is well again."""
        self._faults.setdefault(on, deque()).extend(faults)

    def calm(self) -> None:
        """What is left of all scripts is forgotten: all is well from now on."""
        for waiting in self._faults.values():
            waiting.clear()

    def refuse(self, order_id: str, *codes: str) -> None:
        """A row with this order id meets these errors from now on; with none, no longer."""
        self.refusals[order_id] = codes
        if not codes:
            del self.refusals[order_id]

    def start(self) -> None:
        """Raises OSError where the port is taken. One that was closed comes back on its port, with what it had."""
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
        """All lines are cut. Raises what went wrong inside the fake itself."""
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
        """Which script a request follows: DATA if it carries conversions, else a name of the fake's own."""
        return DATA

    def answer(self, call: ReceivedRequest) -> Reply:
        """What the provider says to a request, when all is well with the line."""
        raise NotImplementedError

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        """A status of the script, with the body that the provider gives it."""
        return Reply(status, {"error": HTTPStatus(status).phrase})

    def take(self, order_id: str, key: object = None) -> bool:
        """Count a conversion that is taken; True if it is new. `key`: what the provider knows it again by."""
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
        ready.set()  # a client that is quicker than the next line waits in the backlog
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
            pass  # the client left, does not speak HTTP, or the server closes
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _react(self, call: ReceivedRequest, line: _Line) -> Reply | None:
        """The answer, or None: the line is to be cut."""
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
        except Exception as bug:  # of the fake: the test is told when it closes
            self._bugs.append(bug)
            return Reply(500, {"error": "the fake itself failed"})

    def _tell(self, path: str) -> Reply:
        """What a fake in another process is asked."""
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
    """One connection, kept for as many requests as the client likes."""

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
        """Wait until the client goes away."""
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
        """At once: two packets would wait for each other's receipt."""
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))


def _call(head: h11.Request, raw: bytes) -> ReceivedRequest:
    target = urlsplit(head.target.decode())
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    return ReceivedRequest(head.method.decode(), target.path, dict(parse_qsl(target.query)), headers, raw)


def _json(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
