"""The console: pages for people, over the same steps as the API. One file a page, one template each.

frame     what all pages share: layout, session, forms, refusals; assets are its style and scripts
sign_in   a key → a session
uploads   what came, and how far it is; upload is one of them, preview what it would change
projects  files, groups, keywords and tokens of a project; grouping is what edits them
deliveries  what goes to the providers; conversion is one of them
storage   what is stored, what may be, what waits
health    what waits, fails and lingers, over time
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from weighbridge import api
from weighbridge.app import App
from weighbridge.console import assets, frame, health, sign_in
from weighbridge.console.delivery import conversion
from weighbridge.console.delivery import index as delivery_index
from weighbridge.console.projects import edits, pages
from weighbridge.console.storage import index as storage_index
from weighbridge.console.uploads import index as uploads_index
from weighbridge.console.uploads import preview, upload


def create(app: App, stop: asyncio.Event | None = None) -> FastAPI:
    """The API and the console over an open application."""
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
    frame.answer_as_pages(site)
    return site


__all__ = ["create"]
