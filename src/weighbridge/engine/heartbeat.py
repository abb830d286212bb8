"""Renews leases from its own thread and connection, even while the event loop is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import psycopg
import structlog

from weighbridge.postgres.queries import load

log = structlog.get_logger()
_SQL = load(__name__)


class Heartbeat:
    """Renews the held tokens every third of the lease; calls `on_lost` for each token that is no longer live."""

    def __init__(
        self, url: str, lease: timedelta, ceiling: timedelta, on_lost: Callable[[UUID], None]
    ) -> None:
        self._url = url
        self._lease = lease
        self._ceiling = ceiling
        self._on_lost = on_lost
        self._tokens: set[UUID] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def hold(self, token: UUID) -> None:
        with self._lock:
            self._tokens.add(token)

    def drop(self, token: UUID) -> None:
        with self._lock:
            self._tokens.discard(token)

    def _run(self) -> None:
        connection: psycopg.Connection[tuple[UUID]] | None = None
        while not self._stop.wait(self._lease.total_seconds() / 3):
            with self._lock:
                tokens = list(self._tokens)
            if not tokens:
                continue
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(
                        self._url, autocommit=True, application_name="weighbridge heartbeat"
                    )
                self._beat(connection, tokens)
            except psycopg.Error as error:
                # The next beat tries again; if none succeeds, the lease expires and another worker takes over.
                log.warning("heartbeat.missed", error_type=type(error).__name__)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _beat(self, connection: psycopg.Connection[tuple[UUID]], tokens: list[UUID]) -> None:
        rows = connection.execute(_SQL["heartbeat"], (tokens, self._lease, self._ceiling)).fetchall()
        alive = {row[0] for row in rows}
        for token in tokens:
            if token not in alive:
                self.drop(token)
                self._on_lost(token)
