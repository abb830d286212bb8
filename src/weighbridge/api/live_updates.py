"""Live updates: one LISTEN connection per process, and all its subscribers.

A notification is a hint that an upload changed. The hub reads its progress once and sends it to all subscribers of
its workspace. Rows read and written cause no notification: while a watched workspace has unfinished uploads,
the hub polls them every second. Without subscribers it does nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from typing import Any
from uuid import UUID

import structlog

from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import LIVE_UPDATES_PAUSE
from weighbridge.model.states import LIVE
from weighbridge.postgres import roles
from weighbridge.postgres.listen import notifications
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import live

SNAPSHOT = 200  # uploads at most in a snapshot
log = structlog.get_logger()
Message = dict[str, Any]
_LOOK_EVERY = 1.0
_SNAPSHOT: Message = {"type": "snapshot"}  # placeholder in the queue; the snapshot is read when it is sent
_BACKLOG = 1000  # a subscriber that is further behind gets a fresh snapshot instead


class Subscriber:
    """One client that watches a workspace."""

    def __init__(self, hub: Hub, workspace_id: UUID) -> None:
        self.workspace_id = workspace_id
        self._hub = hub
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue(_BACKLOG)
        self.start_over()

    def send(self, message: Message) -> None:
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.start_over()

    def start_over(self) -> None:
        """Drop queued messages; the next message is a snapshot."""
        self._only(_SNAPSHOT)

    def end(self) -> None:
        self._only(None)

    def _only(self, message: Message | None) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(message)

    async def next(self, wait_seconds: float) -> Message | None:
        """The next message; an empty one after a timeout; None when the server is stopping."""
        try:
            async with asyncio.timeout(
                wait_seconds
            ):  # wait_for can lose a message, or a cancellation, in 3.11
                message = await self._queue.get()
        except TimeoutError:
            return {}
        return await self._hub.snapshot(self.workspace_id) if message is _SNAPSHOT else message


class Hub:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._subscribers: dict[UUID, set[Subscriber]] = {}
        self._last: dict[UUID, live.UploadProgress] = {}  # unfinished and watched uploads, as last sent
        self._stopped = False

    @asynccontextmanager
    async def running(self, stop: asyncio.Event | None) -> AsyncIterator[None]:
        """Listen and poll until the context ends, or until `stop` ends all streams."""
        tasks = [asyncio.create_task(_for_ever(chore)) for chore in (self._listen, self._look)]
        if stop is not None:
            tasks.append(asyncio.create_task(self._end_with(stop)))
        try:
            yield
        finally:
            self._end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def subscribed(self, workspace_id: UUID) -> Iterator[Subscriber]:
        subscriber = Subscriber(self, workspace_id)
        self._subscribers.setdefault(workspace_id, set()).add(subscriber)
        if self._stopped:
            subscriber.end()
        try:
            yield subscriber
        finally:
            others = self._subscribers[workspace_id]
            others.discard(subscriber)
            if not others:
                del self._subscribers[workspace_id]

    async def snapshot(self, workspace_id: UUID) -> Message:
        """The newest unfinished uploads of a workspace; `truncated`: there are more."""
        async with self._db.tx(roles.TENANT, workspace_id) as tx:
            ids = await live.under_way(tx, workspace_id, SNAPSHOT + 1)
            found = await live.progress_of(tx, ids[:SNAPSHOT])
        self._last.update({progress.upload_id: progress for progress in found})
        uploads = [_to_json(progress) for progress in found]
        return {"type": "snapshot", "uploads": uploads, "truncated": len(ids) > SNAPSHOT}

    async def _listen(self) -> None:
        async for payload in notifications(self._db.url, "weighbridge_live"):
            if not payload:  # just connected: earlier notifications are lost
                for subscriber in self._everyone():
                    subscriber.start_over()
                continue
            with suppress(ValueError, KeyError, RetryLater):
                message = json.loads(payload)
                workspace_id = UUID(message["workspace_id"])
                if workspace_id not in self._subscribers:
                    continue
                if "type" in message:
                    self._send(workspace_id, message)
                else:
                    await self._report(workspace_id, [UUID(message["upload_id"])], message["status"])

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            watched: dict[UUID, list[UUID]] = {}
            for upload_id, progress in list(self._last.items()):
                if progress.workspace_id in self._subscribers:
                    watched.setdefault(progress.workspace_id, []).append(upload_id)
                else:
                    del self._last[upload_id]
            for workspace_id, uploads in watched.items():
                with suppress(RetryLater):
                    await self._report(workspace_id, uploads, None)

    async def _report(self, workspace_id: UUID, uploads: list[UUID], moved_to: str | None) -> None:
        """Send the progress of these uploads if it changed, or always after a notified change of state.

        The row may have changed again when it is read; the notified change is sent anyway, and the next one follows.
        """
        async with self._db.tx(roles.TENANT, workspace_id) as tx:
            found = await live.progress_of(tx, uploads)
        for progress in found:
            changed = self._last.get(progress.upload_id) != progress
            if progress.status in LIVE and not progress.on_hold:
                self._last[progress.upload_id] = progress
            else:
                self._last.pop(progress.upload_id, None)
            if moved_to or changed:
                message = _to_json(progress)
                self._send(workspace_id, {"type": "upload", **message, "status": moved_to or progress.status})

    def _send(self, workspace_id: UUID, message: Message) -> None:
        for subscriber in self._subscribers.get(workspace_id, ()):
            subscriber.send(message)

    def _everyone(self) -> Iterable[Subscriber]:
        return [each for group in self._subscribers.values() for each in group]

    async def _end_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._end()

    def _end(self) -> None:
        self._stopped = True
        for subscriber in self._everyone():
            subscriber.end()


async def _for_ever(chore: Callable[[], Awaitable[None]]) -> None:
    """Restart a background task that fails: one bad message must not stop live updates."""
    while True:
        try:
            await chore()
        except Exception:
            log.exception("live.failed")
            await asyncio.sleep(LIVE_UPDATES_PAUSE.total_seconds())


def _to_json(progress: live.UploadProgress) -> Message:
    values = asdict(progress)
    return {
        "held": values.pop("on_hold"),
        **values,
        "upload_id": str(progress.upload_id),
        "workspace_id": str(progress.workspace_id),
    }
