"""Cross-origin requests: pages of the configured origins may upload files from a browser, and nothing else.

Only the routes that `<wb-upload>` needs allow them, and never with a session cookie: the page has to send an upload
token.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from weighbridge.api.uploads.tus_headers import PATH

PATHS = (PATH, "/api/recognise", "/static/wb-upload.js")
_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
_SENT = (
    "Authorization", "Tus-Resumable", "Upload-Checksum", "Upload-Length", "Upload-Metadata", "Upload-Offset",
    "X-HTTP-Method-Override", "X-Requested-With",
)  # fmt: skip
_TOLD = (
    "Location", "Retry-After", "Tus-Checksum-Algorithm", "Tus-Extension", "Tus-Max-Size", "Tus-Resumable",
    "Tus-Version", "Upload-Expires", "Upload-Length", "Upload-Metadata", "Upload-Offset", "Weighbridge-Duplicate",
    "Weighbridge-Error", "Weighbridge-Queue-Id", "Weighbridge-Status", "Weighbridge-Storage-Status",
    "Weighbridge-Upload-Id", "X-Trace-Id",
)  # fmt: skip


class Cors:
    """Middleware around the API; it handles only the paths above."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self.app = app
        self.open = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_SENT,
            expose_headers=_TOLD,
            allow_credentials=False,
            max_age=7200,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        minded = scope["type"] == "http" and (scope["path"] in PATHS or scope["path"].startswith(f"{PATH}/"))
        await (self.open if minded else self.app)(scope, receive, send)
