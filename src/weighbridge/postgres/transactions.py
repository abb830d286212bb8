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

from psycopg import AsyncConnection, IsolationLevel
from psycopg.abc import QueryNoTemplate as Query
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from weighbridge.model.errors import RetryLater
from weighbridge.postgres.connections import CHECK_SECONDS, LimitedConnection, NoAnswer, parameters
from weighbridge.postgres.errors import translated

Tx = AsyncConnection[TupleRow]

FRESH = 0.5  # seconds for which a used connection is not checked again
# Every statement on a table of many workspaces has an index. Without statistics, or with old ones, the planner may take
# the table for a small one and read all of it, and foreign keys keep such a plan while the connection lasts. Before
# version 18, a table that has no index seems so expensive that the statement would be compiled.
_ALONG_INDEXES: LiteralString = "set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
IDLE_SECONDS = 20  # after this time, the pool closes one connection that was not needed
POOL_SECONDS = 10  # to get a connection; longer than a new one takes that cannot be opened
CLOSE_SECONDS = 2.0  # for connections that are being opened while the pool is closed
LOCK_SECONDS = 10.0  # to wait for one lock: the attempt goes back to its queue, and others can use its slot
ANSWER_MARGIN = 10.0  # seconds after the server's own timeout of a statement


@dataclass(frozen=True)
class Lease:
    """The right of one attempt to work on one subject."""

    token: UUID
    subject: UUID
    workspace_id: UUID


@dataclass(frozen=True)
class Timeouts:
    """Seconds. Without `statement`, a statement may take any time."""

    statement: float = 120
    lock: float = LOCK_SECONDS
    idle_in_transaction: float = 60  # a worker that freezes inside a transaction must not keep its locks
    check: float = CHECK_SECONDS  # of an idle connection
    margin: float = ANSWER_MARGIN
    pool: float = POOL_SECONDS

    @property
    def answer(self) -> float | None:
        """For the answer to a statement: the server ends the statement earlier, unless the connection is dead."""
        return self.statement + self.margin if self.statement else None

    @property
    def options(self) -> str:
        """For the server. A wait for a lock must not use up the time of its statement."""
        return " ".join(f"-c {name}={value}" for name, value in self._settings.items())

    @property
    def in_transaction(self) -> tuple[LiteralString, tuple[str, ...]]:
        """A statement with its parameters that does the same for one transaction."""
        settings = self._settings
        return (
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
            " set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)",
            tuple(str(each) for each in settings.values()),
        )

    @property
    def _settings(self) -> dict[str, int]:
        lock = min(self.lock, self.statement / 3) if self.statement else self.lock
        return {
            "idle_in_transaction_session_timeout": _milliseconds(self.idle_in_transaction),
            "statement_timeout": _milliseconds(self.statement),
            "lock_timeout": _milliseconds(lock),
        }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


class _Connection(LimitedConnection):
    used = 0.0  # `monotonic` time at the end of its last transaction
    shared = False  # by PgBouncer: the next transaction may be in another session of the server


class _Pool(AsyncConnectionPool[_Connection]):
    """Lends the connection that was used last: the others become idle, and the pool closes them.

    A used connection also has its plans. By default, the pool lends the one that was idle longest, and none ever is.
    """

    replaced = 0.0  # `monotonic` time

    async def replace_idle(self) -> None:
        """One did not answer: the others are probably dead as well, and each check would take as long."""
        if monotonic() - self.replaced > FRESH:  # checks that began together end together
            self.replaced = monotonic()
            await self.drain()

    async def _get_ready_connection(self, timeout: float | None) -> _Connection | None:  # noqa: ASYNC109
        self._pool.rotate()
        return await super()._get_ready_connection(timeout)


class Database:
    """A pool, and the three kinds of transactions."""

    def __init__(
        self,
        url: str,
        *,
        size: int = 8,
        statement_timeout_ms: int = 120_000,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.url = url
        self._timeouts = timeouts or Timeouts(statement_timeout_ms / 1000)
        self._answer = self._timeouts.answer
        self._turns: asyncio.Lock | None = None
        self._in_turns: Database | None = None
        self._pool = _Pool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            timeout=self._timeouts.pool,
            max_idle=IDLE_SECONDS,
            # Then the next one who needs a connection tries at once; otherwise the pause doubles up to minutes.
            reconnect_timeout=self._timeouts.pool,
            kwargs=parameters(url, "weighbridge", options=self._timeouts.options),
            configure=self._configure,
            check=self._check,
            connection_class=_Connection,
        )

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close(timeout=CLOSE_SECONDS)

    def in_turns(self) -> Database:
        """The same database for chores: all their transactions run one after another, on one connection.

        A chore must not begin a transaction inside another one: it would wait for itself.
        """
        if self._in_turns is None:
            self._in_turns = copy(self)
            self._in_turns._turns = asyncio.Lock()
        return self._in_turns

    async def _configure(self, connection: _Connection) -> None:
        connection.limit = self._answer
        # PgBouncer reports another process than the server does. Then no statement is prepared.
        await connection.set_autocommit(True)
        row = await (await connection.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
        await connection.set_autocommit(False)
        if row is not None and row[0] != connection.info.backend_pid:
            connection.shared = True
            connection.prepare_threshold = None
        # Named in each BEGIN: the default of the server, the database or the login may be another one.
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)

    async def _check(self, connection: _Connection) -> None:
        """Check that the connection is still open, unless it was just used: a check costs a round trip."""
        if monotonic() - connection.used <= FRESH:
            return
        try:
            with connection.limited(self._timeouts.check):
                await AsyncConnectionPool.check_connection(connection)
        except NoAnswer:
            await self._pool.replace_idle()
            raise

    @asynccontextmanager
    async def tx(
        self, role: LiteralString | None = None, workspace_id: UUID | None = None
    ) -> AsyncIterator[Tx]:
        """A transaction as the service itself or in a role, for one workspace or none."""
        async with self._begin() as tx:
            if role is not None or workspace_id is not None:
                await tx.execute(
                    "SELECT set_config('role', %s, true), set_config('weighbridge.workspace_id', %s, true),"
                    f" {_ALONG_INDEXES}",
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
                f" set_config('role', %s, true), {_ALONG_INDEXES}",
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
                async with self._turns or nullcontext(), self._pool.connection() as connection:
                    connection.limit = self._answer  # the last transaction may have had another one
                    async with connection.transaction():
                        if connection.shared:  # PgBouncer ignores the options of the connection
                            await connection.execute(*self._timeouts.in_transaction)
                        yield connection
                        connection.used = monotonic()
            except PoolTimeout as error:
                raise RetryLater("connection", "Could not connect to the database.") from error


def allow(tx: Tx, seconds: float) -> None:
    """The statements of this transaction may take this long. The caller has set the server's own limit."""
    if isinstance(tx, LimitedConnection):
        tx.limit = seconds + ANSWER_MARGIN


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
