"""`/healthz`: the process answers. `/readyz`: it can work, too."""

from __future__ import annotations

from fastapi import APIRouter

from weighbridge.api.access import TheApp, opened
from weighbridge.api.problems import Problem
from weighbridge.api.uploads.models import Health
from weighbridge.postgres import clock

router = APIRouter(tags=["health"])


@router.get("/healthz", openapi_extra={"security": []})
@opened
async def healthz() -> Health:
    """Alive."""
    return Health(status="ok")


@router.get(
    "/readyz",
    openapi_extra={"security": []},
    responses={503: {"model": Problem, "description": "The database does not answer."}},
)
@opened
async def readyz(app: TheApp) -> Health:
    """Ready: the database answers."""
    async with app.db.tx() as tx:
        await clock.now(tx)
    return Health(status="ok")
