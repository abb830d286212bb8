"""How every connection to Postgres is opened: its parameters, and a limit for every wait.

A connection whose traffic is lost looks open for hours. Each wait therefore has a limit:

    connect      connect_timeout, for each address
    a statement  `limit`: somewhat longer than the server's own statement_timeout, which ends it as a rule
    an idle one  keepalives, and a check with a short limit before it is used (transactions.py, listen.py, leases.py)
    sent bytes   tcp_user_timeout

Parameters in DATABASE_URL take precedence. The server finds out about lost clients by its own keepalives.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from weighbridge.postgres.errors import translated

CONNECT_SECONDS = 5
CANCEL_SECONDS = 2.0  # for the server to end a canceled statement
CHECK_SECONDS = 3.0  # for the answer of an idle connection
_DEFAULTS = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
# The server's side. A session whose client is gone does not use up a connection for two hours. The isolation level is
# for single statements; transactions name theirs.
_SERVER = (
    "-c tcp_keepalives_idle=60 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
    r" -c default_transaction_isolation=read\ committed"
)
_INTERVAL = 0.1  # how often psycopg looks up while it waits; its own default


def parameters(
    url: str, name: str, *, options: str = "", connect_seconds: int | None = None
) -> dict[str, Any]:
    """Keyword arguments for psycopg's `connect`, beside the URL: what the URL does not set itself."""
    given = conninfo_to_dict(url)
    ours: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if key not in given}
    if "PGCONNECT_TIMEOUT" in os.environ:
        ours.pop("connect_timeout", None)
    elif connect_seconds is not None and "connect_timeout" in ours:
        ours["connect_timeout"] = connect_seconds
    ours["application_name"] = name
    ours["options"] = " ".join(filter(None, (_SERVER, str(given.get("options") or ""), options)))
    return ours


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. The connection is closed, because its state is unknown."""


class LimitedConnection(AsyncConnection[TupleRow]):
    """Raises NoAnswer instead of waiting for ever."""

    limit: float | None = None  # seconds for one answer

    async def wait(
        self,
        gen: PQGen[Any],
        interval: float = _INTERVAL,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Any:
        if timeout is not None:  # the caller handles the end of the wait
            return await super().wait(gen, interval, timeout)
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval, self.limit)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise NoAnswer(f"no answer within {self.limit:g} s") from error
        except asyncio.CancelledError:
            await self._end_statement(gen, interval)
            raise

    async def _end_statement(self, gen: PQGen[Any], interval: float) -> None:
        """After a cancellation: end the statement on the server, or close the connection. psycopg waits for 10 s."""
        if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return
        try:
            await self.cancel_safe(timeout=CANCEL_SECONDS)
            await waiting.wait_async(gen, self.pgconn.socket, interval, CANCEL_SECONDS)
        except psycopg.errors.QueryCanceled:
            pass  # as expected
        except (psycopg.Error, asyncio.CancelledError):
            self.pgconn.finish()

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Another limit, for a part of the work."""
        before, self.limit = self.limit, seconds
        try:
            yield
        finally:
            self.limit = before


class BlockingConnection(Connection[TupleRow]):
    """The same for a thread without an event loop."""

    limit: float | None = None

    def wait(self, gen: PQGen[Any], interval: float = _INTERVAL, timeout: float | None = None) -> Any:
        if timeout is not None or self.limit is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.limit)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise NoAnswer(f"no answer within {self.limit:g} s") from error


async def connect(
    url: str, name: str = "weighbridge listen", *, limit: float = CHECK_SECONDS
) -> LimitedConnection:
    """A separate connection, not of the pool. Translates errors."""
    with translated():
        connection = await LimitedConnection.connect(url, autocommit=True, **parameters(url, name))
    connection.limit = limit
    return connection


def connect_blocking(
    url: str, name: str, *, connect_seconds: int, limit: float, options: str = ""
) -> BlockingConnection:
    """A separate connection for a thread. Raises psycopg's own errors."""
    ours = parameters(url, name, options=options, connect_seconds=connect_seconds)
    # Not prepared: PgBouncer may execute each statement in another session.
    connection = BlockingConnection.connect(url, autocommit=True, prepare_threshold=None, **ours)
    connection.limit = limit
    return connection
