"""`/api/sites`: sites, the providers that receive their conversions, and credentials."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request

from weighbridge.api import bodies, cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.delivery.models import (
    CREDENTIALS_BODY,
    CredentialsOut,
    RemovedOut,
    ResetOut,
    SiteChangeIn,
    SiteIn,
    SiteOut,
    SitesOut,
)
from weighbridge.api.error_responses import documented
from weighbridge.app import App
from weighbridge.delivery import breaker, credential_queries, credentials, sites
from weighbridge.delivery.sites import Site
from weighbridge.model.errors import ConfigError, RequestRefused
from weighbridge.postgres import roles
from weighbridge.postgres.errors import RowFault

router = APIRouter(tags=["sites"])

NOT_THERE = "The site or provider does not exist."


@router.get(
    "/api/sites",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_sites(
    key: Key,
    app: TheApp,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[str | None, Query(description="The `next` value of the previous page.")] = None,
) -> SitesOut:
    """List the workspace's sites, by name."""
    behind = cursor.read("after", after, str, str) or ""
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await sites.get_sites(tx, key.workspace_id, behind, limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.name) if last else None
    return SitesOut(sites=[_out(site) for site in page], next=more)


@router.post(
    "/api/sites",
    status_code=201,
    responses=documented(_409="A site with this name exists.", _422="The body is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def make_site(body: SiteIn, key: Key, app: TheApp) -> SiteOut:
    """Create a site. Use its id as `client_id` for files of the pipeline conversions."""
    await _known(app, body.providers)
    async with app.db.tx(roles.INTAKE, key.workspace_id) as tx:
        site = await sites.make(tx, key.workspace_id, body.name, body.providers)
    if site is None:
        raise _taken()
    return _out(site)


@router.patch(
    "/api/sites/{site_id}",
    responses=documented(
        _404="No such site.",
        _409="Another site has this name.",
        _422="Not a UUID, or the body is invalid.",
    ),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def change_site(site_id: UUID, body: SiteChangeIn, key: Key, app: TheApp) -> SiteOut:
    """Change a site's name or its providers for new sales. Conversions queued for a removed provider wait until it is
    added again."""
    try:
        await _known(app, body.providers)
        async with app.db.tx(roles.INTAKE, key.workspace_id) as tx:
            site = await sites.change(tx, key.workspace_id, site_id, body.name, body.providers)
    except RowFault as fault:
        if fault.code != "unique_violation":
            raise
        raise _taken() from fault
    if site is None:
        raise unknown_site(site_id)
    return _out(site)


@router.put(
    "/api/sites/{site_id}/credentials/{provider_id}",
    responses=documented(
        _404=NOT_THERE,
        _413="The body is larger than 8 MB.",
        _422="A required name is missing, or a name is unknown.",
        _503="The database does not respond, or the vault has no key; the message says which.",
    ),
    openapi_extra={"requestBody": bodies.described(CREDENTIALS_BODY), "security": SECURITY},
)
@needs("admin")
async def set_credentials(
    site_id: UUID, provider_id: str, request: Request, key: Key, app: TheApp
) -> CredentialsOut:
    """Store credentials, replacing existing ones. They are encrypted and never returned. The action is audited."""
    payload = await bodies.json_of(request)
    if not isinstance(payload, dict) or set(payload) != {"credentials"}:
        raise RequestRefused(422, "invalid_request", 'body: expected {"credentials": {…}}.')
    site = await find_site(app, key.workspace_id, site_id)
    try:
        made = await credentials.put(
            app.ctx, key.workspace_id, site.id, provider_id, payload["credentials"], f"key {key.id}"
        )
    except ConfigError as error:
        raise no_vault(error) from None
    return CredentialsOut(
        site_id=site.id,
        provider=provider_id,
        version=made.version,
        key_id=made.key_id,
        in_use=provider_id in site.providers,
    )


@router.delete(
    "/api/sites/{site_id}/credentials/{provider_id}",
    responses=documented(
        _404="The site does not exist, or has no credentials for the provider.", _422="Not a UUID."
    ),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def remove_credentials(site_id: UUID, provider_id: str, key: Key, app: TheApp) -> RemovedOut:
    """Delete a site's credentials. Deliveries stop until new ones are stored. The action is audited."""
    site = await find_site(app, key.workspace_id, site_id)
    async with app.db.tx(workspace_id=key.workspace_id) as tx:
        removed = await credential_queries.remove(tx, key.workspace_id, site.id, provider_id, f"key {key.id}")
    if not removed:
        message = f"The site {site_id} has no credentials for this provider."
        raise RequestRefused(404, "no_credentials", message)
    return RemovedOut(site_id=site.id, provider=provider_id, removed=True)


@router.post(
    "/api/sites/{site_id}/providers/{provider_id}/reset",
    responses=documented(_404=NOT_THERE, _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def reset_provider(site_id: UUID, provider_id: str, key: Key, app: TheApp) -> ResetOut:
    """Close a circuit and retry refused credentials. Use this after the cause is fixed. The action is audited."""
    site = await find_site(app, key.workspace_id, site_id)
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        known = await sites.providers(tx)
        if provider_id not in known:
            raise credentials.unknown_provider(provider_id, known)
        await breaker.reset(tx, site.id, provider_id, f"key {key.id}")
    return ResetOut(site_id=site.id, provider=provider_id, state="CLOSED")


async def find_site(app: App, workspace_id: UUID | None, site_id: UUID) -> Site:
    """A site of the workspace; one of another workspace is treated as unknown."""
    async with app.db.tx(roles.DELIVER, workspace_id) as tx:
        site = await sites.get_site(tx, workspace_id, site_id)
    if site is None:
        raise unknown_site(site_id)
    return site


def unknown_site(site_id: UUID) -> RequestRefused:
    return RequestRefused(404, "unknown_site", f"There is no site {site_id}. GET /api/sites lists all sites.")


def no_vault(error: ConfigError) -> RequestRefused:
    return RequestRefused(503, "no_vault_key", str(error))


async def _known(app: App, wanted: list[str] | None) -> None:
    async with app.db.tx(roles.DELIVER) as tx:
        known = await sites.providers(tx)
    for each in wanted or ():
        if each not in known:
            raise credentials.unknown_provider(each, known, 422)


def _taken() -> RequestRefused:
    return RequestRefused(409, "site_exists", "A site with this name exists. GET /api/sites lists them.")


def _out(site: Site) -> SiteOut:
    return SiteOut(
        site_id=site.id, name=site.name, providers=list(site.providers), created_at=site.created_at
    )
