"""The HTTP API. A route without a declared scope refuses every request.

Every request
    cors             cross-origin requests from the allowed origins
    requests         one log line and one span per request
    access           API keys, scopes and workspaces; sessions checks the credentials of browsers
    bodies           JSON bodies, read after authentication; validation_messages: its errors in words
    cursor           cursors of lists
    error_responses  exceptions → error responses

Routes
    uploads/, projects/, delivery/, storage/  the routes of each subject
    live_updates     notifications of the database → the open live connections
    tokens           upload tokens for pages on other origins
    health           `/healthz` and `/readyz`
    metrics          `/metrics` and `/api/metrics`
    pages            `/api/docs`; reference makes its HTML from the OpenAPI document
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI

from weighbridge.api import health, metrics, pages, tokens
from weighbridge.api.access import describe_keys, guard
from weighbridge.api.cors import Cors
from weighbridge.api.delivery import conversions, cron, providers, sites
from weighbridge.api.error_responses import answer_problems
from weighbridge.api.live_updates import Hub
from weighbridge.api.projects import groups
from weighbridge.api.projects import manage as projects_manage
from weighbridge.api.requests import RequestLog
from weighbridge.api.sessions import Sessions
from weighbridge.api.storage import usage
from weighbridge.api.uploads import live, preview, recognise, rejects, resumable, upload_route
from weighbridge.api.uploads import manage as uploads_manage
from weighbridge.api.uploads.exclusive_requests import ExclusiveRequests
from weighbridge.api.uploads.tus_headers import Tus
from weighbridge.app import App

_ABOUT = """
Load export files into Postgres exactly once. Send a key as `Authorization: Bearer wb_…` or `X-Api-Key: wb_…`;
create one with `weighbridge keys create`. A key belongs to a workspace and has scopes: `upload`, `read`,
`operate`, `admin` (all of them). Every error is `{"error": code, "message": sentence}`.

**Live updates.** `GET /api/live` streams server-sent events. `WS /api/ws` sends the same messages over a WebSocket:
send the key as a header, or as the first message, `{"key": "wb_…"}`. Messages are JSON objects with a `type`:
`snapshot` (`uploads`: the newest 200 unfinished uploads; `truncated`: there are more), `upload` (one of them changed),
`IngestionCompleteEvent` (one is complete).
"""


def create(app: App, stop: asyncio.Event | None = None) -> FastAPI:
    """Create the API for an open application. Setting `stop` ends the event streams, which never end otherwise."""
    hub, exclusive_requests = Hub(app.db), ExclusiveRequests()

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with hub.running(stop), exclusive_requests.running(stop):
            yield

    api = FastAPI(
        title="Weighbridge",
        version=_version(),
        description=_ABOUT,
        lifespan=lifespan,
        dependencies=[Depends(guard)],
        openapi_url="/api/openapi.json",
        docs_url=None,  # pages.py serves our own page: FastAPI's loads scripts from another host
        redoc_url=None,
    )
    api.state.app = app
    api.state.hub = hub
    api.state.exclusive_requests = exclusive_requests
    api.state.sessions = Sessions(app.db)
    uploading = (tokens, recognise, upload_route, resumable, uploads_manage, rejects, preview)
    delivering = (conversions, sites, providers, cron)
    for part in (*uploading, projects_manage, groups, *delivering, live, metrics, usage, health, pages):
        api.include_router(part.router)
    answer_problems(api)
    api.add_middleware(Tus, max_size=app.ctx.limits.max_upload_bytes)
    if app.settings.cors_origins:
        api.add_middleware(Cors, origins=app.settings.cors_origins)
    api.add_middleware(RequestLog)
    describe_keys(api)
    return api


def _version() -> str:
    try:
        return version("weighbridge")
    except PackageNotFoundError:
        return "0"


__all__ = ["create"]
