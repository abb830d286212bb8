"""`/api/metrics`: counts of one workspace. `/metrics`: metrics of the whole service, for Prometheus."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel, Field, field_validator

from weighbridge.api.access import SECURITY, Key, TheApp, needs, opened
from weighbridge.api.problems import Problem, documented
from weighbridge.app import App
from weighbridge.engine import figures
from weighbridge.model.errors import RequestRefused
from weighbridge.observe import metrics

router = APIRouter(tags=["metrics"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus's text."},
    401: {"model": Problem, "description": "No token, or a wrong one."},
    404: {"model": Problem, "description": "WEIGHBRIDGE_METRICS_TOKEN is not set."},
    503: {"model": Problem, "description": "The database does not answer."},
}


class IngestOut(BaseModel):
    """How a workspace's uploads fare. A batch is called as its sender called it, or by its upload."""

    backlog_count: int = Field(description="Uploads that have not ended.")
    last_failed_batch: str | None = Field(examples=["simplicity-2026-01-07.csv"])
    last_failed_at: datetime | None = Field(examples=["2026-01-07T14:32:00Z"])
    failed_24h: int = Field(description="Uploads that failed in the last 24 hours.")
    stale_runs: int = Field(description="Runs of over an hour that nobody works on.")
    avg_processing_seconds: float | None = Field(
        description="From the first claim to the end, of all uploads that ended well."
    )

    @field_validator("last_failed_at")
    @classmethod
    def _whole_seconds_of_utc(cls, value: datetime | None) -> datetime | None:
        return value and value.astimezone(UTC).replace(microsecond=0)


class MetricsOut(BaseModel):
    ingest: IngestOut


@router.get("/api/metrics", responses=documented(), openapi_extra={"security": SECURITY})
@needs("read")
async def workspace_metrics(key: Key, app: TheApp) -> MetricsOut:
    """What waits, what failed, how long it takes: the workspace's uploads in a few numbers."""
    async with app.db.tx("weighbridge_tenant", key.workspace_id) as tx:
        found = await figures.of_workspace(tx)
    return MetricsOut(ingest=IngestOut(**vars(found)))


@router.get(
    "/metrics", response_class=Response, responses=_ANSWERS, openapi_extra={"security": [{"bearer": []}]}
)
@opened  # not by a key: it shows all workspaces together
async def service_metrics(request: Request, app: TheApp) -> Response:
    """For Prometheus. Opened by the token in WEIGHBRIDGE_METRICS_TOKEN, sent as a bearer; no key opens it."""
    _admit(app, request.headers.get("authorization"))
    async with app.db.tx() as tx:
        found = await figures.of_service(tx)
    return Response(metrics.exposition(vars(found)), media_type=metrics.CONTENT_TYPE)


def _admit(app: App, authorization: str | None) -> None:
    token = app.settings.metrics_token
    if not token:
        message = "Metrics are closed. Set WEIGHBRIDGE_METRICS_TOKEN and send it: Authorization: Bearer …"
        raise RequestRefused(404, "metrics_closed", message)
    scheme, given = get_authorization_scheme_param(authorization)
    # Headers are read as Latin-1; these are the bytes that came.
    right = hmac.compare_digest(given.encode("latin-1"), token.get_secret_value().encode())
    if scheme.lower() != "bearer" or not right:
        message = "Send the token in WEIGHBRIDGE_METRICS_TOKEN: Authorization: Bearer …"
        raise RequestRefused(401, "wrong_token", message)
