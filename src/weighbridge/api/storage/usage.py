"""`/api/usage`: storage usage and quotas of a workspace and its users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.postgres import roles
from weighbridge.storage import usage
from weighbridge.storage.quota import defaults
from weighbridge.storage.usage import Usage

router = APIRouter(tags=["usage"])


class LimitsOut(BaseModel):
    """Limits in bytes; null: no limit."""

    month_bytes: int | None
    total_bytes: int | None


class UserUsageOut(BaseModel):
    user_id: UUID = Field(description="`created_by` of the uploads; all zeros if none was given.")
    total_bytes: int
    total_sources: int
    month_bytes: int
    last_calculated: datetime | None = Field(description="When the total last changed.")
    interpretation_count_month: int = Field(description="Stored files read again on request this month.")
    interpretation_limit_month: int
    waiting_bytes: int
    reserved_bytes: int
    limits: LimitsOut


class UsageOut(BaseModel):
    workspace_id: UUID
    billing_month: str = Field(examples=["2026-01"])
    resets_at: datetime = Field(description="When the monthly counters reset.")
    total_bytes: int = Field(description="Bytes stored now.")
    total_sources: int = Field(description="Files stored now; the same content on one day counts once.")
    month_bytes: int = Field(description="Bytes stored this month, including files deleted since.")
    waiting_bytes: int = Field(description="Bytes of accepted files that wait for the file store.")
    reserved_bytes: int = Field(description="Bytes reserved for uploads in progress.")
    limits: LimitsOut
    users: list[UserUsageOut]
    more_users: int = Field(description="Number of users that are not listed.")


@router.get(
    "/api/usage",
    responses=documented(_422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_usage(
    key: Key,
    app: TheApp,
    limit: Annotated[
        int, Query(ge=1, le=1000, description="Maximum number of users; highest usage first.")
    ] = 200,
) -> UsageOut:
    """Storage usage and quotas of the workspace and its users. A file is refused if used, queued and
    reserved bytes plus its own exceed a limit."""
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        workspace, *users = await usage.usage_and_limits(tx, defaults(app.ctx.limits))
    return UsageOut(
        workspace_id=key.workspace_id,
        billing_month=workspace.billing_month,
        resets_at=workspace.resets_at,
        total_bytes=workspace.total_bytes,
        total_sources=workspace.total_sources,
        month_bytes=workspace.month_bytes,
        waiting_bytes=workspace.waiting_bytes,
        reserved_bytes=workspace.reserved_bytes,
        limits=_limits(workspace),
        users=[_user(each) for each in sorted(users, key=lambda each: -each.total_bytes)[:limit]],
        more_users=max(0, len(users) - limit),
    )


def _user(found: Usage) -> UserUsageOut:
    shown = {name: getattr(found, name) for name in UserUsageOut.model_fields if name != "limits"}
    return UserUsageOut(**shown, limits=_limits(found))


def _limits(found: Usage) -> LimitsOut:
    return LimitsOut(month_bytes=found.month_limit, total_bytes=found.total_limit)
