"""Who may come in: a key, its scopes, its workspace.

A route says `@needs("read")`, or `@opened` for anyone, or `@by_cron()` for the schedule, which has a secret of its own
and no workspace. One that says nothing lets nobody in. A browser comes with a session or an upload token instead of a
key (sessions.py); what a session changes, it must also say with its CSRF token.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI
from fastapi.requests import HTTPConnection
from fastapi.security.utils import get_authorization_scheme_param
from starlette.websockets import WebSocket

from weighbridge.access import keys
from weighbridge.access.keys import ApiKey
from weighbridge.api.sessions import COOKIE, TOKEN, Passes, Session, same
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_SCOPE = "weighbridge_scope"
CRON = "cron"  # no key has this scope
_NOT_IN_PRODUCTION = "weighbridge_not_in_production"
_PAGE = "weighbridge_page"
_BROWSERS = "weighbridge_browsers"
_SAFE = ("GET", "HEAD", "OPTIONS")

SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]  # either will do, says OpenAPI
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key: `wb_…`"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def needs(scope: str, *, browsers: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Open a route to keys with this scope; with `browsers` to upload tokens, too."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _SCOPE, scope)
        setattr(endpoint, _BROWSERS, browsers)
        return endpoint

    return mark


def opened(endpoint: Endpoint) -> Endpoint:
    """Open a route to anyone."""
    setattr(endpoint, _SCOPE, "")
    return endpoint


def as_page(endpoint: Endpoint) -> Endpoint:
    """A page of the console, not a route for programs: refusals are pages too, and forms bring their CSRF token."""
    setattr(endpoint, _PAGE, True)
    return endpoint


def is_page(endpoint: object) -> bool:
    return getattr(endpoint, _PAGE, False)


def by_cron(*, in_production: bool = True) -> Callable[[Endpoint], Endpoint]:
    """Allow requests with CRON_SECRET. A route that is not for production is refused there in any case."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _SCOPE, CRON)
        setattr(endpoint, _NOT_IN_PRODUCTION, not in_production)
        return endpoint

    return mark


def scope_of(endpoint: object) -> str | None:
    """The scope that opens an endpoint: empty for anyone, None for nobody."""
    return getattr(endpoint, _SCOPE, None)


async def guard(connection: HTTPConnection) -> None:
    """Runs before every route. WebSockets check their key themselves, as it may come in a message."""
    endpoint = connection.scope.get("endpoint")
    scope = scope_of(endpoint)
    if scope is None:
        raise RequestRefused(403, "closed", "This route is not open to anyone.")
    if not scope or isinstance(connection, WebSocket):
        return
    if scope == CRON:
        _admit_cron(app_of(connection), connection, endpoint)
        return
    secret = secret_of(connection)
    if secret is None and (cookie := connection.cookies.get(COOKIE)):
        session = await _admit_session(connection, cookie, endpoint)
        connection.state.session = session
        connection.state.key = _allowed(session.key, scope)
        return
    if secret is not None and secret.startswith(TOKEN):
        key = await _admit_token(connection, secret)
        if not getattr(endpoint, _BROWSERS, False):
            raise RequestRefused(
                403, "wrong_scope", "An upload token hands over files, and does nothing else."
            )
        connection.state.key = _allowed(key, scope)
        return
    connection.state.key = await admit(app_of(connection), secret, scope)


async def admit(app: App, secret: str | None, scope: str) -> ApiKey:
    """The key, or RequestRefused: 401 for no valid one, 403 for one that may not do this."""
    if not secret:
        raise RequestRefused(
            401, "missing_key", "Send a key: Authorization: Bearer wb_…, or X-Api-Key: wb_…."
        )
    async with app.db.tx() as tx:
        key = await keys.find(tx, secret)
    if key is None:
        raise RequestRefused(401, "wrong_key", "This key is not known, or no longer valid.")
    return _allowed(key, scope)


async def _admit_session(connection: HTTPConnection, cookie: str, endpoint: object) -> Session:
    passes: Passes = connection.app.state.passes
    session = await passes.session(cookie)
    if session is None:
        raise RequestRefused(401, "session_ended", "This session has ended. Sign in again.")
    # A form cannot set a header: pages read the token from its fields (console/frame.py).
    unsafe = connection.scope["method"] not in _SAFE and not is_page(endpoint)
    if unsafe and not same(connection.headers.get("x-csrf-token"), session.csrf):
        message = (
            "Send the session's X-CSRF-Token with what changes something, or a key instead of the session."
        )
        raise RequestRefused(403, "wrong_csrf_token", message)
    return session


async def _admit_token(connection: HTTPConnection, token: str) -> ApiKey:
    passes: Passes = connection.app.state.passes
    key = await passes.bearer(token)
    if key is None:
        message = "This upload token is not known, or no longer valid. Ask for another: POST /api/tokens."
        raise RequestRefused(401, "token_ended", message)
    return key


def _allowed(key: ApiKey, scope: str) -> ApiKey:
    if not key.may(scope):
        message = f"This key may {', '.join(key.scopes)}; this needs the scope {scope}."
        raise RequestRefused(403, "wrong_scope", message)
    return key


def _admit_cron(app: App, connection: HTTPConnection, endpoint: object) -> None:
    settings = app.settings
    if getattr(endpoint, _NOT_IN_PRODUCTION, False) and settings.in_production:
        # Before anything else is looked at, so that it says the same to everyone.
        message = (
            "Not in production (WEIGHBRIDGE_ENVIRONMENT, NODE_ENV). A key with the scope admin can do it there: "
            "PUT /api/sites/{id}/credentials/{provider}."
        )
        raise RequestRefused(403, "not_in_production", message)
    if settings.trust_vercel_cron and connection.headers.get("x-vercel-cron") == "1":
        return
    secret = settings.cron_secret.get_secret_value() if settings.cron_secret else ""
    if not secret:
        message = "Cron routes are closed. Set CRON_SECRET and send it: Authorization: Bearer …"
        raise RequestRefused(403, "cron_closed", message)
    scheme, given = get_authorization_scheme_param(connection.headers.get("authorization"))
    # Headers are read as Latin-1; these are the bytes that came.
    right = hmac.compare_digest(given.encode("latin-1"), secret.encode())
    if scheme.lower() != "bearer" or not right:
        raise RequestRefused(401, "wrong_secret", "Send CRON_SECRET: Authorization: Bearer …")


def secret_of(connection: HTTPConnection) -> str | None:
    scheme, token = get_authorization_scheme_param(connection.headers.get("authorization"))
    return token if scheme.lower() == "bearer" and token else connection.headers.get("x-api-key")


def describe_keys(api: FastAPI) -> None:
    """Have OpenAPI say how a key is sent; the guard reads the headers itself."""
    described = api.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.setdefault("components", {})["securitySchemes"] = _SCHEMES
        return schema

    api.openapi = openapi  # type: ignore[method-assign]


def app_of(connection: HTTPConnection) -> App:
    app: App = connection.app.state.app
    return app


# Coroutines, though they wait for nothing: FastAPI would run plain functions in a thread.
async def _the_app(connection: HTTPConnection) -> App:
    return app_of(connection)


async def _the_key(connection: HTTPConnection) -> ApiKey:
    key: ApiKey = connection.state.key
    return key


Key = Annotated[ApiKey, Depends(_the_key)]
TheApp = Annotated[App, Depends(_the_app)]
