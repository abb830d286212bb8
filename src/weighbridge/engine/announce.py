"""Events → their consumers. Each delivery succeeds or fails on its own."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from weighbridge.engine import outbox
from weighbridge.engine.context import Consumer, Context
from weighbridge.engine.outbox import EventDelivery
from weighbridge.model.errors import LeaseLost, RetryLater
from weighbridge.model.retry import ANNOUNCEMENT
from weighbridge.observe import journal
from weighbridge.observe.alerts import Alert, Alerts
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database, Tx

ALERTS = "alerts"  # consumer of alert events; not of events about uploads

LONGEST_MESSAGE = 7_900  # bytes; NOTIFY accepts 8,000

# Separate from the threads that parse: a hanging hook must not occupy one of those.
_HOOKS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hook")

AlertHook = Callable[[dict[str, Any]], Any]


def consumers(alert_hook: AlertHook | None) -> dict[str, Consumer]:
    """The consumers of upload events. Without a hook there is no evaluation consumer, and no delivery for it."""
    found = {"audit_log": Consumer(inside=_audit), "notifier": Consumer(inside=_notify)}
    if alert_hook is not None:
        found["alert_evaluation"] = Consumer(outside=_evaluation(alert_hook))
    return found


def alerting(alerts: Alerts, db: Database) -> dict[str, Consumer]:
    """The consumer of alerts. Without an address, alerts are only logged."""
    return {ALERTS: Consumer(outside=_alert(alerts, db))}


async def announce(ctx: Context, worker: str, lease: timedelta, limit: int = 20) -> int:
    """Deliver events that are due. Returns how many were tried: if it is not zero, call again."""
    claimed = await due(ctx, worker, lease, limit)
    await asyncio.gather(*(announce_to(ctx, delivery, lease) for delivery in claimed))
    return len(claimed)


async def due(
    ctx: Context, worker: str, lease: timedelta, limit: int, only: Sequence[str] = ()
) -> list[EventDelivery]:
    """Claim deliveries that are due, for all consumers of this process or some of them."""
    async with ctx.db.tx() as tx:
        return await outbox.claim(
            tx, outbox.EventClaimRequest(worker, tuple(only or ctx.consumers), lease, limit)
        )


async def announce_to(ctx: Context, delivery: EventDelivery, lease: timedelta) -> None:
    """Deliver one event to one consumer. Never raises: failures are recorded on the delivery."""
    consumer = ctx.consumers[delivery.consumer]
    try:
        if consumer.outside is not None:
            # The timeout is shorter than the lease: two workers must not call a slow consumer at once.
            async with asyncio.timeout(lease.total_seconds() * 0.8):
                await consumer.outside(delivery)
        async with ctx.db.fenced(delivery.lease, roles.ANNOUNCE) as tx:
            if consumer.inside is not None:
                await consumer.inside(tx, delivery)
            await outbox.finish(tx, delivery)
    except LeaseLost:
        return
    except Exception as error:
        # Any failure of a consumer is recorded on its delivery and retried. If recording fails too,
        # the lease expires and another worker takes over.
        with suppress(LeaseLost, RetryLater):
            async with ctx.db.tx() as tx:
                await outbox.fail(
                    tx,
                    delivery,
                    ANNOUNCEMENT.wait(delivery.failures + 1),
                    f"{type(error).__name__}: {error}"[:500],
                )


async def _audit(tx: Tx, delivery: EventDelivery) -> None:
    event, action = delivery.payload, delivery.type
    detail = event
    if action == "IngestionCompleteEvent":
        action, detail = "ingestion.complete", {name: event[name] for name in ("status", "metrics")}
    subject = event.get("upload_id")
    await outbox.record_audit(
        tx,
        delivery.lease.workspace_id,
        action,
        UUID(subject) if subject else None,
        {"event_id": str(delivery.event_id), **detail},
    )


async def _notify(tx: Tx, delivery: EventDelivery) -> None:
    message = json.dumps({"type": delivery.type, **delivery.payload})
    if len(message.encode()) > LONGEST_MESSAGE:  # too many dates: a listener can query the upload
        message = json.dumps({"type": delivery.type, **delivery.payload, "affected_dates": None})
    await outbox.notify(tx, message)


def _alert(alerts: Alerts, db: Database) -> Callable[[EventDelivery], Awaitable[None]]:
    async def send(delivery: EventDelivery) -> None:
        event = delivery.payload
        severity = "RECOVERED" if delivery.type == "AlertRecovered" else event["severity"]
        if delivery.failures == 0:
            journal.alert(event["condition"], event["message"], severity)
        not_noted = None
        async for address in alerts.send(Alert(severity, event["message"], delivery.accepted_by)):
            try:
                async with db.tx() as tx:
                    await outbox.note_accepted(tx, delivery, address)
            except (
                RetryLater
            ) as failure:  # the later answers are noted all the same: each is one alert less to repeat
                not_noted = failure
        if not_noted:
            raise not_noted

    return send


def _evaluation(hook: AlertHook) -> Callable[[EventDelivery], Awaitable[None]]:
    """The hook gets the event, affected_dates included. A plain function runs in a thread."""

    async def evaluate(delivery: EventDelivery) -> None:
        event = dict(delivery.payload)
        if inspect.iscoroutinefunction(hook):
            await hook(event)
        else:
            await asyncio.get_running_loop().run_in_executor(_HOOKS, hook, event)

    return evaluate
