"""Protection against forged forms: the Origin header and the session's CSRF token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from fastapi import Request

from weighbridge.api.sessions import Session, same
from weighbridge.model.errors import RequestRefused

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_FILES = "weighbridge_files"


def with_files(endpoint: Endpoint) -> Endpoint:
    """A form with files, which are read on demand: the route itself checks the CSRF token in the first field."""
    setattr(endpoint, _FILES, True)
    return endpoint


def _takes_files(endpoint: object) -> bool:
    return getattr(endpoint, _FILES, False)


async def refuse_forged_forms(request: Request) -> None:
    """A dependency of all routers of pages."""
    if request.method != "POST":
        return
    origin = request.headers.get("origin")
    if origin is not None and split_url(origin).netloc != request.headers.get("host"):
        raise RequestRefused(403, "other_origin", "This form was sent by another site.")
    session: Session | None = getattr(request.state, "session", None)
    kind = request.headers.get("content-type", "").partition(";")[0]
    if session is None or (kind == "multipart/form-data" and _takes_files(request.scope.get("endpoint"))):
        return  # no session to protect, or the route checks the token itself
    if kind != "application/x-www-form-urlencoded":
        raise RequestRefused(415, "unsupported_media_type", "Expected a form of this site.")
    check_csrf(session, str((await request.form()).get("csrf", "")))


def check_csrf(session: Session, given: str) -> None:
    if not same(given, session.csrf):
        raise RequestRefused(403, "wrong_csrf_token", "This form is out of date. Load the page again.")


def split_url(url: str) -> SplitResult:
    """The parts of a URL; empty if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
