"""Slots in Postgres: locks, frozen and broken callers, and access rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import WAITING, Clock
from tests.observe.conftest import Lines
from tests.slots.test_conformance import A, got, pattern
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import SlotLimits, global_key, site_key
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.postgres.transactions import Database

B = GroupKey(UUID(int=2), "meta_capi")
Query = Callable[..., list[tuple[Any, ...]]]
ACQUIRE = "SELECT weighbridge.acquire_slots(%s, %s, %s, 2, 10, '2 minutes')"
RELEASE = "SELECT weighbridge.release_slots(%s)"


@pytest.fixture
async def slots(db: Database) -> AsyncIterator[PostgresSlots]:
    made = PostgresSlots(db, SlotLimits())
    yield made
    await made.close()


@pytest.fixture
def other(database_url: str) -> Iterator[psycopg.Connection]:
    """Another process, whose transactions stay open for as long as a test likes."""
    with psycopg.connect(database_url, application_name="other") as connection:
        yield connection


def taken_by(other: psycopg.Connection, *groups: GroupKey) -> list[UUID]:
    tokens = [uuid4() for _ in groups]
    other.execute(
        ACQUIRE, ([site_key(each) for each in groups], [global_key(each) for each in groups], tokens)
    )
    return tokens


# Locks ------------------------------------------------------------------------------------------------------


async def test_one_who_waits_for_another_sees_what_that_one_took(
    slots: PostgresSlots, other: psycopg.Connection, query: Query, eventually: Any
) -> None:
    taken_by(other, A)
    waiting = asyncio.create_task(slots.acquire([A, A]))
    await eventually(lambda: query(WAITING))
    other.commit()
    assert pattern(await waiting) == "+-"


async def test_one_who_froze_before_its_commit_is_cut_off_and_held_nobody_up_for_long(
    slots: PostgresSlots, other: psycopg.Connection, query: Query
) -> None:
    taken_by(other, A, A, B)
    begun = time.monotonic()
    assert pattern(await slots.acquire([A, A, B])) == "+++"  # two seconds, and not a minute as elsewhere
    assert time.monotonic() - begun < 3
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        other.execute("SELECT 1")
    assert len(query("SELECT FROM weighbridge.slots WHERE key = %s", (site_key(A),))) == 2


async def test_calls_for_other_keys_do_not_wait(slots: PostgresSlots, other: psycopg.Connection) -> None:
    taken_by(other, A)
    async with asyncio.timeout(1):
        assert pattern(await slots.acquire([B])) == "+"


async def test_a_lock_that_does_not_come_free_is_none_for_all_and_leaves_nothing(
    slots: PostgresSlots, other: psycopg.Connection, query: Query, lines: Lines
) -> None:
    other.autocommit = True  # idle, but not in a transaction: nobody cuts it off
    other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 6))", (global_key(A),))
    assert await slots.acquire([B, A]) == [None, None]
    other.close()
    assert pattern(await slots.acquire([B, A])) == "++"
    assert [line["event"] for line in lines()] == ["slots.unavailable", "slots.available"]
    assert query("SELECT count(*) FROM weighbridge.slots") == [(4,)]


async def test_a_slot_that_is_just_given_back_is_taken_until_then_and_not_waited_for(
    slots: PostgresSlots, other: psycopg.Connection, clock: Clock
) -> None:
    held = got(await slots.acquire([A, A]))
    clock.forward(minutes=3)  # the purge wants them too
    other.execute(RELEASE, ([each.token for each in held],))
    async with asyncio.timeout(1):
        assert pattern(await slots.acquire([A])) == "-"
    other.commit()
    assert pattern(await slots.acquire([A, A])) == "++"


async def test_who_gives_back_what_is_just_purged_waits_and_finds_nothing(
    slots: PostgresSlots, other: psycopg.Connection, clock: Clock, query: Query, eventually: Any
) -> None:
    held = got(await slots.acquire([A, A]))
    clock.forward(minutes=3)
    [token] = taken_by(other, A)
    giving = asyncio.create_task(slots.release(held[::-1]))
    await eventually(lambda: query(WAITING))
    other.commit()
    await giving
    assert query("SELECT DISTINCT token FROM weighbridge.slots") == [(token,)]


async def test_the_purge_and_giving_back_in_every_order_never_stand_against_each_other(
    db: Database, query: Query, lines: Lines
) -> None:
    """Everything is over at once, so that every call purges what others are giving back."""
    many = [PostgresSlots(db, SlotLimits(2, 6, SlotLimits().ttl * 0)) for _ in range(8)]

    async def busy(slots: PostgresSlots, n: int) -> None:
        groups = [GroupKey(UUID(int=k), "google_ads") for k in range(1, 6)]
        for _ in range(25):
            held = got(await slots.acquire(groups[n % 5 :] + groups[: n % 5]))
            await slots.release(held[::-1] if n % 2 else held)

    async with asyncio.timeout(60):
        await asyncio.gather(*(busy(slots, n) for n, slots in enumerate(many)))
    assert lines() == []  # no deadlock, no timeout
    assert query("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


# Trouble ----------------------------------------------------------------------------------------------------


async def test_a_line_that_breaks_while_it_waits_is_none_and_nothing_is_raised(
    slots: PostgresSlots, other: psycopg.Connection, query: Query, eventually: Any, lines: Lines
) -> None:
    taken_by(other, A)
    waiting = asyncio.create_task(slots.acquire([A]))
    [(pid,)] = await eventually(lambda: query(WAITING))
    query("SELECT pg_terminate_backend(%s)", (pid,))
    assert await waiting == [None]
    other.rollback()
    assert pattern(await slots.acquire([A, A])) == "++"
    [away], [_] = lines("slots.unavailable"), lines("slots.available")
    assert away["backend"] == "postgres"
    assert away["reason"].startswith("The connection to the database was lost")


async def test_an_error_that_nobody_foresaw_is_none_too_and_said_once(
    slots: PostgresSlots, query: Query, lines: Lines
) -> None:
    held = got(await slots.acquire([A]))
    query("ALTER TABLE weighbridge.slots RENAME TO elsewhere")
    for _ in range(3):
        assert await slots.acquire([A]) == [None]
        await slots.release(held)
    query("ALTER TABLE weighbridge.elsewhere RENAME TO slots")
    assert len(lines("slots.unavailable")) == 1
    assert pattern(await slots.acquire([A, A])) == "++"  # what could not be given back was owed


# The table --------------------------------------------------------------------------------------------------


async def test_more_rows_of_a_key_than_its_limit_cannot_be_written(
    slots: PostgresSlots, query: Query
) -> None:
    [held] = got(await slots.acquire([A]))
    insert = "INSERT INTO weighbridge.slots VALUES (%s, %s, %s, weighbridge.now())"
    with pytest.raises(psycopg.errors.UniqueViolation):
        query(insert, (site_key(A), 1, uuid4()))
    with pytest.raises(psycopg.errors.UniqueViolation):
        query(insert, (site_key(A), 2, held.token))
    with pytest.raises(psycopg.errors.CheckViolation):
        query(insert, (site_key(A), 0, uuid4()))


def test_slots_are_for_the_role_that_delivers_and_only_through_the_functions(query: Query) -> None:
    roles = [
        name for (name,) in query("SELECT rolname FROM pg_roles WHERE rolname LIKE 'weighbridge\\_%%'", ())
    ]
    assert "weighbridge_deliver" in roles
    may = (
        "SELECT has_function_privilege(%s, p.oid, 'EXECUTE') FROM pg_proc p"
        " WHERE proname IN ('acquire_slots', 'release_slots')"
    )
    for role in roles:
        assert query(may, (role,)) == [(role == "weighbridge_deliver",)] * 2, role
        touch = (
            "SELECT has_table_privilege(%s, 'weighbridge.slots', 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')"
        )
        assert query(touch, (role,)) == [(False,)], role


def test_nothing_of_it_waits_for_the_disk(query: Query) -> None:
    assert query("SELECT relpersistence FROM pg_class WHERE oid = 'weighbridge.slots'::regclass") == [("u",)]


async def test_the_table_is_never_read_as_a_whole(
    database_url: str, query: Query, eventually: Callable[..., Any]
) -> None:
    """It is small, but its dead rows are many."""
    db = Database(database_url)
    await db.open()
    slots = PostgresSlots(db, SlotLimits())
    for _ in range(10):  # of a plan as well that is made for any values
        await slots.release(got(await slots.acquire([A, A, B])))
    await db.close()
    others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await eventually(lambda: not query(others))  # as they end, they hand in what they counted
    [(whole, by_key)] = query("SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'slots'")
    assert (whole, by_key >= 30) == (0, True)
