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
from weighbridge.console import frame, words
from weighbridge.console.listing import PAGE, Ask, Asked, Listing, href, listed
from weighbridge.delivery import conversions, ledger, sites
from weighbridge.delivery.conversions import GroupStatus
from weighbridge.delivery.forecast import Forecast, forecast
from weighbridge.delivery.ledger import Lately, Watched
from weighbridge.delivery.outbound import ROLE
from weighbridge.model.delivery import Category
from weighbridge.model.errors import RequestRefused
from weighbridge.postgres.pool import Tx

router = frame.router()

GROUPS = 100  # of a page
SITES = 200  # to choose from
CALLS = 20
IN_THE_WAY = {
    "unknown_provider": "This provider is not known here.",
    "not_in_use": "The provider was taken off the site: what waits stays.",
    "no_credentials": "There are no credentials: nothing is sent.",
    "credentials_unreadable": "The credentials need a key of the vault that is not here.",
    "credentials_refused": "The provider refuses the credentials.",
    "provider_paused": "The provider asked all sites for a pause.",
    "circuit_open": "The circuit is open until the next probe.",
    "being_probed": "Another worker probes it right now.",
}
STUCK = {IN_THE_WAY[each] for each in ("no_credentials", "credentials_refused", "not_in_use")}

Blank = BeforeValidator(lambda said: said or None)  # a field of a form that was left empty


@dataclass(frozen=True)
class Filter:
    """What the reader wants to see."""

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
    provider: Annotated[str, Query(max_length=100, pattern=frame.NO_NUL)] = "",
    status: Annotated[DeliveryStatus | None, Blank, Query()] = None,
    category: Annotated[Category | None, Blank, Query()] = None,
    order_id: Annotated[str, Query(max_length=200, pattern=frame.NO_NUL)] = "",
) -> Filter:
    return Filter(site_id, provider or None, status, category, order_id.strip() or None)


@dataclass(frozen=True)
class Group:
    """A site and a provider, with all that a page says of them."""

    standing: GroupStatus
    lately: Lately
    next_run: Forecast | None  # None: nothing is due
    trouble: str | None  # what is in the way, as a sentence
    stuck: bool  # until someone does something about it
    resettable: bool


@router.get("/deliveries")
@frame.page("read")
async def shown(
    request: Request,
    key: Key,
    app: TheApp,
    asked: Ask,
    wanted: Annotated[Filter, Depends(_filter)],
    group: Annotated[str | None, Query(max_length=500)] = None,
) -> HTMLResponse:
    """`group`: where the page of groups before this one ended."""
    watched = Watched(key.workspace_id, wanted.site_id, wanted.provider)
    behind = cursor.read("group", group, lambda *place: place, UUID, str)
    async with app.db.tx(ROLE, key.workspace_id) as tx:
        found = await conversions.groups(
            tx,
            key.workspace_id,
            site_id=wanted.site_id,
            provider_key=wanted.provider,
            after=behind,
            limit=GROUPS + 1,
        )
        standing = found[:GROUPS]
        lately = await ledger.lately(tx, [(each.site_id, each.provider_key) for each in standing])
        errors = await ledger.errors(tx, watched)
        recent = await ledger.recent(tx, watched, CALLS)
        known = await sites.page(tx, key.workspace_id, "", SITES)
        providers = await sites.providers(tx)
    async with app.db.tx(ROLE) as tx:
        shares = await _forecast(tx, app)
    groups = [_group(each, lately, shares) for each in standing]
    last = standing[-1] if len(found) > GROUPS else None
    return await frame.show(
        request,
        "deliveries.html",
        wanted=wanted,
        groups=groups,
        more_groups=last and _href(wanted, group=cursor.write(last.site_id, last.provider_key)),
        vault=shares is not None,
        active=any(each.standing.in_call or (each.standing.waiting and not each.stuck) for each in groups),
        limit=app.settings.deliver_limit,
        errors=errors,
        calls=recent,
        sites=known,
        site_names={each.id: each.name for each in known}
        | {each.standing.site_id: each.standing.site_name for each in groups},
        providers=providers,
        page=await _listed(app, key, wanted, asked),
        signs=words.CONVERSIONS,
        circuits=words.CIRCUITS,
        most=conversions.MOST_COUNTED,
        categories=[each.value for each in Category],
    )


@router.post("/deliveries/reset")
@frame.page("operate")
async def reset(
    request: Request,
    key: Key,
    app: TheApp,
    site_id: Annotated[UUID, Form()],
    provider: Annotated[str, Form(max_length=100)],
) -> Response:
    await reset_provider(site_id, provider, key, app)
    said = "The circuit is closed, and what waits is tried at once."
    return await frame.back(request, href("/deliveries", site_id=site_id, provider=provider), said)


@router.post("/deliveries/requeue")
@frame.page("operate")
async def requeue(
    request: Request,
    key: Key,
    app: TheApp,
    category: Annotated[Category, Form()],
    code: Annotated[str, Form(max_length=200, pattern=frame.NO_NUL)] = "",
    site_id: Annotated[UUID | None, Blank, Form()] = None,
    provider: Annotated[str, Form(max_length=100, pattern=frame.NO_NUL)] = "",
) -> Response:
    """All that failed with an error, of what the page showed."""
    wish = sites.Requeue(
        key.workspace_id,
        f"key {key.id}",
        site_id=site_id,
        provider_key=provider or None,
        category=category.value,
        code=code or None,
    )
    said = await put_back(app, wish)
    return await frame.back(request, href("/deliveries", site_id=site_id, provider=provider), said)


async def put_back(app: App, wish: sites.Requeue) -> str:
    """Requeue, and say so; RequestRefused where nothing fits."""
    async with app.db.tx(ROLE, wish.workspace_id) as tx:
        count = await sites.requeue(tx, wish)
    if not count:
        message = "Nothing was put into the queue: expected conversions that failed and were not canceled."
        raise RequestRefused(409, "nothing_to_requeue", message)
    return (
        "1 conversion is in the queue again."
        if count == 1
        else f"{count:,} conversions are in the queue again."
    )


async def _forecast(tx: Tx, app: App) -> dict[tuple[UUID, str], Forecast] | None:
    """What the next run would send; None where this process has no vault, and so cannot know."""
    if app.ctx.outbound is None:
        return None
    return await forecast(tx, app.ctx.outbound, app.settings.deliver_limit)


def _group(
    standing: GroupStatus,
    lately: dict[tuple[UUID, str], Lately],
    shares: dict[tuple[UUID, str], Forecast] | None,
) -> Group:
    key = (standing.site_id, standing.provider_key)
    next_run = (shares or {}).get(key)
    trouble = _trouble(standing, next_run)
    return Group(
        standing=standing,
        lately=lately[key],
        next_run=next_run,
        trouble=trouble,
        stuck=trouble in STUCK,
        resettable=standing.state != "CLOSED" or standing.refused_at is not None,
    )


def _trouble(standing: GroupStatus, next_run: Forecast | None) -> str | None:
    """What is in the way, also of what is not due yet."""
    if next_run is not None and next_run.reason:
        return IN_THE_WAY[next_run.reason]
    if standing.credentials_version is None and (standing.in_use or standing.waiting):
        return IN_THE_WAY["no_credentials"]
    if standing.refused_at is not None:
        return IN_THE_WAY["credentials_refused"]
    if standing.paused_until is not None:
        return IN_THE_WAY["provider_paused"]
    if not standing.in_use and standing.waiting:
        return IN_THE_WAY["not_in_use"]
    return IN_THE_WAY["circuit_open"] if standing.state == "OPEN" else None


async def _listed(app: App, key: ApiKey, wanted: Filter, asked: Asked) -> Listing[ConversionOut]:
    """A page of conversions, as the API has it."""
    told = await list_conversions(key=key, app=app, **vars(wanted), limit=asked.size, before=asked.after)
    rows = told.conversions
    if asked.until:
        *_, sale, provider = (
            cursor.read("until", asked.until, lambda *place: place, str, str, UUID, str) or ()
        )
        ended = (place for place, row in enumerate(rows) if (row.sale_id, row.provider) == (sale, provider))
        rows = rows[: next(ended, PAGE - 1) + 1]
    return listed(asked, rows, told.next, "/deliveries", **vars(wanted))


def _href(wanted: Filter, **more: Any) -> str:
    return href("/deliveries", **vars(wanted), **more)
