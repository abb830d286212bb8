"""`/api/providers`: delivery status per site and provider."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from weighbridge.api import cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.delivery.conversions import Provider, entry_out
from weighbridge.api.delivery.models import (
    CircuitOut,
    DeliveryGroupOut,
    DeliveryGroupsOut,
    EntryOut,
    GroupCredentialsOut,
    TotalsOut,
)
from weighbridge.api.error_responses import documented
from weighbridge.delivery import conversions, ledger
from weighbridge.delivery.conversions import GroupStatus
from weighbridge.delivery.group_key import GroupKey
from weighbridge.postgres import roles

router = APIRouter(tags=["conversions"])

LEDGER = 10  # ledger entries per group


@router.get(
    "/api/providers",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_groups(
    key: Key,
    app: TheApp,
    site_id: Annotated[
        UUID | None, Query(description="Only groups of this site, with their ledgers.")
    ] = None,
    provider: Provider = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[str | None, Query(description="The `next` value of the previous page.")] = None,
) -> DeliveryGroupsOut:
    """List the workspace's groups (site and provider): queued and failed conversions, and what blocks deliveries."""
    behind = cursor.read("after", after, GroupKey, UUID, str)
    async with app.db.tx(roles.DELIVER, key.workspace_id) as tx:
        found = await conversions.groups(
            tx, key.workspace_id, site_id=site_id, provider_key=provider, after=behind, limit=limit + 1
        )
        page, last = cursor.page(found, limit)
        ledgers = [
            await ledger.of_site(tx, each.site_id, each.provider_key, LEDGER) if site_id else []
            for each in page
        ]
    more = cursor.write(last.site_id, last.provider_key) if last else None
    groups = [
        _out(each, [entry_out(entry) for entry in ledger]) for each, ledger in zip(page, ledgers, strict=True)
    ]
    return DeliveryGroupsOut(groups=groups, next=more)


def _out(found: GroupStatus, ledger: list[EntryOut]) -> DeliveryGroupOut:
    credentials = None
    if found.credentials_version is not None:
        credentials = GroupCredentialsOut(
            version=found.credentials_version,
            key_id=found.key_id or "",
            refused_at=found.refused_at,
            refused_code=found.refused_code,
        )
    return DeliveryGroupOut(
        site_id=found.site_id,
        site_name=found.site_name,
        provider=found.provider_key,
        in_use=found.in_use,
        circuit=CircuitOut.model_validate(vars(found)),
        paused_until=found.paused_until,
        waiting=found.waiting,
        in_call=found.in_call,
        failed=found.failed,
        credentials=credentials,
        totals=TotalsOut.model_validate(vars(found)),
        ledger=ledger,
    )
