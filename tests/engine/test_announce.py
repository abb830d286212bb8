"""IngestionCompleteEvent: exactly as in docs/contracts.md, once, and delivered to every consumer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from tests.engine.conftest import HEADER, Put, Run, meta_file, meta_line
from weighbridge.delivery.context import Context
from weighbridge.engine.announce import announce, consumers
from weighbridge.engine.context import Consumer
from weighbridge.engine.outbox import EventDelivery
from weighbridge.postgres.transactions import Tx

LEASE = timedelta(seconds=60)


async def test_the_event_has_exactly_the_specified_fields(
    put: Put, run: Run, workspace: UUID, query: Any
) -> None:
    client = UUID(int=7)
    bad = meta_line("2026-01-09", 0, impressions="x")
    upload = await run(await put(meta_file(days=3, ads=4, extra=(bad,)), client_id=client))
    [(kind, payload)] = query("SELECT type, payload FROM weighbridge.events")
    assert kind == "IngestionCompleteEvent"
    assert payload.pop("timestamp")
    assert payload == {
        "upload_id": str(upload.id),
        "workspace_id": str(workspace),
        "client_id": str(client),
        "platform": "meta",
        "status": "completed",
        "metrics": {
            "total_rows": 13,
            "promoted_rows": 12,
            "failed_rows": 1,
            "campaigns_upserted": 1,
            "ad_sets_upserted": 2,
            "ads_upserted": 4,
            "daily_metrics_upserted": 12,
        },
        "affected_dates": ["2026-01-01", "2026-01-02", "2026-01-03"],
    }


async def test_a_failed_upload_emits_nothing(put: Put, run: Run, query: Any) -> None:
    await run(await put(f"{HEADER}\n{meta_line('2026-01-01', 0, impressions='x')}\n".encode()))
    assert query("SELECT count(*) FROM weighbridge.events WHERE type = 'IngestionCompleteEvent'") == [(0,)]


async def test_a_retried_upload_does_not_emit_again(ctx: Context, put: Put, run: Run, query: Any) -> None:
    query("ALTER TABLE daily_metrics ADD CONSTRAINT no_7 CHECK (impressions <> 7)")
    upload = await run(await put(meta_file(extra=(meta_line("2026-01-09", 0, impressions=7),))))
    assert upload.status == "partial"
    query("ALTER TABLE daily_metrics DROP CONSTRAINT no_7")
    query("SELECT weighbridge.retry_upload(%s, false, 'test')", (upload.id,))
    upload = await run(upload.id)
    assert upload.status == "completed"
    assert query("SELECT payload ->> 'status' FROM weighbridge.events") == [("partial",)]


async def test_the_audit_log_has_one_entry_however_often_it_is_delivered(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    upload = await run(await put(meta_file()))
    query("UPDATE weighbridge.event_deliveries SET delivered_at = NULL")
    assert await announce(ctx, "test", LEASE) == len(consumers(None))
    assert query("SELECT action, subject FROM weighbridge.audit_log") == [("ingestion.complete", upload.id)]


async def test_the_notifier_notifies_every_listener(put: Put, run: Run, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute("LISTEN weighbridge_live")
        upload = await run(await put(meta_file()))
        heard = [json.loads(n.payload) for n in listener.notifies(timeout=5, stop_after=6)]
    assert [m["status"] for m in heard if "type" not in m] == [
        "pending", "processing", "staging_complete", "promoting", "completed",
    ]  # fmt: skip
    [event] = [m for m in heard if m.get("type") == "IngestionCompleteEvent"]
    assert event["upload_id"] == str(upload.id)


async def test_the_alert_hook_gets_the_affected_dates(ctx: Context, put: Put, run: Run) -> None:
    seen: list[dict[str, Any]] = []
    object.__setattr__(ctx, "consumers", consumers(seen.append))
    await run(await put(meta_file(days=2)))
    assert [event["affected_dates"] for event in seen] == [["2026-01-01", "2026-01-02"]]


async def test_an_alert_hook_may_be_a_coroutine(ctx: Context, put: Put, run: Run) -> None:
    seen: list[str] = []

    async def hook(event: dict[str, Any]) -> None:
        seen.append(event["status"])

    object.__setattr__(ctx, "consumers", consumers(hook))
    await run(await put(meta_file()))
    assert seen == ["completed"]


async def test_a_failing_consumer_is_retried_and_does_not_block_other_consumers(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    calls = 0

    async def broken(tx: Tx, delivery: EventDelivery) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError("nobody there")

    object.__setattr__(ctx, "consumers", {"broken": Consumer(inside=broken), **consumers(None)})
    await run(await put(meta_file()))
    waiting = (
        "SELECT consumer, failures, last_error FROM weighbridge.event_deliveries WHERE delivered_at IS NULL"
    )
    assert query(waiting) == [("broken", 1, "ConnectionError: nobody there")]
    clock.forward(seconds=6)
    await announce(ctx, "test", LEASE)
    assert query(waiting) == [("broken", 2, "ConnectionError: nobody there")]
    clock.forward(seconds=11)
    await announce(ctx, "test", LEASE)
    assert query(waiting) == []


async def test_a_consumer_that_keeps_failing_is_left_to_an_operator(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    async def broken(tx: Tx, delivery: EventDelivery) -> None:
        raise ConnectionError("nobody there")

    object.__setattr__(ctx, "consumers", {"broken": Consumer(inside=broken)})
    await run(await put(meta_file()))
    for _ in range(11):
        clock.forward(hours=2)
        await announce(ctx, "test", LEASE)
    assert query("SELECT failures, gave_up_at IS NOT NULL FROM weighbridge.event_deliveries") == [(11, True)]


async def test_an_event_is_delivered_by_another_worker_after_its_announcer_crashed(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    object.__setattr__(ctx, "consumers", {"audit_log": consumers(None)["audit_log"]})
    await run(await put(meta_file()))
    query("UPDATE weighbridge.event_deliveries SET delivered_at = NULL")
    query("SELECT * FROM weighbridge.claim_event_deliveries('dead', '{audit_log}', '60 seconds', 10)")
    assert await announce(ctx, "test", LEASE) == 0
    clock.forward(seconds=61)
    query("SELECT * FROM weighbridge.recover(5)")
    assert await announce(ctx, "test", LEASE) == 1


async def test_a_notification_leaves_out_dates_that_do_not_fit(put: Put, run: Run, database_url: str) -> None:
    """NOTIFY takes 8,000 bytes."""
    days = [
        f"20{year:02}-{month:02}-{day:02}"
        for year in range(20, 23)
        for month in range(1, 13)
        for day in range(1, 29)
    ]
    content = "\n".join([HEADER, *(meta_line(day, 0) for day in days)]).encode()
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute("LISTEN weighbridge_live")
        await run(await put(content))
        heard = [json.loads(n.payload) for n in listener.notifies(timeout=5, stop_after=6)]
    [event] = [m for m in heard if m.get("type") == "IngestionCompleteEvent"]
    assert event["affected_dates"] is None
    assert event["metrics"]["promoted_rows"] == len(days)


async def test_a_hook_runs_with_no_transaction_open(ctx: Context, put: Put, run: Run, query: Any) -> None:
    seen: list[Any] = []
    held = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name ~ '^weighbridge [0-9a-f-]{36}$'"
    )
    alerts = consumers(lambda event: seen.append(query(held)))["alert_evaluation"]
    object.__setattr__(ctx, "consumers", {"alert_evaluation": alerts})
    await run(await put(meta_file()))
    assert seen == [[(0,)]]


async def test_a_worker_skips_events_of_consumers_that_it_does_not_have(
    ctx: Context, put: Put, run: Run, query: Any
) -> None:
    await run(await put(meta_file()))
    query(
        "UPDATE weighbridge.event_deliveries SET delivered_at = NULL, consumer = 'of another'"
        " WHERE consumer = 'notifier'"
    )
    assert await announce(ctx, "test", LEASE) == 0
