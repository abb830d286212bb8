"""`/deliveries`: status per site and provider, what blocks deliveries, and all conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BeforeValidator

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import Key, TheApp
from weighbridge.api.delivery.conversions import list_conversions
from weighbridge.api.delivery.models import ConversionOut, DeliveryStatus
from weighbridge.api.delivery.sites import reset_provider
from weighbridge.app import App
from weighbridge.console import filters, layout
from weighbridge.console.listing import PAGE, Listing, PageRequest, PageRequested, href, listed
from weighbridge.delivery import conversions, ledger, sites
from weighbridge.delivery.conversions import GroupStatus
from weighbridge.delivery.forecast import Forecast, forecast
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.ledger import LedgerFilter, RecentCalls
from weighbridge.delivery.queue import FailedFilter
from weighbridge.delivery.retry_failed import retry_failed
from weighbridge.model.counts import counted
from weighbridge.model.delivery import Category
from weighbridge.model.errors import RequestRefused
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Tx

router = layout.router()

GROUPS = 100  # of a page
SITES = 200  # to choose from
CALLS = 20
BLOCKED_BY = {
    "unknown_provider": "This installation does not know the provider.",
    "not_in_use": "The site no longer uses the provider. Queued conversions stay in the queue.",
    "no_credentials": "No credentials are stored.",
    "credentials_unreadable": "The credentials need a vault key that is not configured.",
    "credentials_refused": "The provider refuses the credentials.",
    "provider_paused": "The provider requested a pause for all sites.",
    "circuit_open": "The circuit is open until the next probe.",
    "being_probed": "Another worker is sending a probe.",
}
STUCK = {BLOCKED_BY[each] for each in ("no_credentials", "credentials_refused", "not_in_use")}

Blank = BeforeValidator(lambda value: value or None)  # a field of a form that was left empty


@dataclass(frozen=True)
class DeliveryFilter:
    """The filters of the page."""

    site_id: UUID | None
    provider: str | None
    status: DeliveryStatus | None
    category: Category | None
    order_id: str | None

    @property
    def any(self) -> bool:
        return any(value is not None for value in vars(self).values())


async def _filter(
    site_id: Annotated[UUID | None, Blank, Query()] = None,
    provider: Annotated[str, Query(max_length=100, pattern=layout.NO_NUL)] = "",
    status: Annotated[DeliveryStatus | None, Blank, Query()] = None,
    category: Annotated[Category | None, Blank, Query()] = None,
    order_id: Annotated[str, Query(max_length=200, pattern=layout.NO_NUL)] = "",
) -> DeliveryFilter:
    return DeliveryFilter(site_id, provider or None, status, category, order_id.strip() or None)


@dataclass(frozen=True)
class ShownGroup:
    """A site and a provider, as shown on the page."""

    status: GroupStatus
    recent_calls: RecentCalls
    next_run: Forecast | None  # None: nothing is due
    trouble: str | None  # what blocks deliveries, as a sentence
    stuck: bool  # until a user acts
    resettable: bool


@router.get("/deliveries")
@layout.page("read")
async def shown(
    request: Request,
    key: Key,
    app: TheApp,
    requested: PageRequested,
    wanted: Annotated[DeliveryFilter, Depends(_filter)],
    group: Annotated[str | None, Query(max_length=500)] = None,
) -> HTMLResponse:
    """`group`: the cursor of the page of groups."""
    watched = LedgerFilter(key.workspace_id, wanted.site_id, wanted.provider)
    behind = cursor.read("group", group, GroupKey, UUID, str)
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        found = await conversions.groups(
            tx,
            key.workspace_id,
            site_id=wanted.site_id,
            provider_key=wanted.provider,
            after=behind,
            limit=GROUPS + 1,
        )
        statuses = found[:GROUPS]
        recent_calls = await ledger.recent_counts(tx, [each.key for each in statuses])
        errors = await ledger.errors(tx, watched)
        recent = await ledger.recent(tx, watched, CALLS)
        known = await sites.get_sites(tx, key.workspace_id, "", SITES)
        providers = await sites.providers(tx)
    async with app.db.tx(roles.DELIVER) as tx:
        shares = await _forecast(tx, app)
    groups = [_group(each, recent_calls, shares) for each in statuses]
    last = statuses[-1] if len(found) > GROUPS else None
    return await layout.show(
        request,
        "deliveries.html",
        wanted=wanted,
        groups=groups,
        more_groups=last and _href(wanted, group=cursor.write(last.site_id, last.provider_key)),
        vault=shares is not None,
        active=any(each.status.in_call or (each.status.waiting and not each.stuck) for each in groups),
        limit=app.settings.deliver_limit,
        errors=errors,
        calls=recent,
        sites=known,
        site_names={each.id: each.name for each in known}
        | {each.status.site_id: each.status.site_name for each in groups},
        providers=providers,
        page=await _listed(app, key, wanted, requested),
        signs=filters.CONVERSIONS,
        circuits=filters.CIRCUITS,
        most=conversions.MOST_COUNTED,
        categories=[each.value for each in Category],
    )


@router.post("/deliveries/reset")
@layout.page("operate")
async def reset(
    request: Request,
    key: Key,
    app: TheApp,
    site_id: Annotated[UUID, Form()],
    provider: Annotated[str, Form(max_length=100)],
) -> Response:
    await reset_provider(site_id, provider, key, app)
    sentence = "The circuit is closed. Queued conversions are sent immediately."
    return await layout.back(request, href("/deliveries", site_id=site_id, provider=provider), sentence)


@router.post("/deliveries/requeue")
@layout.page("operate")
async def requeue(
    request: Request,
    key: Key,
    app: TheApp,
    category: Annotated[Category, Form()],
    code: Annotated[str, Form(max_length=200, pattern=layout.NO_NUL)] = "",
    site_id: Annotated[UUID | None, Blank, Form()] = None,
    provider: Annotated[str, Form(max_length=100, pattern=layout.NO_NUL)] = "",
) -> Response:
    """Retry all conversions that failed with an error, within the filters of the page."""
    wanted = FailedFilter(site_id, provider or None, category.value, code or None)
    sentence = await put_back(app, key, wanted)
    return await layout.back(request, href("/deliveries", site_id=site_id, provider=provider), sentence)


async def put_back(app: App, key: ApiKey, wanted: FailedFilter) -> str:
    """Retry conversions and return a message; RequestRefused if none match."""
    count = await retry_failed(app.db, wanted, key.workspace_id, f"key {key.id}")
    if not count:
        message = (
            "No conversion was queued again. Only failed conversions can be retried, and only if their sale is not "
            "canceled."
        )
        raise RequestRefused(409, "nothing_to_requeue", message)
    return f"{counted(count, 'conversion is', 'conversions are')} queued again."


async def _forecast(tx: Tx, app: App) -> dict[GroupKey, Forecast] | None:
    """What the next run would send; None if this process has no vault key."""
    if app.ctx.outbound is None:
        return None
    return await forecast(tx, app.ctx.outbound, app.settings.deliver_limit)


def _group(
    status: GroupStatus,
    recent_calls: dict[GroupKey, RecentCalls],
    shares: dict[GroupKey, Forecast] | None,
) -> ShownGroup:
    next_run = (shares or {}).get(status.key)
    trouble = _trouble(status, next_run)
    return ShownGroup(
        status=status,
        recent_calls=recent_calls[status.key],
        next_run=next_run,
        trouble=trouble,
        stuck=trouble in STUCK,
        resettable=status.state != "CLOSED" or status.refused_at is not None,
    )


def _trouble(status: GroupStatus, next_run: Forecast | None) -> str | None:
    """What blocks deliveries, also of conversions that are not due yet."""
    if next_run is not None and next_run.reason:
        return BLOCKED_BY[next_run.reason]
    if status.credentials_version is None and (status.in_use or status.waiting):
        return BLOCKED_BY["no_credentials"]
    if status.refused_at is not None:
        return BLOCKED_BY["credentials_refused"]
    if status.paused_until is not None:
        return BLOCKED_BY["provider_paused"]
    if not status.in_use and status.waiting:
        return BLOCKED_BY["not_in_use"]
    return BLOCKED_BY["circuit_open"] if status.state == "OPEN" else None


async def _listed(
    app: App, key: ApiKey, wanted: DeliveryFilter, requested: PageRequest
) -> Listing[ConversionOut]:
    """A page of conversions, from the API."""
    response = await list_conversions(
        key=key, app=app, **vars(wanted), limit=requested.size, before=requested.after
    )
    rows = response.conversions
    if requested.until:
        *_, sale, provider = (
            cursor.read("until", requested.until, lambda *parts: parts, str, str, UUID, str) or ()
        )
        ended = (place for place, row in enumerate(rows) if (row.sale_id, row.provider) == (sale, provider))
        rows = rows[: next(ended, PAGE - 1) + 1]
    return listed(requested, rows, response.next, "/deliveries", **vars(wanted))


def _href(wanted: DeliveryFilter, **more: Any) -> str:
    return href("/deliveries", **vars(wanted), **more)
