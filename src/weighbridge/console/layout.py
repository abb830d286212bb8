"""Shared by all pages: routers, rendering, and redirects after forms.

@router.get("/uploads")          router = layout.router()
@layout.page("read")              the required scope
async def show(request: Request, key: Key, app: TheApp) -> HTMLResponse:
    return await layout.show(request, "uploads.html", uploads=…)

@router.post("/uploads/{upload_id}/retry")
@layout.page("operate")
async def retry(request: Request, …) -> Response:
    …                            a RequestRefused is shown as a message on the page
    return await layout.back(request, f"/uploads/{upload_id}", "The upload is queued again.")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from weighbridge.api.access import as_page, needs
from weighbridge.api.sessions import Session, Sessions
from weighbridge.api.validation_messages import NO_NUL as NO_NUL
from weighbridge.console import assets, filters
from weighbridge.console.csrf import refuse_forged_forms, split_url

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
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
_PAGES.filters.update(filters.FILTERS)


class _Pages(APIRouter):
    """A router that answers HEAD wherever it answers GET: monitors use HEAD."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if "GET" in (options.get("methods") or ()):
            options["methods"] = ["GET", "HEAD"]
        super().add_api_route(path, endpoint, **options)


def router() -> APIRouter:
    return _Pages(include_in_schema=False, dependencies=[Depends(refuse_forged_forms)])


def page(scope: str) -> Callable[[Endpoint], Endpoint]:
    """A page that requires this scope."""
    return lambda endpoint: as_page(needs(scope)(endpoint))


async def show(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page, with the message that the previous request left for it."""
    session: Session | None = getattr(request.state, "session", None)
    note = request.cookies.get(NOTE)
    sessions: Sessions = request.app.state.sessions
    html = _PAGES.get_template(template).render(
        session=session,
        may=session.key.may if session else (lambda scope: False),
        csrf=session.csrf if session else "",
        here=request.url.path,
        noted=await sessions.read_note(note) if note else "",
        static=assets.address,
        **context,
    )
    answer = HTMLResponse(html, status, headers=_HEADERS)
    if note and "x-fresh" not in request.headers:  # a refresh must not consume the message
        answer.delete_cookie(NOTE)
    return answer


async def back(request: Request, path: str, sentence: str = "") -> Response:
    """Redirect after a form. The page shows the sentence once."""
    answer = RedirectResponse(path, 303, headers={"Cache-Control": "no-store"})
    if sentence:
        sessions: Sessions = request.app.state.sessions
        noted = await sessions.noted(sentence)
        answer.set_cookie(
            NOTE, noted, max_age=60, httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )
    return answer


def inside(path: str | None) -> str:
    """The path if it is a page of this site, else the front page: prevents open redirects."""
    parts = split_url(path or "")
    ours = not parts.scheme and not parts.netloc and parts.path.startswith("/") and "\\" not in (path or "")
    return path or "/" if ours and not (path or "").startswith("//") else "/"
