"""`/health`: what waits, fails and lingers, over time."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse

from weighbridge.api.access import Key, TheApp
from weighbridge.console import frame
from weighbridge.db import figures

router = frame.router()


@router.get("/health")
@frame.page("read")
async def show(request: Request, key: Key, app: TheApp) -> HTMLResponse:
    async with app.db.tx("weighbridge_tenant", key.workspace_id) as tx:
        found = await figures.of_workspace(tx)
    return await frame.show(request, "health.html", figures=found)
