"""The leases that one process holds: renewed while their work runs, and ended early when the process stops."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import psycopg
import structlog

from weighbridge.model.errors import LeaseLost, StopRequested, WeighbridgeError
from weighbridge.model.retry import HEARTBEAT
from weighbridge.postgres.connections import BlockingConnection, connect_blocking
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease

log = structlog.get_logger()
_SQL = load(__name__)
CONNECT_SECONDS, ANSWER_SECONDS = 5, 5  # short: several tries must fit into a lease
LOCK_SECONDS = 1.0
JOIN_SECONDS = 5.0  # for a beat in progress; the thread ends with the process anyway


class Leased(Protocol):
    """Work under a lease. `interrupt` may be called from any thread; the work ends at its next safe point."""

    @property
    def lease(self) -> Lease: ...

    def interrupt(self, reason: WeighbridgeError) -> None: ...


class Leases:
    """Renews every third of the lease, from its own thread and connection: even while the event loop is busy.

    The connection is opened at the start and kept: later, when the first lease must be renewed, Postgres may have none
    that is free. With `lazy` it is opened for the first work: for a process that rarely has any.
    """

    def __init__(self, url: str, lease: timedelta, ceiling: timedelta, *, lazy: bool = False) -> None:
        self._url = url
        self._lease = lease
        self._ceiling = ceiling
        self._held: dict[UUID, Leased] = {}  # by the token of the lease
        self._lock = threading.Lock()  # of _held
        self._stop = threading.Event()
        self._wake = threading.Event()  # there is work for the first time, or the process stops
        self._needed = not lazy
        self._heartbeat = threading.Thread(target=self._renew_until_stopped, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._heartbeat.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._heartbeat.join(timeout=JOIN_SECONDS)

    @contextmanager
    def holding(self, work: Leased) -> Iterator[None]:
        """Renew the lease of this work until it ends, and interrupt the work if its lease is lost."""
        token = work.lease.token
        with self._lock:
            self._held[token] = work
        if not self._needed:
            self._needed = True
            self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(token, None)  # absent if the lease was lost

    def request_stop(self) -> None:
        """Ask all work to end at its next safe point, because the process is stopping."""
        with self._lock:
            held = list(self._held.values())
        for work in held:
            work.interrupt(StopRequested("the worker is stopping"))

    def _renew_until_stopped(self) -> None:
        """Also without leases it asks every third of a lease, so that a dead connection is replaced in time."""
        connection: BlockingConnection | None = None
        pauses = HEARTBEAT.pauses()
        pause = 0.0 if self._needed else None
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stop.is_set():
                break
            try:
                connection = connection or self._connected()
                all_renewed = self._renew(connection)
                pause, pauses = self._third if all_renewed else self._soon, HEARTBEAT.pauses()
            except psycopg.Error as error:
                # If no beat succeeds, the lease expires and another worker takes over.
                log.warning("heartbeat.missed", error_type=type(error).__name__)
                if connection is not None:
                    connection.close()
                connection = None
                pause = min(next(pauses), self._soon)
        if connection is not None:
            connection.close()

    @property
    def _third(self) -> float:
        return self._lease.total_seconds() / 3

    @property
    def _soon(self) -> float:
        return self._third / 4

    def _connected(self) -> BlockingConnection:
        lock = round(1000 * min(LOCK_SECONDS, self._third / 2))
        return connect_blocking(
            self._url,
            "weighbridge heartbeat",
            connect_seconds=math.ceil(min(CONNECT_SECONDS, self._third)),
            limit=min(ANSWER_SECONDS, max(self._third, 0.5)),
            options=f"-c lock_timeout={lock}",
        )

    def _renew(self, connection: BlockingConnection) -> bool:
        """Interrupt work whose lease is lost: another attempt owns it now. False: some could not be renewed yet."""
        with self._lock:
            tokens = set(self._held)
        locked: set[UUID] = set()
        try:
            alive = self._beat(connection, tokens)
        except psycopg.errors.LockNotAvailable:
            # A transaction is changing one of them, perhaps for long: it must not cost the others their leases.
            alive = set()
            for token in tokens:
                try:
                    alive |= self._beat(connection, {token})
                except psycopg.errors.LockNotAvailable:
                    locked.add(token)
        gone = tokens - alive - locked
        if gone:  # work that ends at this moment must not be interrupted
            gone -= {row[0] for row in connection.execute(_SQL["ended"], (list(gone),)).fetchall()}
        for token in gone:
            with self._lock:
                work = self._held.pop(token, None)  # None: it has ended meanwhile
            if work is not None:
                work.interrupt(LeaseLost("the lease expired"))
        return not locked

    def _beat(self, connection: BlockingConnection, tokens: set[UUID]) -> set[UUID]:
        """Those that are alive, renewed. One statement: a process that freezes must not keep a lock on them."""
        found = connection.execute(_SQL["heartbeat"], (list(tokens), self._lease, self._ceiling))
        return {row[0] for row in found.fetchall()}
