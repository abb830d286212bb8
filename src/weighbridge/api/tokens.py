"""`POST /api/tokens`: what a page on another origin uploads with, so that no key is ever in a browser."""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.problems import documented
from weighbridge.api.sessions import LONGEST_TOKEN, Passes
from weighbridge.api.uploads import fields
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.observe.redact import said_back
from weighbridge.uploads.request import AUTO, HIGHEST_PROJECT, uuid_of

router = APIRouter(tags=["uploads"])


class TokenIn(BaseModel):
    """How long it holds, and which files it is for: what is named here, no file may say otherwise."""

    model_config = ConfigDict(extra="forbid")
    seconds: int = Field(900, ge=10, le=int(LONGEST_TOKEN.total_seconds()))
    pipeline: str | None = None
    platform: str | None = None
    project_id: int | None = Field(None, ge=0, le=HIGHEST_PROJECT)
    client_id: str | None = Field(None, description="Which client, or for conversions which site.")
    created_by: str | None = Field(None, description="Whose files they are, for quotas: a UUID.")


class TokenOut(BaseModel):
    token: str = Field(description="Send it as `Authorization: Bearer wbt_…`.")
    expires_at: datetime


@router.post(
    "/api/tokens",
    status_code=201,
    responses=documented(_422="A field is wrong."),
    openapi_extra={"security": SECURITY},
)
@needs("upload")
async def make_token(request: Request, key: Key, app: TheApp, wish: TokenIn | None = None) -> TokenOut:
    """A short-lived token that may only upload, for a browser."""
    wish = wish or TokenIn.model_validate({})
    said = {
        name: str(value) for name, value in wish.model_dump(exclude={"seconds"}).items() if value is not None
    }
    _refuse_what_no_file_meets(app, key, said)
    passes: Passes = request.app.state.passes
    token, until = await passes.token(key, timedelta(seconds=wish.seconds), said)
    return TokenOut(token=token, expires_at=until)


def _refuse_what_no_file_meets(app: App, key: ApiKey, said: dict[str, str]) -> None:
    """RequestRefused now, rather than for each file of the people that the token is for."""
    if said.get("pipeline", AUTO) != AUTO:
        fields.checked(app, fields.request_of(said, key), key)
        return
    for name in ("client_id", "created_by"):
        if name in said:
            uuid_of(said[name], name, name)
    platforms = sorted({profile.name for each in app.ctx.pipelines.values() for profile in each.profiles})
    if (platform := said.get("platform")) is not None and platform not in platforms:
        message = f"platform: expected one of {', '.join(platforms)}, got {said_back(platform)}."
        raise RequestRefused(422, "unknown_platform", message)
