"""`POST /api/recognise`: detect pipeline and platform of a file from its first bytes. Nothing is stored."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import Problem, documented
from weighbridge.api.uploads import fields
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.read_options import ABOUT_NEW
from weighbridge.uploads.check_request import AUTO
from weighbridge.uploads.check_request import Request as UploadRequest
from weighbridge.uploads.read_options import read_options
from weighbridge.uploads.receive import tidy_name
from weighbridge.uploads.recognise import HEAD, Fit, recognise, with_pipeline

router = APIRouter(tags=["uploads"])
_BODY = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


class FitOut(BaseModel):
    """A pipeline that may fit the file."""

    pipeline: str
    platform: str | None
    matched: list[str] = Field(description="Columns of the file that the pipeline reads.")
    missing: list[str] = Field(description="Expected columns that the file lacks.")
    needs: list[str] = Field(description="Fields that are also required: project_id, client_id.")


class RecognisedOut(BaseModel):
    """The detected type of a file. If `sure` is not `one`, `message` says what is missing or which types match."""

    sure: Literal["one", "several", "none"]
    message: str
    pipeline: str | None
    platform: str | None
    fits: list[FitOut] = Field(description="The matching pipelines; if none match, the nearest one, if any.")
    refusal: Problem | None = Field(description="The error that an upload with these fields would get.")


@router.post(
    "/api/recognise",
    responses=documented(
        _413=f"More than {HEAD // 1024} kB: send only the beginning of the file.",
        _415="Neither CSV nor JSON.",
        _422="The body is empty, or a parameter is invalid.",
    ),
    openapi_extra={"security": SECURITY, "requestBody": _BODY},
)
@needs("upload", browsers=True)
async def recognise_file(
    request: Request,
    key: Key,
    app: TheApp,
    filename: Annotated[str | None, Query(description="The name of the file.")] = None,
    platform: Annotated[str | None, Query(description="The platform, if known.")] = None,
    project_id: Annotated[str | None, Query(description="The value that the upload will have.")] = None,
    client_id: Annotated[str | None, Query(description="The value that the upload will have.")] = None,
    encoding: Annotated[str | None, Query(description=ABOUT_NEW["encoding"])] = None,
    delimiter: Annotated[str | None, Query(description=ABOUT_NEW["delimiter"])] = None,
) -> RecognisedOut:
    """Detect pipeline and platform of a file. Send its first 64 kB, or all of a smaller file, as the body."""
    given = {
        "platform": platform,
        "project_id": project_id,
        "client_id": client_id,
        "pipeline": AUTO,
        "encoding": encoding,
        "delimiter": delimiter,
    }
    upload_request = fields.request_of({name: value for name, value in given.items() if value}, key)
    fields.admitted(app, upload_request, key)
    head = await _head(request)
    found = await recognise(
        app.ctx, head, tidy_name(filename), upload_request.platform, read_options(vars(upload_request))
    )
    fit = found.fit
    shown = found.fits or ((found.nearest,) if found.nearest else ())
    return RecognisedOut(
        sure="one" if fit else "several" if found.fits else "none",
        message=found.sentence,
        pipeline=fit.pipeline.name if fit else None,
        platform=fit.platform if fit else None,
        fits=[_out(each) for each in shown],
        refusal=_refusal(app, with_pipeline(upload_request, fit), key) if fit else None,
    )


def _refusal(app: App, upload_request: UploadRequest, key: ApiKey) -> Problem | None:
    try:
        fields.checked(app, upload_request, key)
    except RequestRefused as refusal:
        return Problem(error=refusal.code, message=refusal.message)
    return None


async def _head(request: Request) -> bytes:
    head = bytearray()
    async for chunk in request.stream():
        head += chunk
        if len(head) > HEAD:
            message = f"body: expected the first {HEAD // 1024} kB of a file, got more."
            raise RequestRefused(413, "body_too_large", message)
    return bytes(head)


def _out(fit: Fit) -> FitOut:
    return FitOut(
        pipeline=fit.pipeline.name,
        platform=fit.platform,
        matched=list(fit.matched),
        missing=list(fit.missing),
        needs=_needs(fit.pipeline),
    )


def _needs(pipeline: Pipeline) -> list[str]:
    return [
        *(["project_id"] if "project_id" in pipeline.scope else []),
        *(["client_id"] if pipeline.sites else []),
    ]
