"""An idle process keeps few connections: Postgres has a hundred, for all processes together."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weighbridge.app import open_app
from weighbridge.engine.options import WorkerOptions
from weighbridge.postgres import transactions
from weighbridge.settings import read
from weighbridge.worker import Worker

POOLED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'weighbridge'"


async def test_the_pool_of_an_idle_worker_shrinks_to_two_connections(
    database_url: str, home: Path, query: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its announcers, its loop and its chores look for work again and again."""
    monkeypatch.setattr(transactions, "IDLE_SECONDS", 0.1)
    options = WorkerOptions(poll=timedelta(seconds=0.05), lease=timedelta(seconds=0.3))
    async with open_app(read(home=home, DATABASE_URL=database_url), serves=True) as app:

        async def hold() -> None:
            async with app.db.tx() as tx:
                await tx.execute("SELECT pg_sleep(0.05)")

        stop = asyncio.Event()
        await asyncio.gather(*(hold() for _ in range(8)))
        assert query(POOLED)[0][0] >= 8
        working = asyncio.create_task(Worker(app.ctx, options).run(stop))
        await eventually(lambda: query(POOLED)[0][0] <= 2)
        stop.set()
        await working
