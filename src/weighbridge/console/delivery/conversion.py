"""`/deliveries/{sale_id}`: one sale, its delivery to each provider, and the proof."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, Response

from weighbridge.api.access import Key, TheApp
from weighbridge.api.delivery.conversions import get_conversion
from weighbridge.console import filters, layout
from weighbridge.console.delivery.index import put_back
from weighbridge.delivery import conversions, sites
from weighbridge.delivery.conversions import SALE_CANCELED
from weighbridge.delivery.queue import FailedFilter
from weighbridge.postgres import roles

router = layout.router()


@router.get("/deliveries/{sale_id}")
@layout.page("read")
async def shown(request: Request, sale_id: UUID, key: Key, app: TheApp) -> HTMLResponse:
    whole = await get_conversion(sale_id, key, app)
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        site = await sites.get_site(tx, key.workspace_id, whole.site_id)
        groups = await conversions.groups(tx, key.workspace_id, site_id=whole.site_id)
    return await layout.show(
        request,
        "conversion.html",
        sale=whole,
        fact=whole.deliveries[0],  # the sale's own fields are the same for all providers
        site=site,
        groups={each.provider_key: each for each in groups},
        active=any(each.status in ("QUEUED", "RETRY", "PROCESSING") for each in whole.deliveries)
        or any(each.confirmation == "AWAITED" for each in whole.deliveries),
        signs=filters.CONVERSIONS,
        circuits=filters.CIRCUITS,
        canceled=SALE_CANCELED,
    )


@router.post("/deliveries/{sale_id}/requeue")
@layout.page("operate")
async def requeue(
    request: Request,
    sale_id: UUID,
    key: Key,
    app: TheApp,
    provider: Annotated[str, Form(max_length=100, pattern=layout.NO_NUL)],
) -> Response:
    sentence = await put_back(app, key, FailedFilter(provider_key=provider, sales=[sale_id]))
    return await layout.back(request, f"/deliveries/{sale_id}", sentence)
