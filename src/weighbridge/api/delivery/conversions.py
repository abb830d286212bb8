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
from weighbridge.api.error_responses import documented
from weighbridge.api.validation_messages import NO_NUL
from weighbridge.delivery import conversions, ledger
from weighbridge.delivery.conversions import ConversionCursor, ConversionFilter, ConversionRow
from weighbridge.delivery.ledger import LedgerEntry
from weighbridge.delivery.queue import FailedFilter
from weighbridge.delivery.receive_conversions import MOST, ConversionResult, convert
from weighbridge.delivery.retry_failed import retry_failed
from weighbridge.model.delivery import Category
from weighbridge.model.errors import RequestRefused
from weighbridge.postgres import roles

router = APIRouter(tags=["conversions"])

Provider = Annotated[str | None, Query(description="Only conversions for this provider.", pattern=NO_NUL)]


@router.post(
    "/api/conversions",
    status_code=202,
    response_class=JSONResponse,
    response_model=None,
    responses={
        202: {
            "model": ConvertedOut | ConvertedManyOut,
            "description": "Written: one result, or a list if a list was sent.",
        },
        **documented(
            _413="The body is larger than 8 MB.",
            _422="At least one conversion is invalid; the message says which. None is stored.",
        ),
    },
    openapi_extra={"requestBody": bodies.described(CONVERSIONS_BODY), "security": SECURITY},
)
@needs("upload")
async def send_conversions(request: Request, key: Key, app: TheApp) -> JSONResponse:
    """Create or update one conversion or up to 1000. A conversion with a known order id is updated unless it was
    already sent."""
    payload = await bodies.json_of(request)
    many = isinstance(payload, dict) and "conversions" in payload
    converted = await convert(app.ctx, key.workspace_id, _several(payload) if many else [("", payload)])
    results = [_result_out(each).model_dump(mode="json") for each in converted]
    return JSONResponse({"conversions": results} if many else results[0], 202)


@router.get(
    "/api/conversions",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_conversions(
    key: Key,
    app: TheApp,
    site_id: Annotated[UUID | None, Query(description="Only conversions of this site.")] = None,
    provider: Provider = None,
    status: Annotated[DeliveryStatus | None, Query(description="Only conversions with this status.")] = None,
    category: Annotated[
        Category | None, Query(description="Only conversions with this error category.")
    ] = None,
    order_id: Annotated[
        str | None,
        Query(
            description="Only conversions with this order id.",
            min_length=1,
            max_length=200,
            pattern="^[^\\x00]*$",  # Postgres cannot store NUL in text
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="The `next` value of the previous page.")] = None,
) -> ConversionsOut:
    """List the workspace's conversions, newest first; with a status of queued conversions in delivery order, unless an
    order id is given."""
    tiebreaker = _TIEBREAKER.get(status, _nothing) if order_id is None else _nothing
    behind = cursor.read("before", before, ConversionCursor, _moment, tiebreaker, UUID, str)
    wanted = ConversionFilter(key.workspace_id, site_id, provider, status, category, order_id)
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        found = await conversions.page(tx, wanted, behind, limit + 1)
        page, last = cursor.page(found, limit)
        rows = await conversions.get(tx, page)
    more = cursor.write(*vars(last.cursor).values()) if last else None
    return ConversionsOut(conversions=[ConversionOut(**shown(each)) for each in rows], next=more)


@router.get(
    "/api/conversions/{sale_id}",
    responses=documented(_404="The sale does not exist, or no provider receives it.", _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_conversion(sale_id: UUID, key: Key, app: TheApp) -> WholeConversionOut:
    """One sale, its delivery to each provider, and the ledger of the last call."""
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        found = await conversions.of_sale(tx, sale_id)
        ledgers = [await ledger.of_batch(tx, each.batch_id) if each.batch_id else [] for each in found]
    if not found:
        message = f"There is no sale {sale_id}, or no provider of its site accepts its click id."
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
    responses=documented(_422="A body that is not as described, or contains no filter."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def retry_conversions(body: RequeueIn, key: Key, app: TheApp) -> RequeuedOut:
    """Retry failed conversions: the given sales, or all that match. The action is audited."""
    if not body.model_fields_set or all(value is None for value in vars(body).values()):
        message = (
            "body: expected sale_ids, or at least one of site_id, provider, category and code; got none."
        )
        raise RequestRefused(422, "invalid_request", message)
    wanted = FailedFilter(body.site_id, body.provider, body.category, body.code, body.sale_ids)
    requeued = await retry_failed(app.db, wanted, key.workspace_id, f"key {key.id}")
    return RequeuedOut(requeued=requeued)


def entry_out(entry: LedgerEntry) -> EntryOut:
    return EntryOut(**{**vars(entry), "provider": entry.provider_key})


def shown(found: ConversionRow) -> dict[str, Any]:
    value = found.value and found.value.normalize()
    return {
        **vars(found),
        "provider": found.provider_key,
        "value": value if value is None else f"{value:f}",
        "attempts": found.attempt_count,
        "retries": found.retry_count,
    }


def _several(payload: dict[str, Any]) -> list[tuple[str, Any]]:
    given, others = payload["conversions"], [name for name in payload if name != "conversions"]
    if others:
        message = "body: expected either one conversion or a list in `conversions`, got both."
        raise RequestRefused(422, "invalid_request", message)
    if not isinstance(given, list) or not 1 <= len(given) <= MOST:
        got = f"{len(given)}" if isinstance(given, list) else "something else"
        message = f"conversions: expected a list of 1 to {MOST}, got {got}."
        raise RequestRefused(422, "invalid_request", message)
    return [(f"conversions[{place}].", each) for place, each in enumerate(given)]


def _result_out(result: ConversionResult) -> ConvertedOut:
    return ConvertedOut(
        sale_id=result.sale_id,
        site_id=result.sale.site_id,
        order_id=result.sale.order_id,
        result=result.result,
        deliveries=[
            DeliveryOut(provider=each.provider_key, status=DeliveryStatus(each.status))
            for each in result.deliveries
        ],
    )


def _moment(text: str) -> str:
    """Parse a time as Postgres writes it, including -infinity, used for rows that were never delayed."""
    return text if text == "-infinity" else datetime.fromisoformat(text).isoformat()


def _nothing(text: str) -> str:
    if text:
        raise ValueError("not a time of a row")
    return text


# The cursor fields after the time, by status.
_TIEBREAKER: dict[DeliveryStatus | None, Callable[[str], str]] = {
    DeliveryStatus.QUEUED: _moment,
    DeliveryStatus.RETRY: _moment,
}
