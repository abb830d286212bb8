"""`/healthz`: the process is alive. `/readyz`: it is also connected to the database."""

from __future__ import annotations

from fastapi import APIRouter

from weighbridge.api.access import TheApp, public
from weighbridge.api.error_responses import Problem
from weighbridge.api.uploads.models import Health
from weighbridge.postgres import clock

router = APIRouter(tags=["health"])


@router.get("/healthz", openapi_extra={"security": []})
@public
async def healthz() -> Health:
    """The process is alive."""
    return Health(status="ok")


@router.get(
    "/readyz",
    openapi_extra={"security": []},
    responses={503: {"model": Problem, "description": "The database does not respond."}},
)
@public
async def readyz(app: TheApp) -> Health:
    """The process is ready: the database responds."""
    async with app.db.tx() as tx:
        await clock.now(tx)
    return Health(status="ok")
