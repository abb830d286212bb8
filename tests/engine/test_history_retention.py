"""History is removed when its retention period is over, in short transactions, and never what is still needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.engine.conftest import HEADER, Put, Run, meta_file, meta_line
from tests.engine.steps import claim
from tests.engine.tenant import Tenant
from weighbridge import retention
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.engine.announce import announce
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import Status

LEASE = WorkerOptions().lease


async def test_the_history_of_a_load_is_removed_after_its_time_and_its_rows_stay(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    await run(await put(meta_file(extra=(meta_line("2026-01-09", 0, impressions="x"),))))
    while await announce(ctx, "test", LEASE):
        pass
    query("INSERT INTO weighbridge.alerts (condition, severity, message, closed_at)"
          " VALUES ('test', 'ERROR', '', weighbridge.now())")  # fmt: skip
    clock.forward(days=29)
    assert sum((await retention.expire(ctx.db, ctx.limits)).values()) == 1  # the turn of the workspace
    clock.forward(days=2)
    removed = {kind: rows for kind, rows in (await retention.expire(ctx.db, ctx.limits)).items() if rows}
    assert removed == {"attempts": 3, "events": 1, "alerts": 1}
    assert query("SELECT count(*) FROM weighbridge.event_deliveries") == [(0,)]
    assert query("SELECT count(*) FROM upload_rejections") == [(1,)]
    clock.forward(days=335)
    assert (await retention.expire(ctx.db, ctx.limits))["upload_rejections"] == 1
    assert query("SELECT count(*) FROM weighbridge.audit_log") == [(1,)]
    clock.forward(days=365)
    assert (await retention.expire(ctx.db, ctx.limits))["audit_log"] == 1
    assert query("SELECT count(*) FROM daily_metrics") == [(12,)]
    assert query("SELECT status, failed_rows FROM data_uploads") == [("completed", 1)]


async def test_the_console_reports_that_rejected_rows_were_deleted(app: App, query: Any) -> None:
    tenant = Tenant(app)
    bad = f"{HEADER}\n{meta_line('2026-01-20', 0)}\n{meta_line('2026-01-20', 1, impressions='x')}\n"
    upload = await tenant.load(bad.encode(), Status.PARTIAL, force_partial=True)
    async with tenant.client() as http:
        for deleted in (False, True):
            for page in ("", "/rows?code=bad_integer"):
                answer = await http.get(f"/uploads/{upload.id}{page}")
                assert answer.status_code == 200
                assert ("The rejected rows were deleted" in answer.text) == deleted
            query("DELETE FROM upload_rejections")


async def test_what_is_still_needed_stays_at_any_age(
    ctx: Context, put: Put, query: Any, clock: Any, workspace: UUID
) -> None:
    await put(meta_file())
    first = await claim(ctx)
    query("SELECT weighbridge.release_upload(%s, '0', false, NULL)", (first.lease.token,))  # it waits again
    query("INSERT INTO upload_rejections (upload_id, workspace_id, row_index, line, stage, code, message)"
          " VALUES (%s, %s, 1, 1, 'parse', 'x', '')", (first.upload.id, workspace))  # fmt: skip
    query("SELECT weighbridge.emit(%s, NULL, 'test', '{}', '{audit_log,notifier}')", (workspace,))
    query(
        "UPDATE weighbridge.event_deliveries SET delivered_at = weighbridge.now() WHERE consumer = 'notifier'"
    )
    quota = "jsonb_build_object('billing_month', weighbridge.billing_month())"
    clock.forward(days=2000)
    query(f"SELECT weighbridge.emit(%s, NULL, 'quota.storage.exceeded', {quota}, '{{}}')", (workspace,))
    query("UPDATE weighbridge.events SET created_at = created_at - interval '31 days'")
    query("SELECT weighbridge.raise_alert('test', '', 'ERROR', 'it is open')")
    query("UPDATE weighbridge.alerts SET opened_at = opened_at - interval '1000 days'")
    assert sum((await retention.expire(ctx.db, ctx.limits)).values()) == 1  # the turn of the workspace
    assert query("SELECT count(*) FROM weighbridge.attempts") == [(1,)]


async def test_records_that_a_transaction_holds_are_skipped_and_nothing_waits(
    ctx: Context, query: Any, database_url: str, clock: Any
) -> None:
    query("INSERT INTO weighbridge.audit_log (actor, action) SELECT 'a', 'b' FROM generate_series(1, 10)")
    clock.forward(days=1000)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM weighbridge.audit_log WHERE id = 3 FOR UPDATE")
        async with asyncio.timeout(5):
            assert (await retention.expire(ctx.db, ctx.limits))["audit_log"] == 9
    assert (await retention.expire(ctx.db, ctx.limits, at_once=True))["audit_log"] == 1


async def test_a_transaction_looks_through_one_megabyte(ctx: Context, query: Any, clock: Any) -> None:
    query("INSERT INTO weighbridge.audit_log (actor, action) SELECT repeat('a', 900), 'b'"
          " FROM generate_series(1, 3000)")  # fmt: skip
    clock.forward(days=1000)
    before = query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int")[0][0]
    assert (await retention.expire(ctx.db, ctx.limits))["audit_log"] == 3000
    after = query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int")[0][0]
    assert after - before > 3


async def test_one_of_many_processes_removes_records_once_a_day(ctx: Context, query: Any, clock: Any) -> None:
    clock.forward(days=1)  # since the database was made
    runs = await asyncio.gather(*(retention.expire(ctx.db, ctx.limits) for _ in range(4)))
    assert sum(each != {} for each in runs) == 1
    clock.forward(days=1)
    assert "audit_log" in await retention.expire(ctx.db, ctx.limits)


async def test_each_setting_counts_for_its_kind(ctx: Context, query: Any, clock: Any) -> None:
    query("INSERT INTO weighbridge.attempts (queue, subject, workspace_id, worker, opened_at, progressed_at,"
          " lease_until, closed_at, outcome) SELECT 'uploads', gen_random_uuid(), %s, 'w', n, n, n, n, 'done'"
          " FROM weighbridge.now() AS n", (uuid4(),))  # fmt: skip
    clock.forward(days=3)
    assert (await retention.expire(ctx.db, replace(ctx.limits, attempt_days=4)))["attempts"] == 0
    assert (await retention.expire(ctx.db, replace(ctx.limits, attempt_days=2), at_once=True))[
        "attempts"
    ] == 1
