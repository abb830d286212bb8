"""The console: web pages that use the same functions as the API.

layout       shared by all pages: routers, rendering, redirects; csrf refuses forged forms, error_pages shows errors
assets       style sheet and scripts
listing      lists that load page after page
filters      numbers, times and states as text, in templates
sign_in      sign in with an API key
uploads/, projects/, delivery/, storage/  the pages of each subject
health       backlog, failures and processing times
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from weighbridge import api
from weighbridge.app import App
from weighbridge.console import assets, error_pages, health, sign_in
from weighbridge.console.delivery import conversion
from weighbridge.console.delivery import index as delivery_index
from weighbridge.console.projects import edits, pages
from weighbridge.console.storage import index as storage_index
from weighbridge.console.uploads import index as uploads_index
from weighbridge.console.uploads import preview, upload


def create(app: App, stop: asyncio.Event | None = None) -> FastAPI:
    """Create the API and the console for an open application."""
    site = api.create(app, stop)
    for page in (
        sign_in,
        uploads_index,
        upload,
        preview,
        pages,
        edits,
        delivery_index,
        conversion,
        storage_index,
        health,
    ):
        site.include_router(page.router)
    site.mount("/static", assets.Static())
    error_pages.answer_as_pages(site)
    return site


__all__ = ["create"]
