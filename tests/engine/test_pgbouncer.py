"""PgBouncer in transaction mode: each transaction may be in another session of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from tests.engine.conftest import meta_file
from tests.engine.pgbouncer import pgbouncer
from weighbridge.app import open_app
from weighbridge.delivery.context import Context
from weighbridge.engine.leases import Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import WeighbridgeError
from weighbridge.postgres.transactions import Database, Lease
from weighbridge.settings import read
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.worker import run_until

QUICK = WorkerOptions(poll=timedelta(seconds=0.05))


@pytest.fixture
def bouncer_url(database_url: str) -> Iterator[str]:
    """Three connections to the server, for more than a dozen of clients."""
    with pgbouncer(database_url, connections=3) as url:
        yield url


@pytest.fixture
async def ctx(bouncer_url: str, home: Path) -> AsyncIterator[Context]:
    async with open_app(read(home=home, DATABASE_URL=bouncer_url)) as opened:
        yield opened.ctx


async def send(ctx: Context, file: Path, content: bytes, workspace: UUID, **request: Any) -> UUID:
    file.write_bytes(content)
    return (await receive(ctx, Request(workspace, **request), file)).upload_id


async def test_files_and_projects_are_processed(
    ctx: Context, tmp_path: Path, query: Any, eventually: Any
) -> None:
    file = tmp_path / "file"
    ads = [
        await send(ctx, file, meta_file(days), uuid4(), pipeline="ads", platform="meta")
        for days in range(1, 7)
    ]
    keywords = b"Keyword,Volume\nblue shoes,1\nshoes blue,2\n"
    project = await send(ctx, file, keywords, uuid4(), pipeline="keywords", project_id=1)
    uploads = await run_until(ctx, QUICK, [*ads, project])
    assert [each.status for each in uploads] == ["completed"] * 7
    assert query("SELECT count(*) FROM keyword_groups") == [(1,)]
    assert query("SELECT count(*) FROM weighbridge.event_deliveries WHERE delivered_at IS NULL") == [(0,)]


async def test_a_statement_is_cancelled_after_its_timeout(bouncer_url: str) -> None:
    """PgBouncer does not pass the options of a connection on to the server."""
    db = Database(bouncer_url, size=2, statement_timeout_ms=4321)
    await db.open()
    async with db.tx() as tx:
        row = await (
            await tx.execute(
                "SELECT current_setting('statement_timeout'),"
                " current_setting('idle_in_transaction_session_timeout')"
            )
        ).fetchone()
    await db.close()
    assert row == ("4321ms", "1min")


async def test_many_clients_repeat_their_statements_in_sessions_of_others(bouncer_url: str) -> None:
    """A statement that was prepared in one session does not exist in another."""
    db = Database(bouncer_url, size=8)
    await db.open()

    async def work(client: int) -> None:
        for turn in range(12):
            async with db.tx() as tx:
                row = await (await tx.execute("SELECT %s::int + %s", (client, turn))).fetchone()
                assert row == (client + turn,)

    await asyncio.gather(*(work(client) for client in range(8)))
    await db.close()


@dataclass
class Work:
    lease: Lease

    def interrupt(self, reason: WeighbridgeError) -> None:
        raise reason


async def test_heartbeats_do_not_depend_on_one_session(
    bouncer_url: str, query: Any, workspace: UUID, eventually: Any
) -> None:
    [(token,)] = query(
        "INSERT INTO weighbridge.attempts (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)"
        " SELECT 'uploads', gen_random_uuid(), %s, 'w', n, n, n + interval '1 hour' FROM weighbridge.now() AS n"
        " RETURNING lease_token",
        (workspace,),
    )
    leases = Leases(bouncer_url, timedelta(seconds=0.06), timedelta(hours=1))
    beats: set[Any] = set()
    db = Database(bouncer_url, size=3)
    await db.open()

    async def twelve_beats() -> bool:
        async with db.tx(), db.tx() as tx:  # they occupy sessions in turn
            await tx.execute("SELECT 1")
            beats.update(query("SELECT renewed_at FROM weighbridge.attempts WHERE renewed_at IS NOT NULL"))
        return len(beats) >= 12

    with capture_logs() as logs:
        leases.start()
        with leases.holding(Work(Lease(token, token, workspace))):
            await eventually(twelve_beats)
        leases.stop()
    await db.close()
    assert logs == []
