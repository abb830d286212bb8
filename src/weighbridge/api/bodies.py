"""Bodies that are read by hand, once it is known who sent them: they are checked by the steps that they are for."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from weighbridge.model.errors import RequestRefused

LARGEST = 8 * 2**20  # bytes


async def json_of(request: Request) -> Any:
    """RequestRefused: 413 where it is too large, 422 where it is no JSON."""
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
    """What OpenAPI says of such a body."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}
