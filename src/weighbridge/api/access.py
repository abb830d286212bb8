"""Access control: API keys, their scopes and their workspace.

A route declares `@needs("read")`, `@public` (public) or `@by_cron()` (for the scheduler, with a separate secret
and no workspace). A route without a declaration refuses every request. A browser sends a session or an upload token
instead of a key (sessions.py). Requests that change data with a session need its CSRF token.
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
from weighbridge.api.sessions import COOKIE, TOKEN, Session, Sessions, same
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_SCOPE = "weighbridge_scope"
CRON = "cron"  # no key has this scope
_NOT_IN_PRODUCTION = "weighbridge_not_in_production"
_PAGE = "weighbridge_page"
_BROWSERS = "weighbridge_browsers"
_SAFE = ("GET", "HEAD", "OPTIONS")

SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]  # OpenAPI: either of them
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key: `wb_…`"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def needs(scope: str, *, browsers: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Allow keys with this scope; with `browsers`, also upload tokens."""

    def mark(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _SCOPE, scope)
        setattr(endpoint, _BROWSERS, browsers)
        return endpoint

    return mark


def public(endpoint: Endpoint) -> Endpoint:
    """Make a route public."""
    setattr(endpoint, _SCOPE, "")
    return endpoint


def as_page(endpoint: Endpoint) -> Endpoint:
    """A page of the console: refusals are pages too, and forms contain the CSRF token."""
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
    """The scope that an endpoint requires; empty: public; None: no access."""
    return getattr(endpoint, _SCOPE, None)


async def guard(connection: HTTPConnection) -> None:
    """Runs before every route. WebSocket routes check the key themselves: it may arrive in a message."""
    endpoint = connection.scope.get("endpoint")
    scope = scope_of(endpoint)
    if scope is None:
        raise RequestRefused(403, "closed", "This route has no access rule and refuses all requests.")
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
                403,
                "wrong_scope",
                "An upload token can only upload files. Send an API key for other requests.",
            )
        connection.state.key = _allowed(key, scope)
        return
    connection.state.key = await admit(app_of(connection), secret, scope)


async def admit(app: App, secret: str | None, scope: str) -> ApiKey:
    """The key. RequestRefused: 401 if it is missing or invalid, 403 if it lacks the scope."""
    if not secret:
        raise RequestRefused(
            401, "missing_key", "Send a key: Authorization: Bearer wb_…, or X-Api-Key: wb_…."
        )
    async with app.db.tx() as tx:
        key = await keys.find(tx, secret)
    if key is None:
        raise RequestRefused(
            401, "wrong_key", "This key is unknown or no longer valid. Create one: weighbridge keys create."
        )
    return _allowed(key, scope)


async def _admit_session(connection: HTTPConnection, cookie: str, endpoint: object) -> Session:
    sessions: Sessions = connection.app.state.sessions
    session = await sessions.session(cookie)
    if session is None:
        raise RequestRefused(401, "session_ended", "This session has ended. Sign in again.")
    # A form cannot set a header: pages read the token from a field (console/csrf.py).
    unsafe = connection.scope["method"] not in _SAFE and not is_page(endpoint)
    if unsafe and not same(connection.headers.get("x-csrf-token"), session.csrf):
        message = "Requests that change data with a session need its X-CSRF-Token. Or send a key instead."
        raise RequestRefused(403, "wrong_csrf_token", message)
    return session


async def _admit_token(connection: HTTPConnection, token: str) -> ApiKey:
    sessions: Sessions = connection.app.state.sessions
    key = await sessions.bearer(token)
    if key is None:
        message = "This upload token is unknown or no longer valid. Request another: POST /api/tokens."
        raise RequestRefused(401, "token_ended", message)
    return key


def _allowed(key: ApiKey, scope: str) -> ApiKey:
    if not key.may(scope):
        message = f"This key has the scopes {', '.join(key.scopes)}; the request needs the scope {scope}."
        raise RequestRefused(403, "wrong_scope", message)
    return key


def _admit_cron(app: App, connection: HTTPConnection, endpoint: object) -> None:
    settings = app.settings
    if getattr(endpoint, _NOT_IN_PRODUCTION, False) and settings.in_production:
        # Checked first, so that the response does not depend on the secret.
        message = (
            "This route is closed in production (WEIGHBRIDGE_ENVIRONMENT, NODE_ENV). In production, use a key "
            "with the scope admin: PUT /api/sites/{id}/credentials/{provider}."
        )
        raise RequestRefused(403, "not_in_production", message)
    if settings.trust_vercel_cron and connection.headers.get("x-vercel-cron") == "1":
        return
    secret = settings.cron_secret.get_secret_value() if settings.cron_secret else ""
    if not secret:
        message = "Cron routes are closed. Set CRON_SECRET and send it: Authorization: Bearer …"
        raise RequestRefused(403, "cron_closed", message)
    scheme, given = get_authorization_scheme_param(connection.headers.get("authorization"))
    # Headers are decoded as Latin-1; encode them again to compare the original bytes.
    right = hmac.compare_digest(given.encode("latin-1"), secret.encode())
    if scheme.lower() != "bearer" or not right:
        raise RequestRefused(401, "wrong_secret", "Send CRON_SECRET: Authorization: Bearer …")


def secret_of(connection: HTTPConnection) -> str | None:
    scheme, token = get_authorization_scheme_param(connection.headers.get("authorization"))
    return token if scheme.lower() == "bearer" and token else connection.headers.get("x-api-key")


def describe_keys(api: FastAPI) -> None:
    """Describe in OpenAPI how a key is sent; the guard reads the headers itself."""
    described = api.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema.setdefault("components", {})["securitySchemes"] = _SCHEMES
        return schema

    api.openapi = openapi  # type: ignore[method-assign]


def app_of(connection: HTTPConnection) -> App:
    app: App = connection.app.state.app
    return app


# Coroutines although they await nothing: FastAPI runs plain functions in a thread.
async def _the_app(connection: HTTPConnection) -> App:
    return app_of(connection)


async def _the_key(connection: HTTPConnection) -> ApiKey:
    key: ApiKey = connection.state.key
    return key


Key = Annotated[ApiKey, Depends(_the_key)]
TheApp = Annotated[App, Depends(_the_app)]
