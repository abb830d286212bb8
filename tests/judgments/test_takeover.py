"""Stale takeover: a run whose lease is over is reset and claimed in one statement; a live one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import WAITING
from tests.engine.steps import claim
from weighbridge.delivery.context import Context
from weighbridge.model.errors import LeaseLost
from weighbridge.observe import metrics
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import queue
from weighbridge.uploads.parse import parse

from .conftest import BATCH, ROW, Lines, Query, Send, case, judgments

TAKE_UP = "SELECT * FROM weighbridge.claim_upload('late', '{pending,staging_complete}', '{judgments}', '60 s', 3, 5)"
TABLES = ("data_uploads", "judgments", "plaintiffs", "staging.judgments_judgment", "weighbridge.attempts")


def everything(query: Query) -> list[list[tuple[Any, ...]]]:
    return [query(f"SELECT to_jsonb(t) FROM {table} t ORDER BY 1") for table in TABLES]


def orphan(query: Query, upload_id: UUID, hours: float) -> None:
    """Under way by a hand in psql, or out of a backup: nobody has an attempt at it."""
    query(
        "UPDATE data_uploads SET status = 'processing', started_at = weighbridge.now() - %s * INTERVAL '1 hour'"
        " WHERE id = %s",
        (hours, upload_id),
    )


async def test_one_statement_resets_a_dead_run_and_claims_it(
    ctx: Context, send: Send, query: Query, clock: Any, moves: Callable[[], list[str]]
) -> None:
    received = await send(judgments(ROW), batch=BATCH)
    dead = await claim(ctx)
    clock.forward(hours=2)
    [(upload_id, lease_token, abandoned)] = query(TAKE_UP)
    assert upload_id == received.upload_id
    assert lease_token != dead.lease.token
    [told] = abandoned
    assert (told["subject"], told["batch"], told["worker"]) == (str(upload_id), BATCH, "test")
    assert told["hours"] == pytest.approx(2, abs=0.01)
    assert moves() == ["processing", "pending", "processing"]
    assert query("SELECT worker, outcome FROM weighbridge.attempts ORDER BY opened_at") == [
        ("test", "expired"),
        ("late", None),
    ]


async def test_a_live_run_is_not_touched(ctx: Context, send: Send, query: Query, clock: Any) -> None:
    await send(judgments(ROW), batch=BATCH)
    live = await claim(ctx)
    clock.forward(hours=5)
    query("SELECT weighbridge.heartbeat(%s, '60 s', '6 hours')", ([live.lease.token],))
    before = everything(query)
    assert query(TAKE_UP) == []
    assert query("SELECT * FROM weighbridge.recover(5)") == []
    assert everything(query) == before


async def test_of_many_that_take_over_at_once_one_has_it(
    ctx: Context, send: Send, query: Query, clock: Any, database_url: str
) -> None:
    await send(judgments(ROW), batch=BATCH)
    await claim(ctx)
    clock.forward(hours=2)

    async def take_up() -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            return await (await connection.execute(TAKE_UP)).fetchall()

    claimed = [row for rows in await asyncio.gather(*(take_up() for _ in range(8))) for row in rows]
    assert len([row for row in claimed if row[0] is not None]) == 1
    assert len([each for row in claimed for each in row[2] or ()]) == 1
    assert query("SELECT count(*) FROM weighbridge.attempts WHERE closed_at IS NULL") == [(1,)]
    assert query("SELECT crashes FROM data_uploads") == [(1,)]


async def test_a_takeover_is_logged_alerted_and_counted(
    ctx: Context, send: Send, run: Callable[..., Any], query: Query, clock: Any, logged: Lines
) -> None:
    received = await send(judgments(ROW), batch=BATCH)
    await claim(ctx)
    [(started,)] = query("SELECT opened_at FROM weighbridge.attempts")
    clock.forward(hours=1.5)
    counted = metrics.TAKEOVERS._value.get()
    await run(received.upload_id)
    [line] = [line for line in logged if line["event"] == "Stale takeover"]
    assert (line["log_level"], line["source_batch_id"], line["stale_hours"]) == ("warning", BATCH, 1.5)
    assert datetime.fromisoformat(line["original_started_at"]) == started
    assert line["original_worker_id"] == "test"
    assert query("SELECT severity, message FROM weighbridge.alerts WHERE condition = 'stale_takeover'") == [
        ("WARNING", f"[STALE TAKEOVER] {BATCH} abandoned for 1.5h")
    ]
    assert metrics.TAKEOVERS._value.get() == counted + 1


async def test_a_worker_that_wakes_up_afterwards_can_change_nothing(
    ctx: Context, db: Database, send: Send, run: Callable[..., Any], query: Query, clock: Any
) -> None:
    received = await send(judgments(ROW), batch=BATCH)
    asleep = await claim(ctx)
    clock.forward(hours=2)
    await run(received.upload_id)
    before = everything(query)
    with pytest.raises(LeaseLost):
        await parse(asleep, ctx)
    with pytest.raises(LeaseLost):
        async with db.fenced(asleep.lease, "weighbridge_promote") as tx:
            await tx.execute("UPDATE judgments SET county = 'Nowhere'")
    begin_promotion = partial(queue.begin_promotion, patient=False)
    for verdict in (queue.release_staged, queue.restage, begin_promotion):
        with pytest.raises(LeaseLost):
            async with db.tx() as tx:
                await verdict(tx, asleep.lease)
    with pytest.raises(LeaseLost):
        async with db.tx() as tx:
            await queue.fail(tx, asleep.lease, "internal_error", "woke up")
    assert everything(query) == before


async def test_a_run_without_an_attempt_is_taken_over_when_it_is_an_hour_old(
    ctx: Context, send: Send, run: Callable[..., Any], query: Query, logged: Lines
) -> None:
    old = (await send(judgments(ROW), batch="old")).upload_id
    young = (await send(judgments(case("CV-2")), batch="young")).upload_id
    orphan(query, old, hours=2)
    orphan(query, young, hours=0.5)
    [(upload_id, _, [told])] = query(TAKE_UP)
    assert (upload_id, told["batch"], told["worker"]) == (old, "old", "unknown")
    assert told["hours"] == pytest.approx(2, abs=0.01)
    assert query("SELECT status FROM data_uploads WHERE id = %s", (young,)) == [("processing",)]
    assert query("SELECT message FROM weighbridge.alerts") == [("[STALE TAKEOVER] old abandoned for 2.0h",)]
    assert query(TAKE_UP) == []  # the one is live now, the other too young


async def test_a_worker_finds_a_run_without_an_attempt_and_completes_it(
    send: Send, run: Callable[..., Any], query: Query, logged: Lines
) -> None:
    upload_id = (await send(judgments(ROW), batch=BATCH)).upload_id
    orphan(query, upload_id, hours=2)
    upload = await run(upload_id)
    assert (upload.status, upload.crashes) == ("completed", 1)
    [line] = [line for line in logged if line["event"] == "Stale takeover"]
    assert (line["source_batch_id"], line["stale_hours"], line["original_worker_id"]) == (
        BATCH,
        2.0,
        "unknown",
    )


GATE = """
    CREATE SEQUENCE public.looks;
    CREATE FUNCTION public.gate() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN
        -- The first look is whether there are any, the second one is at what is about to be locked.
        IF current_setting('application_name') = 'slow' AND nextval('public.looks') = 2 THEN
            PERFORM pg_advisory_xact_lock_shared(42);
        END IF;
        RETURN true;
    END $$;
    CREATE OR REPLACE VIEW weighbridge.orphans AS {} AND public.gate()"""


async def test_an_orphan_that_another_took_between_look_and_lock_is_left_alone(
    send: Send, query: Query, database_url: str, eventually: Any
) -> None:
    upload_id = (await send(judgments(ROW), batch=BATCH)).upload_id
    orphan(query, upload_id, hours=2)
    [(view,)] = query("SELECT pg_get_viewdef('weighbridge.orphans')")
    query(GATE.format(view.rstrip(" ;\n")))
    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(database_url, autocommit=True, application_name="slow") as slow,
        await connect(database_url) as quick,
        await connect(
            database_url, autocommit=True
        ) as keeper,  # left first: whatever fails, nobody is kept waiting
    ):
        await keeper.execute("SELECT pg_advisory_lock(42)")
        assert (await (await quick.execute(TAKE_UP)).fetchall())[0][0] == upload_id
        looking = asyncio.create_task(slow.execute(TAKE_UP))
        await eventually(lambda: query(WAITING))
        await quick.commit()
        await keeper.execute("SELECT pg_advisory_unlock(42)")
        assert await (await looking).fetchall() == []
    assert query("SELECT status, crashes FROM data_uploads") == [("processing", 1)]
