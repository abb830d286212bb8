"""`/api/metrics`: counts of one workspace. `/metrics`: metrics of the whole service, for Prometheus."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel, Field, field_validator

from weighbridge import service_figures
from weighbridge.api.access import SECURITY, Key, TheApp, needs, public
from weighbridge.api.error_responses import Problem, documented
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.observe import metrics
from weighbridge.postgres import roles
from weighbridge.uploads import figures

router = APIRouter(tags=["metrics"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/plain": {"schema": {"type": "string"}}},
        "description": "Metrics in Prometheus text format.",
    },
    401: {"model": Problem, "description": "The token is missing or wrong."},
    404: {"model": Problem, "description": "WEIGHBRIDGE_METRICS_TOKEN is not set."},
    503: {"model": Problem, "description": "The database does not respond."},
}


class IngestOut(BaseModel):
    """Counts of a workspace's uploads. A batch is named by its sender, or by its upload id."""

    backlog_count: int = Field(description="Uploads that have not ended and are not on hold.")
    last_failed_batch: str | None = Field(examples=["simplicity-2026-01-07.csv"])
    last_failed_at: datetime | None = Field(examples=["2026-01-07T14:32:00Z"])
    failed_24h: int = Field(description="Uploads that failed in the last 24 hours.")
    stale_runs: int = Field(description="Runs older than an hour that no worker processes.")
    avg_processing_seconds: float | None = Field(
        description="Average time from the first claim to the end, of completed and partial uploads."
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
    """Backlog, failures and processing time of the workspace's uploads."""
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await figures.of_workspace(tx)
    return MetricsOut(ingest=IngestOut(**vars(found)))


@router.get(
    "/metrics", response_class=Response, responses=_ANSWERS, openapi_extra={"security": [{"bearer": []}]}
)
@public  # not protected by a key: it covers all workspaces
async def service_metrics(request: Request, app: TheApp) -> Response:
    """Metrics for Prometheus. Requires WEIGHBRIDGE_METRICS_TOKEN as a bearer token; API keys are not accepted."""
    _admit(app, request.headers.get("authorization"))
    async with app.db.tx() as tx:
        found = await service_figures.of_service(tx)
    return Response(metrics.exposition(vars(found)), media_type=metrics.CONTENT_TYPE)


def _admit(app: App, authorization: str | None) -> None:
    token = app.settings.metrics_token
    if not token:
        message = "Metrics are disabled. Set WEIGHBRIDGE_METRICS_TOKEN and send it: Authorization: Bearer …"
        raise RequestRefused(404, "metrics_closed", message)
    scheme, given = get_authorization_scheme_param(authorization)
    # Headers are decoded as Latin-1; encode them again to compare the original bytes.
    right = hmac.compare_digest(given.encode("latin-1"), token.get_secret_value().encode())
    if scheme.lower() != "bearer" or not right:
        message = "Send the token in WEIGHBRIDGE_METRICS_TOKEN: Authorization: Bearer …"
        raise RequestRefused(401, "wrong_token", message)
