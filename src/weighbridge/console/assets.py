"""`/static`: style sheet and scripts. Public: they contain no data."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER = files("weighbridge.console").joinpath("static")


class Static(StaticFiles):
    """Browsers cache addresses with a version without end, and revalidate others."""

    def __init__(self) -> None:
        super().__init__(directory=str(_FOLDER))

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        asked = f"/static/{path}?{scope['query_string'].decode('latin-1')}"
        versioned = answer.status_code == 200 and asked == address(path)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if versioned else "no-cache"
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer


@cache
def address(name: str) -> str:
    """The address of a file, with its version."""
    return f"/static/{name}?v={hashlib.sha256(_FOLDER.joinpath(name).read_bytes()).hexdigest()[:12]}"
