"""The two backends of slots, with real servers behind them: a test that takes `backend` runs on both."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import psycopg
import pytest

from tests.observe.conftest import lines
from tests.slots.redis_server import RedisServer
from weighbridge.delivery.slots.base import SlotLimits, Slots
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.delivery.slots.redis import RedisSlots
from weighbridge.postgres.transactions import Database

__all__ = ["lines"]

TTL = timedelta(minutes=2)
# Of a holder that is to die. Redis has no clock that could be moved: this much of its own time has to pass.
SHORT = timedelta(milliseconds=250)


class Backend(Protocol):
    """Where slots are kept, seen from outside."""

    name: str
    address: str

    def slots(self, per_site: int = 2, per_provider: int = 10, ttl: timedelta = TTL) -> Slots:
        """Connected, as a process of its own would be."""
        ...

    def held(self) -> dict[str, set[UUID]]:
        """The tokens of every key, those that are over included."""
        ...

    def lapse(self) -> None:
        """Until everything that was taken for SHORT is over."""
        ...

    def age(self, by: timedelta) -> None:
        """All that is held grows older, without anybody waiting."""
        ...

    def clear(self) -> None: ...


class PostgresBackend:
    name = "postgres"

    def __init__(self, url: str, db: Database) -> None:
        self.address = url
        self._db = db
        self._eyes = psycopg.connect(url, autocommit=True)

    def slots(self, per_site: int = 2, per_provider: int = 10, ttl: timedelta = TTL) -> Slots:
        return PostgresSlots(self._db, SlotLimits(per_site, per_provider, ttl))

    def held(self) -> dict[str, set[UUID]]:
        found: dict[str, set[UUID]] = {}
        for key, token in self.query("SELECT key, token FROM weighbridge.slots"):
            found.setdefault(key, set()).add(token)
        return found

    def lapse(self) -> None:
        self.age(SHORT)

    def age(self, by: timedelta) -> None:
        self.query("UPDATE weighbridge.clock SET shift = shift + %s", (by,))

    def clear(self) -> None:
        self.query("DELETE FROM weighbridge.slots")

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._eyes.execute(statement, params)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._eyes.close()


class RedisBackend:
    name = "redis"

    def __init__(self, server: RedisServer) -> None:
        self.address = server.url
        self._server = server

    def slots(self, per_site: int = 2, per_provider: int = 10, ttl: timedelta = TTL) -> Slots:
        return RedisSlots(self.address, SlotLimits(per_site, per_provider, ttl))

    def held(self) -> dict[str, set[UUID]]:
        return {key: set(map(UUID, self._server("ZRANGE", key, 0, -1))) for key in self._server("KEYS", "*")}

    def lapse(self) -> None:
        until = self._now() + SHORT / timedelta(milliseconds=1)
        give_up = time.monotonic() + 10
        while self._now() <= until:
            assert time.monotonic() < give_up
            time.sleep(0.005)

    def age(self, by: timedelta) -> None:
        milliseconds = by // timedelta(milliseconds=1)
        for key in self._server("KEYS", "*"):
            self._server("PEXPIRE", key, self._server("PTTL", key) - milliseconds)
            for token in self._server("ZRANGE", key, 0, -1):
                self._server("ZINCRBY", key, -milliseconds, token)

    def clear(self) -> None:
        self._server("FLUSHALL")

    def _now(self) -> float:
        seconds, micros = self._server("TIME")
        return int(seconds) * 1000 + int(micros) / 1000


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture(params=["postgres", "redis"])
async def backend(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path
) -> AsyncIterator[Backend]:
    if request.param == "redis":
        with RedisServer(tmp_path / "redis") as server:
            yield RedisBackend(server)
    else:
        db = Database(database_url)
        await db.open()
        with closing(PostgresBackend(database_url, db)) as found:
            yield found
        await db.close()


@pytest.fixture
async def make_slots(backend: Backend) -> AsyncIterator[Callable[..., Slots]]:
    """`make_slots(per_site=1)`: another process's, as it were; closed at the end."""
    made: list[Slots] = []

    def make_slots(*limits: Any, **named: Any) -> Slots:
        made.append(backend.slots(*limits, **named))
        return made[-1]

    yield make_slots
    for slots in made:
        await slots.close()
