"""`/sign-in`: start a session with an API key. The key itself is not stored."""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from weighbridge.api.access import TheApp, admit, as_page, public
from weighbridge.api.sessions import COOKIE, SESSION_LASTS, Sessions
from weighbridge.console import layout
from weighbridge.model.errors import RequestRefused

router = layout.router()
log = structlog.get_logger()


@router.get("/sign-in")
@as_page
@public
async def ask(request: Request, next: Annotated[str, Query()] = "/") -> HTMLResponse:
    return await layout.show(request, "sign_in.html", next=layout.inside(next), wrong="")


@router.post("/sign-in")
@as_page
@public
async def sign_in(
    request: Request,
    app: TheApp,
    key: Annotated[str, Form(max_length=200)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",
) -> Response:
    try:
        found = await admit(app, key.strip(), "read")
    except RequestRefused as refusal:
        log.info("console.sign_in_refused", reason=refusal.code)
        sentence = "Enter an API key." if refusal.code == "missing_key" else refusal.message
        return await layout.show(
            request, "sign_in.html", refusal.status, next=layout.inside(next), wrong=sentence
        )
    sessions: Sessions = request.app.state.sessions
    answer = RedirectResponse(layout.inside(next), 303)
    answer.set_cookie(
        COOKIE,
        await sessions.begin(found),
        max_age=int(SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/sign-out")
@layout.page("read")
async def sign_out(request: Request) -> Response:
    answer = await layout.back(request, "/sign-in", "You are signed out.")
    answer.delete_cookie(COOKIE)
    return answer
