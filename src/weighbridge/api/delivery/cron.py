"""`/api/cron/…`: routes for an external scheduler; paths and responses are fixed (docs/contracts.md).

Workers do the same by themselves; any number of either may run at once.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request

from weighbridge.api import bodies
from weighbridge.api.access import TheApp, by_cron
from weighbridge.api.delivery.models import SEED_BODY, ProcessedOut, RecoveredOut, SeededOut
from weighbridge.api.delivery.sites import find_site, no_vault
from weighbridge.api.error_responses import Problem
from weighbridge.delivery import credentials, queue
from weighbridge.delivery.deliver import deliver
from weighbridge.model.errors import ConfigError, RequestRefused
from weighbridge.model.retry import STUCK_MINUTES
from weighbridge.postgres import roles
from weighbridge.uploads.check_request import uuid_of

router = APIRouter(tags=["cron"])

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
_SEEDED = ("site_id", "provider_key", "credentials")


def _documented(**more: str) -> dict[int | str, dict[str, Any]]:
    texts = {
        "_401": "The secret is missing or wrong.",
        "_403": "CRON_SECRET is not set.",
        "_422": "A parameter is invalid.",
        "_503": "The database does not respond, or the vault has no key; the message says which.",
        **more,
    }
    return {int(code[1:]): {"model": Problem, "description": text} for code, text in texts.items()}


@router.post(
    "/api/cron/process-offline-conversions",
    responses=_documented(),
    openapi_extra={"security": _SECURITY},
)
@by_cron()
async def process_offline_conversions(
    app: TheApp,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of conversions.")] = 50,
) -> ProcessedOut:
    """Deliver queued conversions of all workspaces and wait until every call has ended."""
    try:
        counts = await deliver(app.ctx, "cron", limit)
    except ConfigError as error:
        raise no_vault(error) from None
    return ProcessedOut.model_validate(vars(counts))


@router.post(
    "/api/cron/providers/recover-processing",
    responses=_documented(),
    openapi_extra={"security": _SECURITY},
)
@by_cron()
async def recover_processing(
    app: TheApp,
    min_age_minutes: Annotated[
        int,
        Query(ge=1, le=100_000, description="Minimum time since the conversions were claimed, in minutes."),
    ] = STUCK_MINUTES,
) -> RecoveredOut:
    """Set conversions whose worker stopped during a call to RETRY, with the same order id."""
    async with app.db.tx(roles.DELIVER) as tx:
        return RecoveredOut(recovered=await queue.recover_stuck(tx, min_age_minutes))


@router.post(
    "/api/cron/providers/seed-credentials",
    responses=_documented(
        _403="CRON_SECRET is not set, or this is production.", _404="The site or provider does not exist."
    ),
    openapi_extra={"requestBody": bodies.described(SEED_BODY), "security": _SECURITY},
)
@by_cron(in_production=False)
async def seed_credentials(request: Request, app: TheApp) -> SeededOut:
    """Replace a site's credentials. Not in production: use PUT /api/sites/{id}/credentials/{provider} with a key
    there."""
    given = await bodies.json_of(request)
    if (
        not isinstance(given, dict)
        or set(given) != set(_SEEDED)
        or not isinstance(given["provider_key"], str)
    ):
        raise RequestRefused(422, "invalid_request", f"body: expected an object with {', '.join(_SEEDED)}.")
    site_id: UUID = uuid_of(str(given["site_id"]), "site", "site_id")
    site = await find_site(app, None, site_id)
    try:
        await credentials.put(
            app.ctx, site.workspace_id, site.id, given["provider_key"], given["credentials"], "cron"
        )
    except ConfigError as error:
        raise no_vault(error) from None
    return SeededOut()
