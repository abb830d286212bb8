"""Connections and transactions. A transaction runs in one role, for one workspace, and may be fenced by a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from copy import copy
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

FRESH = 0.5  # seconds for which a used connection is not checked again
IDLE_SECONDS = 20  # after this time, the pool closes one connection that was not needed


@dataclass(frozen=True)
class Lease:
    """The right of one attempt to work on one subject."""

    token: UUID
    subject: UUID
    workspace_id: UUID


class _Connection(AsyncConnection[TupleRow]):
    used = 0.0  # `monotonic` time at the end of its last transaction
    shared = False  # by PgBouncer: the next transaction may be in another session of the server


class _Pool(AsyncConnectionPool[_Connection]):
    """Lends the connection that was used last: the others become idle, and the pool closes them.

    A used connection also has its plans. By default, the pool lends the one that was idle longest, and none ever is.
    """

    async def _get_ready_connection(self, timeout: float | None) -> _Connection | None:  # noqa: ASYNC109
        self._pool.rotate()
        return await super()._get_ready_connection(timeout)


async def _check(connection: _Connection) -> None:
    """Check that the connection is still open, unless it was just used: a check costs a round trip."""
    if monotonic() - connection.used > FRESH:
        await AsyncConnectionPool.check_connection(connection)


async def _configure(connection: _Connection) -> None:
    """Find out whether PgBouncer is in between: it reports another process than the server does.

    Then no statement is prepared, as it may be executed in another session.
    """
    async with connection.transaction():
        row = await (await connection.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
    if row is not None and row[0] != connection.info.backend_pid:
        connection.shared = True
        connection.prepare_threshold = None


class Database:
    """A pool, and the three kinds of transactions."""

    def __init__(self, url: str, *, size: int = 8, statement_timeout_ms: int = 120_000) -> None:
        self.url = url
        # A worker that freezes inside a transaction must not keep its locks.
        options = f"-c idle_in_transaction_session_timeout=60s -c statement_timeout={statement_timeout_ms}"
        self._statement_timeout = f"{statement_timeout_ms}ms"
        self._turns: asyncio.Lock | None = None
        self._in_turns: Database | None = None
        self._pool = _Pool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            timeout=10,
            max_idle=IDLE_SECONDS,
            kwargs={"options": options, "application_name": "weighbridge"},
            check=_check,
            configure=_configure,
            connection_class=_Connection,
        )

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    def in_turns(self) -> Database:
        """The same database for chores: all their transactions run one after another, on one connection.

        A chore must not begin a transaction inside another one: it would wait for itself.
        """
        if self._in_turns is None:
            self._in_turns = copy(self)
            self._in_turns._turns = asyncio.Lock()
        return self._in_turns

    @asynccontextmanager
    async def tx(
        self, role: LiteralString | None = None, workspace_id: UUID | None = None
    ) -> AsyncIterator[Tx]:
        """A transaction as the service itself or in a role, for one workspace or none."""
        async with self._begin() as tx:
            if role is not None or workspace_id is not None:
                await tx.execute(
                    "SELECT set_config('role', %s, true), set_config('weighbridge.workspace_id', %s, true)",
                    (role or "none", str(workspace_id or "")),
                )
            yield tx

    @asynccontextmanager
    async def fenced(self, lease: Lease, role: LiteralString, *, durable: bool = True) -> AsyncIterator[Tx]:
        """A transaction that only the holder of the lease can commit, in the role of its step.

        Raises LeaseLost before anything is written. With durable=False the commit does not wait for the disk: a crash
        of the server may undo it, rows and watermark together, so nothing is half done; a later durable commit makes
        all earlier ones durable too. After a crash the holder's knowledge may be outdated: it gets RetryLater, and the
        next attempt starts from the state in the tables.
        """
        async with self._begin() as tx:
            await tx.execute(
                "SELECT set_config('application_name', %s, true), weighbridge.enter(%s),"
                " set_config('weighbridge.workspace_id', %s, true), set_config('synchronous_commit', CASE"
                # A server that waits for its standbys does so here too.
                " WHEN NOT %s THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on'"
                " ELSE current_setting('synchronous_commit') END, true),"
                " set_config('role', %s, true)",
                (
                    f"weighbridge {lease.token}",
                    lease.token,
                    str(lease.workspace_id),
                    durable,
                    role,
                ),
            )
            yield tx

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[Tx]:
        with translated():
            try:
                async with (
                    self._turns or nullcontext(),
                    self._pool.connection() as connection,
                    connection.transaction(),
                ):
                    if connection.shared:  # PgBouncer ignores the options of the connection
                        await connection.execute(
                            "SELECT set_config('idle_in_transaction_session_timeout', '60s', true),"
                            " set_config('statement_timeout', %s, true)",
                            (self._statement_timeout,),
                        )
                    yield connection
                    connection.used = monotonic()
            except PoolTimeout as error:
                raise RetryLater("connection", "Could not connect to the database.") from error


@asynccontextmanager
async def savepoint(tx: Tx) -> AsyncIterator[None]:
    """A part of a transaction that can fail on its own: only its changes are undone."""
    with translated():
        async with tx.transaction():
            yield


async def fetch_all(tx: Tx, query: Query, params: Any = None) -> list[TupleRow]:
    return await (await tx.execute(query, params)).fetchall()


async def fetch_one(tx: Tx, query: Query, params: Any = None) -> TupleRow | None:
    return await (await tx.execute(query, params)).fetchone()


async def fetch_named(tx: Tx, query: Query, params: Any = None) -> list[dict[str, Any]]:
    """Rows by column name, for functions that build dataclasses from them."""
    cursor = tx.cursor(row_factory=dict_row)
    return await (await cursor.execute(query, params)).fetchall()


async def connect(url: str) -> Tx:
    """A separate connection, for LISTEN."""
    with translated():
        return await psycopg.AsyncConnection.connect(
            url, autocommit=True, application_name="weighbridge listen"
        )
