"""Error responses: `{"error": code, "message": sentence}`, never a stack trace."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from weighbridge.api import validation_messages
from weighbridge.model.errors import (
    NoProject,
    ProcessingLocked,
    QuotaExceeded,
    Refused,
    RequestRefused,
    RetryLater,
)

_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}


class Problem(BaseModel):
    """An error: a code for programs and a message for people."""

    model_config = ConfigDict(extra="allow")
    error: str = Field(examples=["unknown_platform"])
    message: str = Field(
        examples=["platform: expected one of meta, google, tiktok, got 'mta'; did you mean 'meta'?"]
    )


def problem(status: int, code: str, message: str, **more: Any) -> JSONResponse:
    return JSONResponse({"error": code, "message": message, **more}, status, headers=_HEADERS.get(status))


def figures(error: Exception) -> dict[str, Any]:
    """Additional fields of a quota error; none for other errors."""
    if not isinstance(error, QuotaExceeded):
        return {}
    resets_at = error.resets_at and error.resets_at.isoformat()
    return {"used": error.used, "limit": error.limit, "resets_at": resets_at}


def documented(**codes: str) -> dict[int | str, dict[str, Any]]:
    """`responses=documented(_404="no such upload")`; 401, 403 and 503 are always among them."""
    always = {
        "_401": "The key is missing or invalid.",
        "_403": "The key lacks the scope, or belongs to another workspace.",
        "_503": "The database does not respond; retry later.",
    }
    return {
        int(code.removeprefix("_")): {"model": Problem, "description": text}
        for code, text in {**always, **codes}.items()
    }


def answer_problems(api: FastAPI) -> None:
    """Register a response for every exception that a route can raise."""

    @api.exception_handler(RequestRefused)
    async def _(request: Request, error: RequestRefused) -> Response:
        return problem(error.status, error.code, error.message)

    @api.exception_handler(QuotaExceeded)
    async def _(request: Request, error: QuotaExceeded) -> Response:
        answer = problem(error.status, error.code, error.message, **figures(error))
        if error.seconds is not None:
            answer.headers["Retry-After"] = str(ceil(error.seconds))
        return answer

    @api.exception_handler(Refused)
    async def _(request: Request, error: Refused) -> Response:
        return problem(409, error.code, error.message)

    @api.exception_handler(ProcessingLocked)
    async def _(request: Request, error: ProcessingLocked) -> Response:
        return problem(409, error.code, error.message, project_id=_project(request))

    @api.exception_handler(NoProject)
    async def _(request: Request, error: NoProject) -> Response:
        number = _project(request)
        opens = f"POST /api/uploads with pipeline=keywords and project_id={number}"
        return problem(404, error.code, f"There is no project {number}. Its first file creates it: {opens}.")

    @api.exception_handler(RetryLater)
    async def _(request: Request, error: RetryLater) -> Response:
        return problem(503, "unavailable", error.message)

    @api.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        return problem(
            422, "invalid_request", validation_messages.sentences(error, request.scope.get("route"))
        )

    @api.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        answer = problem(error.status_code, code, f"{error.detail}.")
        answer.headers.update(error.headers or {})
        return answer

    @api.exception_handler(ClientDisconnect)
    async def _(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client has disconnected

    @api.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        return problem(500, "internal_error", "Internal error. See the log of Weighbridge.")


def _project(request: Request) -> int:
    """The project of a request: the database error does not contain it."""
    return int(request.path_params["project_id"])
