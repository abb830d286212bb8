"""Slots in Redis: its keys, times and outages. During an outage no slot is granted, and nothing is raised."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.observe.conftest import Lines
from tests.slots.redis_server import RedisServer
from tests.slots.test_conformance import A, got, pattern
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.slots.base import Slot, SlotLimits, global_key, site_key
from weighbridge.delivery.slots.redis import CALL_TIMEOUT, RedisSlots
from weighbridge.model.errors import ConfigError

B = GroupKey(UUID(int=2), "meta_capi")
SECRET = "canary-password"


@pytest.fixture
async def open_slots() -> AsyncIterator[Callable[..., RedisSlots]]:
    made: list[RedisSlots] = []

    def open_slots(url: str, *limits: int) -> RedisSlots:
        made.append(RedisSlots(url, SlotLimits(*limits)))
        return made[-1]

    yield open_slots
    for each in made:
        await each.close()


@pytest.fixture
def slots(open_slots: Callable[..., RedisSlots], redis_server: RedisServer) -> RedisSlots:
    return open_slots(redis_server.url)


# Keys and times ---------------------------------------------------------------------------------------------


async def test_tokens_and_keys_last_two_minutes_by_the_time_of_the_server(
    slots: RedisSlots, redis_server: RedisServer
) -> None:
    [held] = got(await slots.acquire([A]))
    for key in ("conc:00000000-0000-0000-0000-000000000001:google_ads", "conc:global:google_ads"):
        seconds, micros = redis_server("TIME")
        left = float(redis_server("ZSCORE", key, str(held.token))) - (
            int(seconds) * 1000 + int(micros) / 1000
        )
        assert 110_000 < left <= 120_001
        assert 110_000 < redis_server("PTTL", key) <= 120_000
        assert redis_server("TYPE", key) == "zset"


async def test_a_key_lasts_as_long_as_its_longest_token(redis_server: RedisServer) -> None:
    limits = [SlotLimits(ttl=timedelta(minutes=m)) for m in (10, 1)]
    long, short = (RedisSlots(redis_server.url, each) for each in limits)
    await long.acquire([A])
    await short.acquire([A])
    assert redis_server("PTTL", site_key(A)) > 9 * 60_000
    await long.close()
    await short.close()


async def test_expired_tokens_are_purged_by_the_next_caller(
    slots: RedisSlots, redis_server: RedisServer
) -> None:
    for key in (site_key(A), global_key(A)):
        redis_server("ZADD", key, 1, "long-dead", 2, "dead-too")
    assert pattern(await slots.acquire([A, A, A])) == "++-"
    assert redis_server("ZSCORE", site_key(A), "long-dead") is None
    assert redis_server("ZCARD", global_key(A)) == 2


async def test_many_keys_are_one_command(slots: RedisSlots, redis_server: RedisServer) -> None:
    await slots.release(got(await slots.acquire([A])))  # connected, and the scripts are known
    before = redis_server("INFO", "commandstats")
    held = await slots.acquire([GroupKey(UUID(int=n), "webhook") for n in range(32)])
    await slots.release(got(held))
    after = redis_server("INFO", "commandstats")
    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] == 2


# Outages ----------------------------------------------------------------------------------------------------


async def test_no_slot_is_granted_while_redis_is_unavailable_and_this_is_logged_once(
    slots: RedisSlots, redis_server: RedisServer, lines: Lines
) -> None:
    held = got(await slots.acquire([A]))
    redis_server.kill()
    for _ in range(3):
        assert await slots.acquire([A, B]) == [None, None]
        await slots.release(held)
    [line] = lines("slots.unavailable")
    assert (line["level"], line["backend"]) == ("WARNING", "redis")
    assert line["reason"] == "it is unreachable, or the connection was closed"
    assert lines("slots.available") == []


async def test_slots_recover_after_an_outage_and_lost_tokens_block_no_caller(
    slots: RedisSlots, redis_server: RedisServer, lines: Lines
) -> None:
    before = got(await slots.acquire([A, A]))
    redis_server.kill()
    assert await slots.acquire([A]) == [None]
    redis_server.start()  # and knows nothing: neither tokens nor scripts
    after = got(await slots.acquire([A, A, A]))
    assert len(after) == 2
    await slots.release(before)  # of the time before: frees nobody else's
    assert pattern(await slots.acquire([A])) == "-"
    await slots.release(after)
    assert redis_server("DBSIZE") == 0
    redis_server.kill()
    assert await slots.acquire([A]) == [None]
    assert [line["event"] for line in lines()] == [
        "slots.unavailable",
        "slots.available",
        "slots.unavailable",
    ]


async def test_an_unnoticed_restart_costs_no_slot(slots: RedisSlots, redis_server: RedisServer) -> None:
    await slots.acquire([A])
    redis_server.kill()
    redis_server.start()
    assert pattern(await slots.acquire([A])) == "+"


async def test_a_call_whose_answer_was_lost_is_done_once_and_answered(
    open_slots: Callable[..., RedisSlots], redis_server: RedisServer, lines: Lines
) -> None:
    lost = 0

    async def line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """To Redis and back; the first answer to a script that took a slot is cut off."""
        nonlocal lost
        back, forth = await asyncio.open_connection("127.0.0.1", redis_server.port)
        while asked := await reader.read(65536):
            forth.write(asked)
            answer = await back.read(65536)
            if b"*1\r\n:1" in answer and not lost:
                lost += 1
                break
            writer.write(answer)
        writer.close()
        forth.close()

    async with await asyncio.start_server(line, "127.0.0.1", 0) as server:
        slots = open_slots(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1, 1)
        [held] = got(await slots.acquire([A]))
        assert lost == 1
        assert redis_server("ZRANGE", site_key(A), 0, -1) == [str(held.token)]
        assert redis_server("ZRANGE", global_key(A), 0, -1) == [str(held.token)]
        await slots.close()
    assert lines() == []


async def test_a_frozen_redis_times_out_and_its_late_slots_are_released(
    slots: RedisSlots, redis_server: RedisServer, lines: Lines
) -> None:
    held = got(await slots.acquire([A]))
    redis_server.stop()
    begun = time.monotonic()
    assert await slots.acquire([A, B]) == [None, None]
    await slots.release(held)
    assert time.monotonic() - begun < 2 * CALL_TIMEOUT + 1
    redis_server.go_on()
    # It may have done what was asked of it, for nobody: that must not stand in anybody's way.
    assert pattern(await slots.acquire([A, A, B, B])) == "++++"
    assert [(line["event"], line.get("reason")) for line in lines()] == [
        ("slots.unavailable", "it does not respond in time"),
        ("slots.available", None),
    ]


async def test_nobody_waits_for_a_line_that_is_taken_and_never_answered(
    open_slots: Callable[..., RedisSlots], lines: Lines
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        slots = open_slots(f"redis://:{SECRET}@127.0.0.1:{server.sockets[0].getsockname()[1]}/1")
        begun = time.monotonic()
        assert await slots.acquire([A]) == [None]
        assert time.monotonic() - begun < CALL_TIMEOUT + 1
    assert SECRET not in lines.text


async def test_a_slow_redis_does_not_delay_every_call(
    open_slots: Callable[..., RedisSlots],
) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(65536):
            await asyncio.sleep(0.6 * CALL_TIMEOUT)  # each alone is quick enough: greeting, database, script
            writer.write(b"+OK\r\n" * asked.count(b"*"))
        writer.close()

    async with await asyncio.start_server(slow, "127.0.0.1", 0) as server:
        slots = open_slots(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/1")
        begun = time.monotonic()
        assert await slots.acquire([A]) == [None]
        assert time.monotonic() - begun < 1.6 * CALL_TIMEOUT
        await slots.close()


async def test_responses_that_are_not_from_redis_grant_no_slot(
    open_slots: Callable[..., RedisSlots], lines: Lines
) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(web, "127.0.0.1", 0)
    async with server:
        slots = open_slots(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await slots.acquire([A]) == [None]
        await slots.release([Slot(A, UUID(int=0))])
    assert len(lines("slots.unavailable")) == 1


@pytest.mark.parametrize("password", [f"{SECRET}-wrong", ""])
async def test_a_wrong_password_is_reported_as_an_outage_without_the_password(
    password: str, tmp_path: Path, open_slots: Callable[..., RedisSlots], lines: Lines
) -> None:
    with RedisServer(tmp_path / "closed", password=SECRET) as server:
        slots = open_slots(
            f"redis://:{password}@127.0.0.1:{server.port}/0"
            if password
            else f"redis://127.0.0.1:{server.port}"
        )
        assert await slots.acquire([A]) == [None]
        await slots.release([Slot(A, UUID(int=0))])
        [line] = lines("slots.unavailable")
        assert "refuses the user or password of REDIS_URL" in line["reason"]
        assert SECRET not in lines.text
        assert pattern(await open_slots(server.url).acquire([A])) == "+"


async def test_an_error_of_redis_grants_and_takes_no_slot(
    slots: RedisSlots, redis_server: RedisServer, lines: Lines
) -> None:
    redis_server("SET", global_key(A), "not ours")
    assert await slots.acquire([A, B]) == [None, None]
    assert lines("slots.unavailable")[0]["reason"] == "it returns an error"
    redis_server("DEL", global_key(A))
    assert pattern(await slots.acquire([A, A])) == "++"


async def test_a_cluster_is_recognised_as_what_it_is(
    tmp_path: Path, open_slots: Callable[..., RedisSlots], lines: Lines
) -> None:
    with RedisServer(tmp_path / "cluster", options=("--cluster-enabled", "yes")) as server:
        server("CLUSTER", "ADDSLOTS", *range(16384))
        assert await open_slots(server.url).acquire([A, B]) == [None, None]
    assert lines("slots.unavailable")[0]["reason"] == "it is a Redis Cluster; expected one server"


async def test_a_replica_grants_no_slot(redis_server: RedisServer, slots: RedisSlots, lines: Lines) -> None:
    redis_server("REPLICAOF", "127.0.0.1", "1")
    assert await slots.acquire([A]) == [None]
    assert lines("slots.unavailable")[0]["reason"] == "it is a read-only replica"
    redis_server("REPLICAOF", "NO", "ONE")
    assert pattern(await slots.acquire([A])) == "+"


# Addresses --------------------------------------------------------------------------------------------------


async def test_a_unix_socket_will_do(tmp_path: Path, open_slots: Callable[..., RedisSlots]) -> None:
    path = f"/tmp/weighbridge-{os.getpid()}.redis"  # the names of sockets may not be long
    with RedisServer(tmp_path / "socket", options=("--unixsocket", path)):
        assert pattern(await open_slots(f"unix://{path}").acquire([A])) == "+"


BAD = {
    f"http://:{SECRET}@host:6379/0": "another scheme",
    f"{SECRET}@host:6379": "no scheme",
    f"redis://:{SECRET}@host:port/0": "an invalid address",
    f"redis://:{SECRET}#more@host:6379/0": "an invalid address",
    f"redis://:{SECRET}/more@host:6379/0": "an invalid address",
    f"redis://:{SECRET}@[::1:6379/0": "an invalid address",
    f"redis://:{SECRET}@host:6379/name": "a database that is not a number",
    f"redis://:{SECRET}@host:6379/0?db={SECRET}": "an invalid option",
    f"redis://:{SECRET}@host:6379/0?colour={SECRET}": "an invalid option",
    f"redis://:{SECRET}@host:6379/0?socket_timeout={SECRET}": "an invalid option",
    f"unix://{SECRET}": "no path",
    "": "no scheme",
}


@pytest.mark.parametrize("url", BAD, ids=range(len(BAD)))
def test_a_bad_address_is_refused_when_it_is_opened_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RedisSlots(url, SlotLimits())
    told = str(raised.value)
    assert told.startswith("REDIS_URL: expected redis://")
    assert f"got {BAD[url]}" in told or BAD[url] in told
    assert SECRET not in told + repr(raised.value)
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None
