"""`/health`: backlog, failures and processing times over a period, and open alerts."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from weighbridge import service_figures
from weighbridge.api.access import Key, TheApp
from weighbridge.console import layout
from weighbridge.postgres import roles
from weighbridge.uploads import browse, figures

router = layout.router()
PERIODS = {
    "day": ("24 hours", timedelta(hours=1), 24),
    "week": ("7 days", timedelta(hours=6), 28),
    "month": ("30 days", timedelta(days=1), 30),
}


@router.get("/health")
@layout.page("read")
async def show(
    request: Request, key: Key, app: TheApp, period: Annotated[str, Query()] = "day"
) -> HTMLResponse:
    period = period if period in PERIODS else "day"
    _, each, number = PERIODS[period]
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        workspace = await figures.of_workspace(tx)
        counts = await browse.state_counts(tx, key.workspace_id)
        intervals = await figures.intervals(tx, each, number)
        letters = await figures.dead_letters(tx, 10)
    async with app.db.tx(workspace_id=key.workspace_id) as tx:  # tenants cannot read the table of alerts
        alerts = await service_figures.open_alerts(tx, of_service=key.may("admin"))
    return await layout.show(
        request,
        "health.html",
        figures=workspace,
        counts=counts,
        intervals=intervals,
        letters=letters,
        alerts=alerts,
        period=period,
        periods=[(name, label) for name, (label, _, _) in PERIODS.items()],
    )
