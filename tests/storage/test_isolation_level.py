"""The isolation level is ours: defaults of the server, the database or a login change no result."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.storage.counting import CSV, USAGE, send
from weighbridge.app import open_app
from weighbridge.engine.options import WorkerOptions
from weighbridge.settings import read
from weighbridge.worker import run_until

FILES = 60


async def test_a_database_with_another_isolation_level_counts_and_loads_every_file(
    database_url: str, home: Any, workspace: UUID, query: Any
) -> None:
    name = database_url.split("/")[3].split("?")[0]
    query(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    async with open_app(read(home=home, DATABASE_URL=database_url)) as app:
        files = [CSV + f"2025-02-01,Spring,{number}\n".encode() for number in range(FILES)]
        received = await asyncio.gather(*(send(app.ctx, workspace, file) for file in files))
        assert query(USAGE)[0][:2] == (sum(map(len, files)), FILES)
        options = [WorkerOptions(name=each, slots=3, poll=timedelta(seconds=0.05)) for each in "ab"]
        uploads = [each.upload_id for each in received]
        await asyncio.gather(*(run_until(app.ctx, each, uploads[:12]) for each in options))
    assert query(
        "SELECT status, count(*) FROM data_uploads WHERE id = ANY (%s) GROUP BY 1", (uploads[:12],)
    ) == [("completed", 12)]
