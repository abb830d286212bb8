"""The fields of a request → a checked request; RequestRefused names the field that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from weighbridge.model.errors import RequestRefused, did_you_mean
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.upload import Sender
from weighbridge.observe.redact import quote_input, redacted
from weighbridge.uploads.context import Context
from weighbridge.uploads.read_options import read_options

SOURCES = ("manual", "api", "webhook")
AUTO = "auto"  # in place of a pipeline: recognise pipeline and platform from the file (recognise.py)
LONGEST_BATCH = 200
HIGHEST_PROJECT = 2**53 - 1  # the largest integer that JSON numbers represent exactly
HOW_TO_MAKE_A_SITE = (
    "To create one: POST /api/sites, or weighbridge sites create. "
    "To list them: GET /api/sites, or weighbridge sites list."
)


@dataclass(frozen=True)
class Request:
    """The fields that a sender gives for a file, unchecked."""

    workspace_id: str | UUID
    platform: str | None = None
    source: str = "manual"
    pipeline: str = "ads"
    client_id: str | UUID | None = None
    project_id: str | int | None = None
    filename: str | None = None
    created_by: str | UUID | None = None
    force_partial: bool = False  # promote the valid rows even if too few rows are valid
    force: bool = False  # load the same content again on purpose
    source_batch_id: str | None = None  # the sender's name for its batch; belongs to one upload
    preview: bool = False  # stop when the rows are staged, and show the changes (preview.py)
    encoding: str | None = None  # read options; if not given, detected from the file (read_options.py)
    delimiter: str | None = None
    decimal: str | None = None
    date_order: str | None = None
    sum_breakdowns: bool = False
    key_id: str | None = None  # the key of the request; not a field that a sender can set
    bound: tuple[str, ...] = ()  # fields that an upload token sets; no step may drop them


@dataclass(frozen=True, kw_only=True)
class Checked(Sender):
    """A request that can be served."""

    client_id: UUID | None
    platform: str | None
    project_id: int | None
    source: str
    pipeline: Pipeline
    force_partial: bool
    force: bool
    source_batch_id: str | None
    preview: bool = False
    reading: ReadOptions = DETECT_ALL


def check_sender(ctx: Context, request: Request) -> Sender:
    """Check what can be checked before the first byte. A pipeline that is yet to be recognised is not checked."""
    if request.pipeline != AUTO:
        return check(ctx, request)
    if request.source not in SOURCES:
        raise _unprocessable("source", request.source, SOURCES)
    if request.platform and not any(each.profile(request.platform) for each in ctx.pipelines.values()):
        known = sorted({profile.name for each in ctx.pipelines.values() for profile in each.profiles})
        raise _unprocessable("platform", request.platform, known)
    _batch(request.source_batch_id)
    read_options(vars(request))
    return Sender(workspace_id=_workspace(request), created_by=_creator(request))


def check(ctx: Context, request: Request) -> Checked:
    """The request in the service's own terms, or RequestRefused with the reason."""
    pipeline = ctx.pipelines.get(request.pipeline)
    if pipeline is None:
        known = sorted(ctx.pipelines)
        raise _unprocessable("pipeline", request.pipeline, known)
    if request.source not in SOURCES:
        raise _unprocessable("source", request.source, SOURCES)
    _within_bounds(pipeline, request)
    return Checked(
        workspace_id=_workspace(request),
        client_id=_client(pipeline, request.client_id),
        platform=_platform(pipeline, request.platform or None),
        project_id=_project(pipeline, request.project_id),
        source=request.source,
        pipeline=pipeline,
        created_by=_creator(request),
        force_partial=request.force_partial,
        force=request.force,
        source_batch_id=_batch(request.source_batch_id),
        preview=request.preview,
        reading=read_options(vars(request)),
    )


def _within_bounds(pipeline: Pipeline, request: Request) -> None:
    """A token for a client, project or platform does not admit files of a pipeline that has none."""
    has = {
        "client_id": ("client", "client_id" in pipeline.scope),
        "project_id": ("project", "project_id" in pipeline.scope),
        "platform": ("platform", bool(pipeline.profiles)),
    }
    for name, (kind, belongs) in has.items():
        if name in request.bound and not belongs:
            bound = quote_input(str(getattr(request, name)))
            message = (
                f"{name}: this upload token is for {bound} only; "
                f"files of the pipeline {pipeline.name} belong to no {kind}."
            )
            raise RequestRefused(403, "wrong_scope", message)


def _workspace(request: Request) -> UUID:
    return uuid_of(request.workspace_id, "workspace", "workspace_id")


def _creator(request: Request) -> UUID | None:
    return uuid_of(request.created_by, "creator", "created_by") if request.created_by else None


def _batch(name: str | None) -> str | None:
    if not name:
        return None
    if len(name) > LONGEST_BATCH or not name.isprintable():
        message = (
            f"source_batch_id: expected up to {LONGEST_BATCH} printable characters, got {quote_input(name)}."
        )
        raise RequestRefused(422, "invalid_batch", message)
    if redacted(name) != name:
        message = (
            f"source_batch_id: expected a name that may be logged, got {quote_input(name)}. "
            "Batch names appear in logs and alerts: leave out personal data and secrets."
        )
        raise RequestRefused(422, "invalid_batch", message)
    return name


def uuid_of(value: str | UUID, code: str, name: str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        message = (
            f"{name}: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got {quote_input(value)}."
        )
        raise RequestRefused(422, f"invalid_{code}", message) from None


def _platform(pipeline: Pipeline, platform: str | None) -> str | None:
    known = [profile.name for profile in pipeline.profiles]
    if platform is None:
        if "platform" in pipeline.scope:
            raise RequestRefused(
                422, "unknown_platform", f"platform: expected one of {', '.join(known)}, got none."
            )
        return None
    if not known:
        raise RequestRefused(
            422, "unknown_platform", f"platform: the pipeline {pipeline.name} has no platforms; leave it out."
        )
    if platform not in known:
        raise _unprocessable("platform", platform, known)
    return platform


def _client(pipeline: Pipeline, value: str | UUID | None) -> UUID | None:
    if not value:
        if pipeline.sites:
            message = (
                f"client_id: files of the pipeline {pipeline.name} belong to a site, expected its id, got none. "
                f"{HOW_TO_MAKE_A_SITE}"
            )
            raise RequestRefused(422, "missing_site", message)
        return None
    if "project_id" in pipeline.scope and "client_id" not in pipeline.scope:
        # With it the same content would be another job of the same project.
        message = (
            f"client_id: files of the pipeline {pipeline.name} belong to a project; leave client_id out."
        )
        raise RequestRefused(422, "invalid_client", message)
    return uuid_of(value, "client", "client_id")


def unknown_site(site_id: UUID) -> RequestRefused:
    message = f"client_id: there is no site {site_id} in this workspace. {HOW_TO_MAKE_A_SITE}"
    return RequestRefused(422, "unknown_site", message)


def _project(pipeline: Pipeline, value: str | int | None) -> int | None:
    if "project_id" not in pipeline.scope:
        if value not in (None, ""):
            message = f"project_id: the pipeline {pipeline.name} has no projects; leave it out."
            raise RequestRefused(422, "invalid_project", message)
        return None
    if value in (None, ""):
        message = "project_id: expected the number of the project that the file belongs to, got none."
        raise RequestRefused(422, "invalid_project", message)
    return project_number(value)


def project_number(value: str | int | None) -> int:
    """The number of a project, from the request. A project is created by its first file or by `projects create`."""
    text = str(value).strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(HIGHEST_PROJECT)) else 0
    if not 1 <= number <= HIGHEST_PROJECT:
        message = f"project_id: expected a whole number from 1 to {HIGHEST_PROJECT}, got {quote_input(text)}."
        raise RequestRefused(422, "invalid_project", message)
    return number


def _unprocessable(name: str, value: str, known: list[str] | tuple[str, ...]) -> RequestRefused:
    hint = did_you_mean(value, known) or "."
    message = f"{name}: expected one of {', '.join(known)}, got {quote_input(value)}{hint}"
    return RequestRefused(422, f"unknown_{name}", message)
