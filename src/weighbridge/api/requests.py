"""One log line and one span per request: method, route, status, time. No personal data: no address, query or key.

The caller's `traceparent` is continued if there is one; the response contains the trace id in `X-Trace-Id`.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weighbridge.observe import traces

log = structlog.get_logger()


class RequestLog:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, outcome = time.perf_counter(), {"status": 0}
        with traces.span("request", Headers(scope=scope).get("traceparent")) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    outcome["status"] = message["status"]
                    MutableHeaders(scope=message)["x-trace-id"] = span.trace_id
                await send(message)

            try:
                await self.app(scope, receive, watched)
            finally:
                route: Any = scope.get("route")
                path = getattr(route, "path", "unknown")
                span.note(f"{scope['method']} {path}", **{"http.response.status_code": outcome["status"]})
                if path not in ("/healthz", "/readyz", "/metrics"):
                    milliseconds = round((time.perf_counter() - began) * 1000, 1)
                    log.info("request", method=scope["method"], route=path, ms=milliseconds, **outcome)
