"""What it costs to keep a file that the store could not take, and to count one, beside the least that it could.

All of it on one disk and one Postgres with fsync, in turns, so that a noisy moment is everybody's; the median counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

import psycopg

from weighbridge.app import App, open_app
from weighbridge.model.errors import RetryLater
from weighbridge.observe import logs
from weighbridge.settings import read
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.uploads.queue import NewUpload
from weighbridge.uploads.store_unavailable import defer

from . import ours
from .setting import COUNTED, QUEUED, Result, Setting

_CALLS, _WARM = 300, 20
_FILE = 100_000  # bytes
_BARE = "CREATE TABLE IF NOT EXISTS bare AS SELECT * FROM upload_queue WITH NO DATA"
_INSERT = (
    "INSERT INTO bare (id, temp_file_path, bucket, object_path, content_hash, byte_size, user_id)"
    " VALUES (gen_random_uuid(), %s, 'bench', %s, %s, %s, gen_random_uuid())"
)


def run(setting: Setting) -> Iterator[Result]:
    """A queue insert (file and row, both on the disk) and a usage call, each with the bare parts that are in it."""
    with ours.database(setting) as environment:
        setting.quiet()
        found = asyncio.run(_measured(setting, environment["DATABASE_URL"]))
    note = f"median of {_CALLS}"
    yield Result("ours", QUEUED, 1, found["queue"], note=f"{note}; {_FILE // 1000} kB")
    yield Result("bare file write", QUEUED, 1, found["file"], note=f"{note}; write, fsync, rename, fsync")
    yield Result("bare INSERT", QUEUED, 1, found["insert"], note=f"{note}; with commit")
    yield Result("ours", COUNTED, 1, found["usage"], note=note)
    yield Result("bare INSERT", COUNTED, 1, found["insert"], note=f"{note}; with commit")


async def _measured(setting: Setting, url: str) -> dict[str, float]:
    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230
        logs.configure("info", nowhere)  # as the service does, but to nobody
        return await _in_turns(setting, url)


async def _in_turns(setting: Setting, url: str) -> dict[str, float]:
    async with (
        open_app(read(home=setting.home, DATABASE_URL=url)) as app,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as bare,
    ):
        await bare.execute(_BARE)
        parts = _Parts(app, bare)
        took: dict[str, list[float]] = {}
        for _ in range(_WARM + _CALLS):
            for name, part in (
                ("queue", parts.queue),
                ("file", parts.file),
                ("insert", parts.insert),
                ("usage", parts.usage),
            ):
                took.setdefault(name, []).append(await part())
    return {name: median(times[_WARM:]) for name, times in took.items()}


class _Parts:
    """Each does its part once and says how many seconds that took."""

    def __init__(self, app: App, bare: psycopg.AsyncConnection) -> None:
        self._ctx, self._bare = app.ctx, bare
        self._workspace = uuid4()

    async def queue(self) -> float:
        file, content = self._received()
        digest = hashlib.sha256(content)
        new = NewUpload(
            workspace_id=self._workspace,
            client_id=None,
            platform="meta",
            source="api",
            pipeline="ads",
            filename="export.csv",
            file_url=None,
            file_kind="csv",
            content_sha256=digest.digest(),
            byte_size=len(content),
        )
        key = f"{self._workspace}/2026/01/01/{digest.hexdigest()}"
        trouble = RetryLater("connection", "The file store cannot be used now.")
        return await _timed(lambda: defer(self._ctx, new, file, key, trouble, None))

    def _received(self) -> tuple[Path, bytes]:
        """A file as intake has it: whole, in scratch, not on the disk yet."""
        content = os.urandom(_FILE)
        file = self._ctx.scratch / uuid4().hex
        file.write_bytes(content)
        return file, content

    async def file(self) -> float:
        content = os.urandom(_FILE)
        return await _timed(lambda: asyncio.to_thread(self._write, content))

    def _write(self, content: bytes) -> None:
        folder = self._ctx.scratch
        written = folder / uuid4().hex
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.rename(folder / f"{written.name}.done")
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    async def insert(self) -> float:
        given = (str(self._ctx.scratch), "a/b/c", "0" * 64, _FILE)
        return await _timed(lambda: self._bare.execute(_INSERT, given))

    async def usage(self) -> float:
        return await _timed(self._count)

    async def _count(self) -> None:
        async with self._ctx.db.tx("weighbridge_intake", self._workspace) as tx:
            await tx.execute("SELECT weighbridge.increment_storage_usage(%s, %s)", (DEFAULT_USER, _FILE))


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = perf_counter()
    await call()
    return perf_counter() - began
