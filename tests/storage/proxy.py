"""A bad line: a TCP proxy on loopback, in front of a real server, that tests spoil and mend while it runs.

    with Proxy(server.port) as proxy:          a client goes to proxy.port
        proxy.cut(after=100_000)               so many bytes more from clients, then every connection is closed, once
        proxy.cut(after=100_000, times=None)   the same again and again, however often they come back
        proxy.hang(after=100_000)              so many bytes more, then nothing passes; proxy.stuck is set
        proxy.mute()                           what clients send passes, no answer comes back
        proxy.refuse()                         every request is answered with 503 as S3 says it; the server sees none
        proxy.slow(1_000_000)                  bytes a second from clients
        proxy.mend()                           everything passes, also what a hanging line has held up
        proxy.connections, proxy.requests      what has come, passed or not: ["PUT /bucket/key", …]

What is asked for holds at once, for connections that are open too.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType

import h11

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message><Resource>/</Resource><RequestId>1</RequestId></Error>"
)
_CHUNK = 1 << 16
_TICK = 0.02


@dataclass
class _Manner:
    """How the line is: `left` bytes pass, then `then` happens."""

    left: int | None = None  # None: any number
    then: str = "pass"  # pass, hang, cut
    again: int = 0  # what `left` is after a cut, while `times` last
    times: int | None = 1
    rate: int | None = None
    mute: bool = False
    answer: tuple[int, bytes] | None = None  # what every request is refused with


class Proxy:
    def __init__(self, port: int) -> None:
        """In front of a server on this port of loopback, which need not be there yet."""
        self.stuck = threading.Event()  # bytes wait in a line that hangs
        self.connections = 0
        self.requests: list[str] = []
        self._server = port
        self._manner = _Manner()
        self._changed = threading.Condition()
        self._open: set[_Connection] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        _thread(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def mend(self) -> None:
        self._be(_Manner())

    def cut(self, *, after: int = 0, times: int | None = 1) -> None:
        self._be(_Manner(after, "cut", after, times))
        if not after:
            self._cut()

    def hang(self, *, after: int = 0) -> None:
        self._be(_Manner(after, "hang"))

    def mute(self) -> None:
        self._be(_Manner(mute=True))

    def refuse(self, status: int = 503, body: bytes = SLOW_DOWN) -> None:
        self._be(_Manner(answer=(status, body)))

    def slow(self, rate: int) -> None:
        self._be(_Manner(rate=rate))

    def forget(self) -> None:
        """Count from zero again."""
        self.connections, self.requests = 0, []

    def close(self) -> None:
        self._listener.close()
        self.mend()
        for connection in list(self._open):
            connection.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _be(self, manner: _Manner) -> None:
        with self._changed:
            self._manner = manner
            self.stuck.clear()
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            connection = _Connection(self, client)
            self._open.add(connection)
            _thread(connection.run)

    # For the connections ------------------------------------------------------------------------------------

    @property
    def refusal(self) -> tuple[int, bytes] | None:
        return self._manner.answer

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._server), 5)

    def ended(self, connection: _Connection) -> None:
        self._open.discard(connection)

    def grant(self, wanted: int) -> int:
        """How many bytes of a client may pass now; waits while the line hangs. 0: it is cut."""
        with self._changed:
            while True:
                manner = self._manner
                if manner.rate is not None:
                    self._changed.wait(_TICK)
                    return min(wanted, max(1, int(manner.rate * _TICK)))
                if manner.left is None:
                    return wanted
                if manner.left:
                    granted = min(wanted, manner.left)
                    manner.left -= granted
                    return granted
                if manner.then == "cut":
                    self._cut()
                    return 0
                self.stuck.set()
                self._changed.wait()

    def hold(self) -> None:
        """What the server says waits too, while the line hangs or is mute."""
        with self._changed:
            self._changed.wait_for(lambda: not self._silent)

    @property
    def _silent(self) -> bool:
        return self._manner.mute or (self._manner.then == "hang" and self._manner.left == 0)

    def _cut(self) -> None:
        with self._changed:
            manner = self._manner
            manner.left = manner.again
            if manner.times is not None:
                manner.times -= 1
                if not manner.times:
                    self._manner = _Manner()
        for connection in list(self._open):
            connection.close()


@dataclass(eq=False)
class _Connection:
    """One client, and the server behind it once something has passed."""

    proxy: Proxy
    client: socket.socket
    server: socket.socket | None = None
    _said: h11.Connection = field(default_factory=lambda: h11.Connection(h11.SERVER))
    _http: bool = True
    _refused: tuple[int, bytes] | None = None  # a request is refused from its first byte to its last

    def run(self) -> None:
        with suppress(OSError):
            while data := self.client.recv(_CHUNK):
                whole = self._read(data)
                self._refused = self._refused or self.proxy.refusal
                if self._refused:
                    self._refuse(whole)
                elif not self._forward(data):
                    break
        self.close()

    def _read(self, data: bytes) -> int:
        """How many requests have ended with this; those that begin are noted."""
        ended = 0
        while self._http:
            try:
                self._said.receive_data(data)
                while True:
                    event = self._said.next_event()
                    if isinstance(event, h11.Request):
                        self.proxy.requests.append(f"{event.method.decode()} {event.target.decode()}")
                    elif isinstance(event, h11.EndOfMessage):
                        break
                    elif event in (h11.NEED_DATA, h11.PAUSED):
                        return ended
            except h11.RemoteProtocolError:
                self._http = False  # something else than HTTP passes here, and is not counted
                break
            ended += 1
            data, self._said = self._said.trailing_data[0], h11.Connection(h11.SERVER)
            if not data:
                break
        return ended

    def _refuse(self, whole: int) -> None:
        if self.server is not None:  # it heard a part of the request, and hears no more
            server, self.server = self.server, None
            _shut(server)
        assert self._refused is not None
        status, body = self._refused
        for _ in range(whole):
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/xml\r\ncontent-length: {len(body)}\r\n\r\n"
            self.client.sendall(head.encode() + body)
            self._refused = None

    def _forward(self, data: bytes) -> bool:
        """False: the line is cut, or nobody is behind it."""
        while data:
            granted = self.proxy.grant(len(data))
            if not granted:
                return False
            if self.server is None:
                self.server = self.proxy.connect()
                _thread(partial(self._answer, self.server))
            self.server.sendall(data[:granted])
            data = data[granted:]
        return True

    def _answer(self, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                self.proxy.hold()
                self.client.sendall(data)
        if self.server is server:
            self.proxy.hold()
            self.close()

    def close(self) -> None:
        self.proxy.ended(self)
        for each in (self.client, self.server):
            if each is not None:
                _shut(each)


def _shut(line: socket.socket) -> None:
    """Also for a thread that reads from it."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


def _thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, daemon=True).start()
