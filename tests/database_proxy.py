"""A TCP proxy on loopback in front of a Postgres, which may listen on a Unix socket. Tests spoil it while it runs.

    with DatabaseProxy(database_url) as proxy:   connect to proxy.url
        proxy.swallow()        bytes in both directions vanish, of open and of new connections; nothing is closed
        proxy.delay(0.2)       each read is passed on so many seconds later
        proxy.reset()          every open connection is reset; new ones pass
        proxy.full()           new connections get the answer of a server without a free connection; open ones pass
        proxy.flow()           new connections pass again; those that were open while it swallowed stay silent for good
        proxy.swallowed        an event: bytes have vanished
        proxy.connections      how many there have been

A change holds at once, also for open connections. The server does not learn that a client of a silent connection has
gone, as after a failure of the network.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType

from psycopg.conninfo import conninfo_to_dict

_CHUNK = 1 << 16
_FULL = b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0"


class DatabaseProxy:
    def __init__(self, url: str) -> None:
        given = conninfo_to_dict(url)
        host, port = str(given.get("host") or "localhost"), int(given.get("port") or 5432)
        self._server: str | tuple[str, int] = (
            f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
        )
        self.swallowed = threading.Event()
        self.connections = 0
        self._mode = "flow"
        self._delay = 0.0
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        user, database = given.get("user") or "postgres", given.get("dbname")
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self.swallowed.clear()
        self._mode = "swallow"
        for pair in list(self._pairs):
            pair.silent = True

    def delay(self, seconds: float) -> None:
        self._delay = seconds

    def full(self) -> None:
        self._mode = "full"

    def flow(self) -> None:
        self._mode, self._delay = "flow", 0.0

    def reset(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def __enter__(self) -> DatabaseProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._mode == "full":
                    threading.Thread(target=_refuse, args=(client,), daemon=True).start()
                    continue
                pair = _Pair(self, client, self._connected(), silent=self.swallows)
                self._pairs.add(pair)
                pair.start()

    def _connected(self) -> socket.socket:
        if isinstance(self._server, tuple):
            return socket.create_connection(self._server)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        return server

    # For the connections ------------------------------------------------------------------------------------

    @property
    def swallows(self) -> bool:
        return self._mode == "swallow"

    def wait(self) -> None:
        if self._delay:
            time.sleep(self._delay)

    def ended(self, pair: _Pair) -> None:
        self._pairs.discard(pair)


class _Pair:
    """A client, and its connection to the server."""

    def __init__(
        self, proxy: DatabaseProxy, client: socket.socket, server: socket.socket, *, silent: bool
    ) -> None:
        self.silent = silent  # it lost bytes, or will
        self._proxy = proxy
        self._client = client
        self._server = server

    def start(self) -> None:
        for source, target in ((self._client, self._server), (self._server, self._client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._proxy.wait()
                if self.silent:
                    self._proxy.swallowed.set()
                else:
                    target.sendall(data)
        if not self.silent:
            self._close(socket.SHUT_RDWR)

    def reset(self) -> None:
        with suppress(OSError):  # closed before
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close(socket.SHUT_RD)

    def _close(self, how: int) -> None:
        self._proxy.ended(self)
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(how)  # ends the other thread's wait
            each.close()


def _refuse(client: socket.socket) -> None:
    """What a Postgres says when all its connections are in use."""
    with suppress(OSError), client:
        client.recv(_CHUNK)
        client.sendall(b"E" + struct.pack("!i", len(_FULL) + 4) + _FULL)
        client.recv(_CHUNK)
