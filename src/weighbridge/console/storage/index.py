"""`/storage`: storage usage, quotas, and files that wait for the file store."""

from __future__ import annotations

from uuid import UUID

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import Key, TheApp
from weighbridge.app import App
from weighbridge.console import layout
from weighbridge.model.errors import RequestRefused
from weighbridge.postgres import roles
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import replay, usage
from weighbridge.storage.quota import defaults
from weighbridge.uploads import queue as uploads_queue

router = layout.router()
USERS = 50  # the users with the highest usage
WAITING = 200


@router.get("/storage")
@layout.page("read")
async def show(request: Request, key: Key, app: TheApp) -> HTMLResponse:
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        workspace, *users = await usage.usage_and_limits(tx, defaults(app.ctx.limits))
    async with app.db.tx() as tx:  # tenants cannot read the queue
        waiting = await storage_queue.waiting(tx, workspace_id=key.workspace_id, limit=WAITING)
    return await layout.show(
        request,
        "storage.html",
        usage=workspace,
        users=sorted(users, key=lambda each: -each.total_bytes)[:USERS],
        more_users=max(0, len(users) - USERS),
        waiting=waiting,
        active=any(each.storage_status == "pending_retry" for each in waiting),
        nobody=UUID(int=0),
    )


@router.post("/storage/{queue_id}/retry")
@layout.page("operate")
async def retry(request: Request, queue_id: UUID, key: Key, app: TheApp) -> Response:
    await _own(app, key, queue_id)
    await replay.retry_now(app.db, queue_id, actor=f"key {key.id}")
    return await layout.back(request, "/storage", "The file is queued for an immediate retry.")


@router.post("/storage/{queue_id}/drop")
@layout.page("operate")
async def drop(request: Request, queue_id: UUID, key: Key, app: TheApp) -> Response:
    await _own(app, key, queue_id)
    await replay.drop(app.ctx, queue_id, actor=f"key {key.id}")
    return await layout.back(request, "/storage", "The file is dropped. The sender has to upload it again.")


async def _own(app: App, key: ApiKey, queue_id: UUID) -> None:
    """Refuse files of other workspaces as if they did not exist."""
    async with app.db.tx() as tx:
        upload_id = await storage_queue.upload_of(tx, queue_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        upload = upload_id and await uploads_queue.get(tx, upload_id)
    if not upload:
        raise RequestRefused(404, "unknown_file", "This file is not, or no longer, in the storage queue.")
