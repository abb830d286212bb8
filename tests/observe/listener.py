"""A webhook's other end: a real HTTP server on loopback that keeps what it is told, and can refuse or hang."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listener:
    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []  # bodies that were taken
        self.bodies: list[bytes] = []  # everything that came, taken or not
        self.answer = 200
        self.go_on = threading.Event()  # cleared: whoever calls waits
        self.go_on.set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/hook"

    @property
    def messages(self) -> list[str]:
        return [each["message"] for each in self.heard]


@contextmanager
def listening() -> Iterator[Listener]:
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            listener.bodies.append(body)
            listener.go_on.wait(20)
            if listener.answer == 200 and self.headers.get_content_type() == "application/json":
                listener.heard.append(json.loads(body))
            self.send_response(listener.answer)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    listener.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.go_on.set()
        server.shutdown()
        server.server_close()
