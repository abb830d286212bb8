"""Queries of the outbox: events, their deliveries to consumers, and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Lease, Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class EventDelivery:
    """One event for one consumer, claimed."""

    lease: Lease
    event_id: UUID
    consumer: str
    failures: int
    type: str
    payload: dict[str, Any]
    accepted_by: tuple[str, ...] = ()  # addresses of the consumer that have accepted it


@dataclass(frozen=True)
class EventClaimRequest:
    """What an announcer may claim."""

    worker: str
    consumers: tuple[str, ...]
    lease: timedelta
    limit: int


async def claim(tx: Tx, request: EventClaimRequest) -> list[EventDelivery]:
    """Claim deliveries that are due, each with its own lease, so that a slow consumer does not delay others."""
    params = (request.worker, list(request.consumers), request.lease, request.limit)
    rows = await fetch_all(tx, _SQL["claim_event_deliveries"], params)
    return [
        EventDelivery(
            Lease(token, delivery, workspace), event, consumer, failures, kind, payload, tuple(accepted_by)
        )
        for token, delivery, event, consumer, failures, kind, payload, workspace, accepted_by in rows
    ]


async def note_accepted(tx: Tx, delivery: EventDelivery, address: str) -> None:
    """Record that one of the consumer's addresses has accepted it; it is not sent there again."""
    await tx.execute(_SQL["note_accepted"], (address, delivery.lease.subject))


async def finish(tx: Tx, delivery: EventDelivery) -> None:
    await tx.execute(_SQL["finish_event_delivery"], (delivery.lease.token,))


async def fail(tx: Tx, delivery: EventDelivery, delay: timedelta | None, error: str) -> None:
    """Retry after the delay; without one, give up and leave the row for an operator."""
    await tx.execute(_SQL["fail_event_delivery"], (delivery.lease.token, delay, error))


@dataclass(frozen=True)
class Undelivered:
    given_up: int
    late: int


async def undelivered(tx: Tx, late_minutes: int) -> Undelivered:
    """Deliveries that were given up, and those that are late by more than this."""
    [row] = await fetch_all(tx, _SQL["undelivered"], (late_minutes,))
    return Undelivered(*row)


async def record_audit(
    tx: Tx, workspace_id: UUID, action: str, subject: UUID | None, detail: dict[str, Any]
) -> None:
    """Write to the audit log; the same event twice makes one entry."""
    await tx.execute(_SQL["record_audit"], (workspace_id, action, subject, Jsonb(detail)))


async def notify(tx: Tx, payload: str) -> None:
    """Notify every API process, which updates the pages."""
    await tx.execute(_SQL["notify_payload"], (payload,))
