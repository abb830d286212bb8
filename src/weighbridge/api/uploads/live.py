"""Live updates: server-sent events and a WebSocket with the same messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from time import monotonic

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from weighbridge.api.access import SECURITY, Key, admit, app_of, guard, needs, secret_of
from weighbridge.api.error_responses import documented
from weighbridge.api.live_updates import Hub, Message, Subscriber
from weighbridge.model.errors import RequestRefused, RetryLater

router = APIRouter(tags=["live"])
Admitted = Callable[[], Awaitable[object]]  # RequestRefused if the key or session has ended
KEEP_ALIVE = (
    15.0  # seconds; proxies close connections that are silent for longer. Also the interval of key checks
)
_KEY_TIMEOUT = 10.0  # seconds within which a WebSocket client must send its key

_EXAMPLE = """event: snapshot
data: {"type": "snapshot", "uploads": []}

event: upload
data: {"type": "upload", "upload_id": "…", "status": "promoting", "total_rows": 4320, "promoted_rows": 2000}
"""


@router.get(
    "/api/live",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A stream of the events `snapshot`, `upload` and `IngestionCompleteEvent`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **documented(),
    },
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def stream_events(request: Request, key: Key) -> StreamingResponse:
    """Stream changes of the workspace's uploads."""
    hub: Hub = request.app.state.hub
    return StreamingResponse(
        _events(hub, key, lambda: guard(request)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(hub: Hub, key: Key, admitted: Admitted) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    # The stream ends if the database, the key or the session does; clients reconnect automatically.
    with suppress(RetryLater, RequestRefused), hub.subscribed(key.workspace_id) as subscriber:
        async for message in _messages(subscriber, admitted):
            if message:
                yield f"event: {message['type']}\ndata: {json.dumps(message)}\n\n"
            else:
                yield ": still here\n\n"


async def _messages(subscriber: Subscriber, admitted: Admitted) -> AsyncIterator[Message]:
    """The messages, with empty ones as keep-alive. RequestRefused when the client loses access."""
    looked = monotonic()
    while (message := await subscriber.next(KEEP_ALIVE)) is not None:
        if not message or monotonic() - looked >= KEEP_ALIVE:
            await admitted()
            looked = monotonic()
        yield message


@router.websocket("/api/ws")
@needs("read")
async def notify(socket: WebSocket) -> None:
    """Live updates over a WebSocket. Close codes: 4401 no valid key, 4403 the key may not read."""
    hub: Hub = socket.app.state.hub
    await socket.accept()
    try:
        secret = secret_of(socket) or await _first_message(socket)
        key = await admit(app_of(socket), secret, "read")
    except RequestRefused as refusal:
        await _refuse(socket, refusal)
        return
    except WebSocketDisconnect:
        return
    with hub.subscribed(key.workspace_id) as subscriber:
        messages = _messages(subscriber, lambda: admit(app_of(socket), secret, "read"))
        talking = asyncio.create_task(_talk(socket, messages))
        hearing = asyncio.create_task(_hear(socket))
        done, waiting = await asyncio.wait({talking, hearing}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*done, *waiting, return_exceptions=True)


async def _first_message(socket: WebSocket) -> str | None:
    """Read the key from the first message, `{"key": "wb_…"}`, for clients that cannot set a header."""
    try:
        async with asyncio.timeout(_KEY_TIMEOUT):
            message = json.loads(await socket.receive_text())
    except (TimeoutError, ValueError, KeyError):
        return None
    secret = message.get("key") if isinstance(message, dict) else None
    return secret if isinstance(secret, str) else None


async def _talk(socket: WebSocket, messages: AsyncIterator[Message]) -> None:
    try:
        async for message in messages:
            if message:  # uvicorn sends pings, so no keep-alive is needed
                await socket.send_json(message)
    except RequestRefused as refusal:
        await _refuse(socket, refusal)
    else:
        await socket.close(1001)


async def _refuse(socket: WebSocket, refusal: RequestRefused) -> None:
    await socket.send_json({"type": "error", "error": refusal.code, "message": refusal.message})
    await socket.close(4000 + refusal.status)


async def _hear(socket: WebSocket) -> None:
    """Ignore messages of the client; return when it disconnects."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
