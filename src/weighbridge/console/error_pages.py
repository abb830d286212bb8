"""Errors of pages: shown as a page, as a message on the page with the form, or as a redirect to sign-in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import Response

from weighbridge.api.access import is_page
from weighbridge.console.csrf import split_url
from weighbridge.console.layout import back, inside, show


def answer_as_pages(site: FastAPI) -> None:
    """Show refusals as pages with the API's message; redirect to sign-in or, after a form, to the form's page."""
    for kind, handler in list(site.exception_handlers.items()):
        site.exception_handlers[kind] = _as_page(handler)


def _as_page(handler: Callable[..., Any]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        response: Response = await handler(request, error)
        if not is_page(request.scope.get("endpoint")) and not _unknown_page(request):
            return response
        problem = json.loads(bytes(response.body) or b"{}")
        if response.status_code == 401:
            asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            wanted = asked if request.method == "GET" else _referer(request)
            next_ = quote(inside(wanted), safe="/")
            # On the first visit, show no message about how API clients send a key.
            sentence = problem.get("message", "") if problem.get("error") == "session_ended" else ""
            return await back(request, f"/sign-in?next={next_}", sentence)
        sentence = problem.get("message", "")
        if request.method == "POST" and (came_from := _referer(request)):
            return await back(request, came_from, sentence)
        shown = await show(
            request, "refused.html", response.status_code, sentence=sentence, http_status=response.status_code
        )
        for name in ("allow", "retry-after"):
            if name in response.headers:
                shown.headers[name] = response.headers[name]
        return shown

    return answer


def _unknown_page(request: Request) -> bool:
    """An unknown path, requested by a browser."""
    asked = "text/html" in request.headers.get("accept", "")
    return asked and "endpoint" not in request.scope and not request.url.path.startswith("/api")


def _referer(request: Request) -> str:
    """The page of this site that contained the form."""
    came_from = split_url(request.headers.get("referer", ""))
    if came_from.netloc != request.headers.get("host") or came_from.path == "/sign-in":
        return ""
    return inside(came_from.path + (f"?{came_from.query}" if came_from.query else ""))
