"""`POST /api/tokens`: what a page on another origin uploads with, so that no key is ever in a browser."""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from weighbridge.api import fields
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.problems import documented
from weighbridge.api.sessions import LONGEST_TOKEN, Passes
from weighbridge.model.errors import RequestRefused

router = APIRouter(tags=["uploads"])


class TokenIn(BaseModel):
    """How long it holds, and which files it is for: what is named here, no file may say otherwise."""

    model_config = ConfigDict(extra="forbid")
    seconds: int = Field(900, ge=10, le=int(LONGEST_TOKEN.total_seconds()))
    pipeline: str | None = None
    platform: str | None = None
    project_id: int | None = None
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
    if key.bounds is not None:
        raise RequestRefused(403, "wrong_scope", "An upload token makes no other tokens; a key does.")
    wish = wish or TokenIn.model_validate({})
    said = {
        name: str(value) for name, value in wish.model_dump(exclude={"seconds"}).items() if value is not None
    }
    if "pipeline" in said and said["pipeline"] != "auto":
        fields.checked(app, fields.request_of(said, key), key)
    passes: Passes = request.app.state.passes
    token, until = await passes.token(key, timedelta(seconds=wish.seconds), said)
    return TokenOut(token=token, expires_at=until)
