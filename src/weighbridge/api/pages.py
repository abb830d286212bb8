"""`/api/docs`: the API reference as plain HTML, without scripts and without requests to other hosts."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from weighbridge.api import reference
from weighbridge.api.access import public

router = APIRouter(include_in_schema=False)
_STYLE = files("weighbridge.api").joinpath("pages.css").read_text()
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@router.get("/api/docs")
@public
async def docs(request: Request) -> HTMLResponse:
    return _page("Weighbridge: the HTTP interface", reference.html(request.app.openapi()))


def _page(title: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
        headers=_HEADERS,
    )
