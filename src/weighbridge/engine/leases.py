"""The leases that one process holds: kept alive while their work runs, and ended early when the process stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from weighbridge.engine.heartbeat import Heartbeat
from weighbridge.model.errors import HandBack, LeaseLost, WeighbridgeError
from weighbridge.postgres.transactions import Lease


class Leased(Protocol):
    """Work under a lease. `interrupt` may be called from any thread; the work ends at its next safe point."""

    @property
    def lease(self) -> Lease: ...

    def interrupt(self, reason: WeighbridgeError) -> None: ...


class Leases:
    def __init__(self, url: str, lease: timedelta, ceiling: timedelta) -> None:
        self._held: dict[UUID, Leased] = {}  # by the token of the lease
        self._heartbeat = Heartbeat(url, lease, ceiling, self._lost)

    def start(self) -> None:
        self._heartbeat.start()

    def stop(self) -> None:
        self._heartbeat.stop()

    @contextmanager
    def holding(self, work: Leased) -> Iterator[None]:
        """Renew the lease of this work until it ends, and interrupt the work if its lease is lost."""
        token = work.lease.token
        self._held[token] = work
        self._heartbeat.hold(token)
        try:
            yield
        finally:
            self._heartbeat.drop(token)
            del self._held[token]

    def hand_back(self) -> None:
        """Ask all work to end at its next safe point, because the process is stopping."""
        for held in list(self._held.values()):
            held.interrupt(HandBack("the worker is stopping"))

    def _lost(self, token: UUID) -> None:
        """From the heartbeat's thread: another attempt owns this work now."""
        held = self._held.get(token)
        if held:
            held.interrupt(LeaseLost("the lease expired"))
