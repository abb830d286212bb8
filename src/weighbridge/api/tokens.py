"""`POST /api/tokens`: upload tokens for pages on other origins, so that no key is exposed in a browser."""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.sessions import LONGEST_TOKEN, Sessions
from weighbridge.api.uploads import fields
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.observe.redact import quote_input
from weighbridge.uploads.check_request import AUTO, HIGHEST_PROJECT, uuid_of

router = APIRouter(tags=["uploads"])


class TokenIn(BaseModel):
    """Lifetime and restrictions of a token. Files cannot override the fields that are set here."""

    model_config = ConfigDict(extra="forbid")
    seconds: int = Field(900, ge=10, le=int(LONGEST_TOKEN.total_seconds()))
    pipeline: str | None = None
    platform: str | None = None
    project_id: int | None = Field(None, ge=0, le=HIGHEST_PROJECT)
    client_id: str | None = Field(None, description="The client; for the pipeline conversions, the site.")
    created_by: str | None = Field(None, description="The user who owns the files, for quotas: a UUID.")


class TokenOut(BaseModel):
    token: str = Field(description="Send it as `Authorization: Bearer wbt_…`.")
    expires_at: datetime


@router.post(
    "/api/tokens",
    status_code=201,
    responses=documented(_422="A field is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("upload")
async def make_token(request: Request, key: Key, app: TheApp, body: TokenIn | None = None) -> TokenOut:
    """Create a short-lived token for a browser. It can only upload files."""
    body = body or TokenIn.model_validate({})
    restrictions = {
        name: str(value) for name, value in body.model_dump(exclude={"seconds"}).items() if value is not None
    }
    _check_restrictions(app, key, restrictions)
    sessions: Sessions = request.app.state.sessions
    token, until = await sessions.token(key, timedelta(seconds=body.seconds), restrictions)
    return TokenOut(token=token, expires_at=until)


def _check_restrictions(app: App, key: ApiKey, restrictions: dict[str, str]) -> None:
    """Refuse restrictions that no file could meet, instead of refusing every upload with the token."""
    if restrictions.get("pipeline", AUTO) != AUTO:
        fields.checked(app, fields.request_of(restrictions, key), key)
        return
    for name in ("client_id", "created_by"):
        if name in restrictions:
            uuid_of(restrictions[name], name, name)
    platforms = sorted({profile.name for each in app.ctx.pipelines.values() for profile in each.profiles})
    if (platform := restrictions.get("platform")) is not None and platform not in platforms:
        message = f"platform: expected one of {', '.join(platforms)}, got {quote_input(platform)}."
        raise RequestRefused(422, "unknown_platform", message)
