"""Shared by all pages: layout, session, protection against forged forms, and error messages.

@router.get("/uploads")          router = frame.router()
@frame.page("read")              the required scope
async def show(request: Request, key: Key, app: TheApp) -> HTMLResponse:
    return await frame.show(request, "uploads.html", uploads=…)

@router.post("/uploads/{upload_id}/retry")
@frame.page("operate")
async def retry(request: Request, …) -> Response:
    …                            a RequestRefused is shown as a message on the page
    return await frame.back(request, f"/uploads/{upload_id}", "The upload is queued again.")
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from weighbridge.api.access import as_page, is_page, needs
from weighbridge.api.invalid import NO_NUL as NO_NUL
from weighbridge.api.sessions import Passes, Session, same
from weighbridge.console import assets, words
from weighbridge.model.errors import RequestRefused

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_FILES = "weighbridge_files"
NOTE = "wb_note"  # a cookie with a message for the next page
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers hide the origin of a form
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGES = Environment(
    loader=PackageLoader("weighbridge.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters.update(words.FILTERS)


class _Pages(APIRouter):
    """A router that answers HEAD wherever it answers GET: monitors use HEAD."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **how: Any) -> None:
        if "GET" in (how.get("methods") or ()):
            how["methods"] = ["GET", "HEAD"]
        super().add_api_route(path, endpoint, **how)


def router() -> APIRouter:
    return _Pages(include_in_schema=False, dependencies=[Depends(_ours)])


def page(scope: str) -> Callable[[Endpoint], Endpoint]:
    """A page that requires this scope."""
    return lambda endpoint: as_page(needs(scope)(endpoint))


def with_files(endpoint: Endpoint) -> Endpoint:
    """A form with files, which are read on demand: the route itself checks the CSRF token in the first field."""
    setattr(endpoint, _FILES, True)
    return endpoint


def takes_files(endpoint: object) -> bool:
    return getattr(endpoint, _FILES, False)


async def show(request: Request, template: str, answer_code: int = 200, **context: Any) -> HTMLResponse:
    """Render a page, with the message that the previous request left for it."""
    session: Session | None = getattr(request.state, "session", None)
    note = request.cookies.get(NOTE)
    passes: Passes = request.app.state.passes
    html = _PAGES.get_template(template).render(
        session=session,
        may=session.key.may if session else (lambda scope: False),
        csrf=session.csrf if session else "",
        here=request.url.path,
        noted=await passes.read_note(note) if note else "",
        static=assets.address,
        **context,
    )
    answer = HTMLResponse(html, answer_code, headers=_HEADERS)
    if note and "x-fresh" not in request.headers:  # a refresh must not consume the message
        answer.delete_cookie(NOTE)
    return answer


async def back(request: Request, path: str, sentence: str = "") -> Response:
    """Redirect after a form. The page shows the sentence once."""
    answer = RedirectResponse(path, 303, headers={"Cache-Control": "no-store"})
    if sentence:
        passes: Passes = request.app.state.passes
        noted = await passes.noted(sentence)
        answer.set_cookie(
            NOTE, noted, max_age=60, httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )
    return answer


def inside(path: str | None) -> str:
    """The path if it is a page of this site, else the front page: prevents open redirects."""
    parts = _split(path or "")
    ours = not parts.scheme and not parts.netloc and parts.path.startswith("/") and "\\" not in (path or "")
    return path or "/" if ours and not (path or "").startswith("//") else "/"


async def _ours(request: Request) -> None:
    """Refuse forged forms: check the session's CSRF token and the Origin header."""
    if request.method != "POST":
        return
    origin = request.headers.get("origin")
    if origin is not None and _split(origin).netloc != request.headers.get("host"):
        raise RequestRefused(403, "other_origin", "This form came from another site.")
    session: Session | None = getattr(request.state, "session", None)
    kind = request.headers.get("content-type", "").partition(";")[0]
    if session is None or (kind == "multipart/form-data" and takes_files(request.scope.get("endpoint"))):
        return  # no session to protect, or the route checks the token itself
    if kind != "application/x-www-form-urlencoded":
        raise RequestRefused(415, "unsupported_media_type", "Expected a form of this site.")
    check_csrf(session, str((await request.form()).get("csrf", "")))


def check_csrf(session: Session, given: str) -> None:
    if not same(given, session.csrf):
        raise RequestRefused(403, "wrong_csrf_token", "This form is out of date. Load the page again.")


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
            request, "refused.html", response.status_code, sentence=sentence, status=response.status_code
        )
        for name in ("allow", "retry-after"):
            if name in response.headers:
                shown.headers[name] = response.headers[name]
        return shown

    return answer


def _split(url: str) -> SplitResult:
    """The parts of a URL; empty if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _unknown_page(request: Request) -> bool:
    """An unknown path, requested by a browser."""
    asked = "text/html" in request.headers.get("accept", "")
    return asked and "endpoint" not in request.scope and not request.url.path.startswith("/api")


def _referer(request: Request) -> str:
    """The page of this site that contained the form."""
    came_from = _split(request.headers.get("referer", ""))
    if came_from.netloc != request.headers.get("host") or came_from.path == "/sign-in":
        return ""
    return inside(came_from.path + (f"?{came_from.query}" if came_from.query else ""))
