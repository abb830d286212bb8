"""What the tests of previews share: files of every pipeline, and the way to the hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.api.conftest import client, key, make_key  # noqa: F401
from tests.cli.conftest import environment, main  # noqa: F401
from tests.projects.conftest import editor, standing  # noqa: F401
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.upload import Upload
from weighbridge.uploads import queue
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.worker import run_until

QUICK = WorkerOptions(name="test", poll=timedelta(seconds=0.05))

Send = Callable[..., Awaitable[Upload]]
Look = Callable[[UUID], Awaitable[Upload]]
Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def look(ctx: Context) -> Look:
    """`await look(upload_id)`: the upload as it is now."""

    async def look(upload_id: UUID) -> Upload:
        async with ctx.db.tx() as tx:
            found = await queue.get(tx, upload_id)
        assert found is not None
        return found

    return look


@pytest.fixture
def send(ctx: Context, workspace: UUID, tmp_path: Path, look: Look) -> Send:
    """`await send(content, preview=True)`: hand a file over, and nothing more."""

    async def send(content: bytes, **said: Any) -> Upload:
        path = tmp_path / "sent.csv"
        path.write_bytes(content)
        request = Request(**{"workspace_id": workspace, "platform": "meta", "filename": "sent.csv", **said})
        return await look((await receive(ctx, request, path)).upload_id)

    return send


@pytest.fixture
def load(ctx: Context, send: Send) -> Send:
    """`await load(content, preview=True)`: hand a file over and work until it has ended, or is held."""

    async def load(content: bytes, **said: Any) -> Upload:
        sent = await send(content, **said)
        return (await run_until(ctx, QUICK, [sent.id]))[0]

    return load


@pytest.fixture
def finish(ctx: Context) -> Look:
    """`await finish(upload_id)`: work until it has ended."""

    async def finish(upload_id: UUID) -> Upload:
        return (await run_until(ctx, QUICK, [upload_id]))[0]

    return finish
