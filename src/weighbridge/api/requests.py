"""One log line a request: method, route, status, time. No address, no query, no key: those are personal."""

from __future__ import annotations

import time
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()


class RequestLog:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, told = time.perf_counter(), {"status": 0}

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route: Any = scope.get("route")
            path = getattr(route, "path", "unknown")
            if path not in ("/healthz", "/readyz"):
                milliseconds = round((time.perf_counter() - began) * 1000, 1)
                log.info("request", method=scope["method"], route=path, ms=milliseconds, **told)
