"""Connections and transactions. A transaction runs in one role, for one workspace, and may be fenced by a lease."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import QueryNoTemplate as Query
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from weighbridge.model.errors import RetryLater
from weighbridge.postgres.errors import translated

Tx = AsyncConnection[TupleRow]

FRESH = 0.5  # seconds for which a connection is trusted


@dataclass(frozen=True)
class Lease:
    """One attempt's right to work on one thing."""

    token: UUID
    subject: UUID
    workspace_id: UUID


class _Connection(AsyncConnection[TupleRow]):
    used = 0.0  # when its last transaction was about to end, of the machine's `monotonic`


async def _check(connection: _Connection) -> None:
    """Whether the server still knows it, unless it did a moment ago: that is a fifth of a short transaction."""
    if monotonic() - connection.used > FRESH:
        await AsyncConnectionPool.check_connection(connection)


class Database:
    """A pool, and the three kinds of transaction there are."""

    def __init__(self, url: str, *, size: int = 8, statement_timeout_ms: int = 120_000) -> None:
        self.url = url
        # A worker that freezes inside a transaction must not keep its locks.
        options = f"-c idle_in_transaction_session_timeout=60s -c statement_timeout={statement_timeout_ms}"
        self._pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            timeout=10,
            kwargs={"options": options, "application_name": "weighbridge"},
            check=_check,
            connection_class=_Connection,
        )

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def tx(
        self, role: LiteralString | None = None, workspace_id: UUID | None = None
    ) -> AsyncIterator[Tx]:
        """A transaction as the service itself or in a role, for a workspace or for none."""
        async with self._begin() as tx:
            if role is not None or workspace_id is not None:
                await tx.execute(
                    "SELECT set_config('role', %s, true), set_config('weighbridge.workspace_id', %s, true)",
                    (role or "none", str(workspace_id or "")),
                )
            yield tx

    @asynccontextmanager
    async def fenced(self, lease: Lease, role: LiteralString, *, durable: bool = True) -> AsyncIterator[Tx]:
        """A transaction that only the holder of the lease can make, in the role of its step.

        Raises LeaseLost before anything is written. With durable=False the commit does not wait for the disk:
        a crash of the server may undo it, rows and watermark together, so nothing is half done; a later durable
        commit makes all earlier ones durable too. After a crash the holder remembers what may be undone: RetryLater,
        and the next attempt begins from what the tables say.
        """
        async with self._begin() as tx:
            await tx.execute(
                "SELECT set_config('application_name', %s, true), weighbridge.enter(%s),"
                " set_config('weighbridge.workspace_id', %s, true), set_config('synchronous_commit', %s, true),"
                " set_config('role', %s, true)",
                (
                    f"weighbridge {lease.token}",
                    lease.token,
                    str(lease.workspace_id),
                    "on" if durable else "off",
                    role,
                ),
            )
            yield tx

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[Tx]:
        with translated():
            try:
                async with self._pool.connection() as connection, connection.transaction():
                    yield connection
                    connection.used = monotonic()
            except PoolTimeout as error:
                raise RetryLater("connection", "No connection to the database could be had.") from error


@asynccontextmanager
async def savepoint(tx: Tx) -> AsyncIterator[None]:
    """A part of a transaction that can fail on its own: what it did is undone, the rest goes on."""
    with translated():
        async with tx.transaction():
            yield


async def fetch_all(tx: Tx, query: Query, params: Any = None) -> list[TupleRow]:
    return await (await tx.execute(query, params)).fetchall()


async def fetch_one(tx: Tx, query: Query, params: Any = None) -> TupleRow | None:
    return await (await tx.execute(query, params)).fetchone()


async def fetch_named(tx: Tx, query: Query, params: Any = None) -> list[dict[str, Any]]:
    """Rows by column name, for the functions of this folder that build dataclasses from them."""
    cursor = tx.cursor(row_factory=dict_row)
    return await (await cursor.execute(query, params)).fetchall()


async def connect(url: str) -> Tx:
    """A connection of one's own, for LISTEN."""
    with translated():
        return await psycopg.AsyncConnection.connect(
            url, autocommit=True, application_name="weighbridge listen"
        )
