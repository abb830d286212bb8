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
from weighbridge.api.problems import documented
from weighbridge.app import App
from weighbridge.delivery import credentials, sites
from weighbridge.delivery.outbound import ROLE
from weighbridge.delivery.sites import Site
from weighbridge.model.errors import ConfigError, RequestRefused
from weighbridge.postgres.errors import RowFault

router = APIRouter(tags=["sites"])

INTAKE = "weighbridge_intake"
NOT_THERE = "No such site, or no such provider."


@router.get(
    "/api/sites",
    responses=documented(_422="A parameter is wrong."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_sites(
    key: Key,
    app: TheApp,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[str | None, Query(description="The `next` of the page before.")] = None,
) -> SitesOut:
    """The workspace's sites, by name."""
    behind = cursor.read("after", after, str, str) or ""
    async with app.db.tx("weighbridge_tenant", key.workspace_id) as tx:
        found = await sites.page(tx, key.workspace_id, behind, limit + 1)
    page = found[:limit]  # the one more tells whether there is a next page
    more = cursor.write(page[-1].name) if len(found) > limit else None
    return SitesOut(sites=[_out(site) for site in page], next=more)


@router.post(
    "/api/sites",
    status_code=201,
    responses=documented(_409="There is a site of that name.", _422="A body that is not as described."),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def make_site(wish: SiteIn, key: Key, app: TheApp) -> SiteOut:
    """Make a site. Its id is the `client_id` of files of the pipeline conversions."""
    await _known(app, wish.providers)
    async with app.db.tx(INTAKE, key.workspace_id) as tx:
        site = await sites.make(tx, key.workspace_id, wish.name, wish.providers)
    if site is None:
        raise _taken()
    return _out(site)


@router.patch(
    "/api/sites/{site_id}",
    responses=documented(
        _404="No such site.",
        _409="There is another site of that name.",
        _422="Not a UUID, or a body that is not as described.",
    ),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def change_site(site_id: UUID, wish: SiteChangeIn, key: Key, app: TheApp) -> SiteOut:
    """Give a site another name or other providers, for sales from now on. What waits for one that is taken off waits
    until it is back."""
    try:
        await _known(app, wish.providers)
        async with app.db.tx(INTAKE, key.workspace_id) as tx:
            site = await sites.change(tx, key.workspace_id, site_id, wish.name, wish.providers)
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
        _413="More than 8 MB.",
        _422="A name is missing or not known.",
        _503="The database does not answer, or the vault has no key; the answer says which.",
    ),
    openapi_extra={"requestBody": bodies.described(CREDENTIALS_BODY), "security": SECURITY},
)
@needs("admin")
async def set_credentials(
    site_id: UUID, provider_id: str, request: Request, key: Key, app: TheApp
) -> CredentialsOut:
    """Put credentials in place of what there was. They are sealed by the vault, and shown to nobody. It is audited."""
    said = await bodies.json_of(request)
    if not isinstance(said, dict) or set(said) != {"credentials"}:
        raise RequestRefused(422, "invalid_request", 'body: expected {"credentials": {…}}.')
    site = await find(app, key.workspace_id, site_id)
    try:
        made = await credentials.put(
            app.ctx, key.workspace_id, site.id, provider_id, said["credentials"], f"key {key.id}"
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
    responses=documented(_404="No such site, or it has no credentials there.", _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("admin")
async def remove_credentials(site_id: UUID, provider_id: str, key: Key, app: TheApp) -> RemovedOut:
    """Forget a site's credentials: nothing more is sent there until it has new ones. It is audited."""
    site = await find(app, key.workspace_id, site_id)
    async with app.db.tx(workspace_id=key.workspace_id) as tx:
        removed = await sites.remove_credentials(tx, key.workspace_id, site.id, provider_id, f"key {key.id}")
    if not removed:
        message = f"The site {site_id} has no credentials there."
        raise RequestRefused(404, "no_credentials", message)
    return RemovedOut(site_id=site.id, provider=provider_id, removed=True)


@router.post(
    "/api/sites/{site_id}/providers/{provider_id}/reset",
    responses=documented(_404=NOT_THERE, _422="Not a UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def reset_provider(site_id: UUID, provider_id: str, key: Key, app: TheApp) -> ResetOut:
    """Close a group's circuit and let refused credentials be tried again, as all is well by now. It is audited."""
    site = await find(app, key.workspace_id, site_id)
    async with app.db.tx(ROLE, key.workspace_id) as tx:
        known = await sites.providers(tx)
        if provider_id not in known:
            raise credentials.unknown_provider(provider_id, known)
        await sites.reset(tx, site.id, provider_id, f"key {key.id}")
    return ResetOut(site_id=site.id, provider=provider_id, state="CLOSED")


async def find(app: App, workspace_id: UUID | None, site_id: UUID) -> Site:
    """A site of the workspace; of another one it is as if it did not exist."""
    async with app.db.tx(ROLE, workspace_id) as tx:
        site = await sites.get(tx, workspace_id, site_id)
    if site is None:
        raise unknown_site(site_id)
    return site


def unknown_site(site_id: UUID) -> RequestRefused:
    return RequestRefused(
        404, "unknown_site", f"There is no site {site_id}. GET /api/sites lists those there are."
    )


def no_vault(error: ConfigError) -> RequestRefused:
    return RequestRefused(503, "no_vault_key", str(error))


async def _known(app: App, wanted: list[str] | None) -> None:
    async with app.db.tx(ROLE) as tx:
        known = await sites.providers(tx)
    for each in wanted or ():
        if each not in known:
            raise credentials.unknown_provider(each, known, 422)


def _taken() -> RequestRefused:
    return RequestRefused(409, "site_exists", "There is a site of that name. GET /api/sites lists them.")


def _out(site: Site) -> SiteOut:
    return SiteOut(
        site_id=site.id, name=site.name, providers=list(site.providers), created_at=site.created_at
    )
