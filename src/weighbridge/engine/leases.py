"""The leases that one process holds: renewed while their work runs, and ended early when the process stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import psycopg
import structlog

from weighbridge.model.errors import LeaseLost, StopRequested, WeighbridgeError
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease

log = structlog.get_logger()
_SQL = load(__name__)


class Leased(Protocol):
    """Work under a lease. `interrupt` may be called from any thread; the work ends at its next safe point."""

    @property
    def lease(self) -> Lease: ...

    def interrupt(self, reason: WeighbridgeError) -> None: ...


class Leases:
    """Renews every third of the lease, from its own thread and connection: even while the event loop is busy."""

    def __init__(self, url: str, lease: timedelta, ceiling: timedelta) -> None:
        self._url = url
        self._lease = lease
        self._ceiling = ceiling
        self._held: dict[UUID, Leased] = {}  # by the token of the lease
        self._lock = threading.Lock()  # of _held
        self._stop = threading.Event()
        self._heartbeat = threading.Thread(target=self._renew_until_stopped, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._heartbeat.start()

    def stop(self) -> None:
        self._stop.set()
        self._heartbeat.join(timeout=5)

    @contextmanager
    def holding(self, work: Leased) -> Iterator[None]:
        """Renew the lease of this work until it ends, and interrupt the work if its lease is lost."""
        token = work.lease.token
        with self._lock:
            self._held[token] = work
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
        connection: psycopg.Connection[tuple[UUID]] | None = None
        while not self._stop.wait(self._lease.total_seconds() / 3):
            with self._lock:
                tokens = list(self._held)
            if not tokens:
                continue
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(
                        self._url,
                        autocommit=True,
                        application_name="weighbridge heartbeat",
                        prepare_threshold=None,  # PgBouncer may execute each beat in another session
                    )
                self._renew(connection, tokens)
            except psycopg.Error as error:
                # The next beat tries again; if none succeeds, the lease expires and another worker takes over.
                log.warning("heartbeat.missed", error_type=type(error).__name__)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _renew(self, connection: psycopg.Connection[tuple[UUID]], tokens: list[UUID]) -> None:
        """Interrupt work whose lease is lost: another attempt owns it now."""
        rows = connection.execute(_SQL["heartbeat"], (tokens, self._lease, self._ceiling)).fetchall()
        for token in set(tokens) - {row[0] for row in rows}:
            with self._lock:
                work = self._held.pop(token, None)  # None: it has ended meanwhile
            if work is not None:
                work.interrupt(LeaseLost("the lease expired"))
