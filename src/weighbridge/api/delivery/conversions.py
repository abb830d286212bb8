"""`/api/conversions`: create, list, inspect and retry conversions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from weighbridge.api import bodies, cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.delivery.models import (
    CONVERSIONS_BODY,
    ConversionOut,
    ConversionsOut,
    ConvertedManyOut,
    ConvertedOut,
    DeliveryOut,
    DeliveryStatus,
    EntryOut,
    LedgeredOut,
    RequeuedOut,
    RequeueIn,
    WholeConversionOut,
)
from weighbridge.api.invalid import NO_NUL
from weighbridge.api.problems import documented
from weighbridge.delivery import conversions, sites
from weighbridge.delivery.conversions import Cursor, Entry, Shown, Wanted
from weighbridge.delivery.outbound import ROLE
from weighbridge.delivery.sales import MOST, Written, convert
from weighbridge.model.delivery import Category
from weighbridge.model.errors import RequestRefused

router = APIRouter(tags=["conversions"])

Provider = Annotated[str | None, Query(description="Only those for this provider.", pattern=NO_NUL)]


@router.post(
    "/api/conversions",
    status_code=202,
    response_class=JSONResponse,
    response_model=None,
    responses={
        202: {
            "model": ConvertedOut | ConvertedManyOut,
            "description": "Written: one answer, or a list where a list came.",
        },
        **documented(
            _413="More than 8 MB.",
            _422="One of them is wrong, which is said with its place. None of them is kept.",
        ),
    },
    openapi_extra={"requestBody": bodies.described(CONVERSIONS_BODY), "security": SECURITY},
)
@needs("upload")
async def send_conversions(request: Request, key: Key, app: TheApp) -> JSONResponse:
    """Hand over conversions, one or up to 1000. One that was here before, by its order id, is changed to what it says
    now, as far as it was not sent yet."""
    said = await bodies.json_of(request)
    many = isinstance(said, dict) and "conversions" in said
    written = await convert(app.ctx, key.workspace_id, _several(said) if many else [("", said)])
    told = [_written(each).model_dump(mode="json") for each in written]
    return JSONResponse({"conversions": told} if many else told[0], 202)


@router.get(
    "/api/conversions",
    responses=documented(_422="A parameter is wrong."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_conversions(
    key: Key,
    app: TheApp,
    site_id: Annotated[UUID | None, Query(description="Only those of this site.")] = None,
    provider: Provider = None,
    status: Annotated[DeliveryStatus | None, Query(description="Only those in this state.")] = None,
    category: Annotated[Category | None, Query(description="Only those with an error of this kind.")] = None,
    order_id: Annotated[
        str | None,
        Query(
            description="Only those with exactly this order id.",
            min_length=1,
            max_length=200,
            pattern="^[^\\x00]*$",  # which no text in Postgres holds
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
) -> ConversionsOut:
    """The workspace's conversions, newest first; those that wait in the order in which they are sent, unless an order
    is asked for."""
    beside = _BESIDE.get(status, _nothing) if order_id is None else _nothing
    behind = cursor.read("before", before, Cursor, _moment, beside, UUID, str)
    wanted = Wanted(key.workspace_id, site_id, provider, status, category, order_id)
    async with app.db.tx(ROLE, key.workspace_id) as tx:
        found = await conversions.page(tx, wanted, behind, limit + 1)
        page = found[:limit]  # the one more tells whether there is a next page
        rows = await conversions.get(tx, page)
    more = cursor.write(*vars(page[-1].cursor).values()) if len(found) > limit else None
    return ConversionsOut(conversions=[ConversionOut(**shown(each)) for each in rows], next=more)


@router.get(
    "/api/conversions/{sale_id}",
    responses=documented(_404="No such sale, or nobody is to hear of it.", _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_conversion(sale_id: UUID, key: Key, app: TheApp) -> WholeConversionOut:
    """One sale on its way to each of its providers, with the ledgers of the calls that it was last in."""
    async with app.db.tx(ROLE, key.workspace_id) as tx:
        found = await conversions.of_sale(tx, sale_id)
        ledgers = [
            await conversions.ledger_of_batch(tx, each.batch_id) if each.batch_id else [] for each in found
        ]
    if not found:
        message = f"There is no sale {sale_id}, or none of its site's providers takes its click."
        raise RequestRefused(404, "unknown_conversion", message)
    deliveries = [
        LedgeredOut(**shown(each), ledger=[entry_out(entry) for entry in ledger])
        for each, ledger in zip(found, ledgers, strict=True)
    ]
    return WholeConversionOut(
        sale_id=sale_id, site_id=found[0].site_id, order_id=found[0].order_id, deliveries=deliveries
    )


@router.post(
    "/api/conversions/retry",
    responses=documented(_422="A body that is not as described, or that names none."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def retry_conversions(wish: RequeueIn, key: Key, app: TheApp) -> RequeuedOut:
    """Put failed conversions into the queue again: those named, or all that fit. It is audited."""
    if not wish.model_fields_set or all(value is None for value in vars(wish).values()):
        message = "body: expected sale_ids, or at least one of site_id, provider, category and code; got none of them."
        raise RequestRefused(422, "invalid_request", message)
    async with app.db.tx(ROLE, key.workspace_id) as tx:
        requeued = await sites.requeue(
            tx,
            sites.Requeue(
                workspace_id=key.workspace_id,
                actor=f"key {key.id}",
                sales=wish.sale_ids,
                site_id=wish.site_id,
                provider_key=wish.provider,
                category=wish.category,
                code=wish.code,
            ),
        )
    return RequeuedOut(requeued=requeued)


def entry_out(entry: Entry) -> EntryOut:
    return EntryOut(**{**vars(entry), "provider": entry.provider_key})


def shown(found: Shown) -> dict[str, Any]:
    value = found.value and found.value.normalize()
    return {
        **vars(found),
        "provider": found.provider_key,
        "value": value if value is None else f"{value:f}",
        "attempts": found.attempt_count,
        "retries": found.retry_count,
    }


def _several(said: dict[str, Any]) -> list[tuple[str, Any]]:
    given, others = said["conversions"], [name for name in said if name != "conversions"]
    if others:
        message = "body: expected either one conversion or a list of them as conversions, got both."
        raise RequestRefused(422, "invalid_request", message)
    if not isinstance(given, list) or not 1 <= len(given) <= MOST:
        got = f"{len(given)}" if isinstance(given, list) else "something else"
        message = f"conversions: expected a list of 1 to {MOST}, got {got}."
        raise RequestRefused(422, "invalid_request", message)
    return [(f"conversions[{place}].", each) for place, each in enumerate(given)]


def _written(written: Written) -> ConvertedOut:
    return ConvertedOut(
        sale_id=written.sale_id,
        site_id=written.sale.site_id,
        order_id=written.sale.order_id,
        result=written.result,
        deliveries=[
            DeliveryOut(provider=each.provider_key, status=DeliveryStatus(each.status))
            for each in written.deliveries
        ],
    )


def _moment(text: str) -> str:
    """As Postgres reads it: also the beginning of time, where rows stand that were never put off."""
    return text if text == "-infinity" else datetime.fromisoformat(text).isoformat()


def _nothing(text: str) -> str:
    if text:
        raise ValueError("nothing stands there")
    return text


# What stands beside the moment of a place, by status.
_BESIDE: dict[DeliveryStatus | None, Callable[[str], str]] = {
    DeliveryStatus.QUEUED: _moment,
    DeliveryStatus.RETRY: _moment,
}
