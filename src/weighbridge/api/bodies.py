"""JSON bodies that are read after authentication and validated by the called function instead of by FastAPI."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from weighbridge.model.errors import RequestRefused

LARGEST = 8 * 2**20  # bytes


async def json_of(request: Request) -> Any:
    """Read a JSON body. RequestRefused: 413 if it is too large, 422 if it is not JSON."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise RequestRefused(
                413, "body_too_large", f"body: expected at most {LARGEST // 2**20} MB, got more."
            )
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(422, "invalid_request", "body: expected JSON, got something else.") from None


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description of such a body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}
