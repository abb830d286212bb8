"""Each condition once per episode, with its message, and a word when it is over; over a real webhook."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.engine.conftest import Put, meta_file, meta_line
from tests.engine.steps import claim
from tests.observe.listener import Listener, listening
from weighbridge.delivery.context import Context
from weighbridge.engine import recover
from weighbridge.engine.announce import alerting, announce
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import ConfigError
from weighbridge.model.states import Status
from weighbridge.observe.alerts import Alerts
from weighbridge.uploads import figures
from weighbridge.uploads.operator_retry import dismiss, reopen
from weighbridge.worker import Worker, run_until

LEASE = timedelta(seconds=60)
POOR = meta_file(days=1, ads=1, extra=(meta_line("2026-01-01", 8, impressions="x"),))


async def _run(ctx: Context, upload_id: UUID) -> Any:
    options = WorkerOptions(poll=timedelta(seconds=0.05))
    return (await run_until(ctx, options, [upload_id]))[0]


async def _watch(ctx: Context, dead_letters: int = 5, backlog: int = 100) -> figures.QueueCounts:
    async with ctx.db.tx() as tx:
        watched = await figures.watch_queues(tx, dead_letters, backlog)
    await _tell(ctx)
    return watched


async def _tell(ctx: Context) -> None:
    while await announce(ctx, "test", LEASE):
        pass


def _waiting(query: Any, workspace: UUID, count: int) -> None:
    query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size)"
        " SELECT %s, 'api', 'ads', sha256(gen_random_uuid()::text::bytea), 1 FROM generate_series(1, %s)",
        (workspace, count),
    )


async def test_a_failed_upload_is_alerted_with_its_batch_and_code(
    told: Context, put: Put, listener: Listener
) -> None:
    failed = await _run(told, await put(POOR, source_batch_id="march"))
    assert (failed.status, listener.messages) == (
        Status.FAILED, ["[INGEST FAILURE] march: too_many_invalid_rows"],
    )  # fmt: skip
    assert [each["type"] for each in listener.heard] == ["failure"]


async def test_a_batch_without_a_name_is_called_by_its_upload_and_never_by_its_file(
    told: Context, put: Put, listener: Listener
) -> None:
    failed = await _run(told, await put(POOR, filename="Ann Canary.csv"))
    assert listener.messages == [f"[INGEST FAILURE] {failed.id}: too_many_invalid_rows"]


async def test_a_failure_that_is_mended_is_told_and_the_next_one_is_another_episode(
    told: Context, put: Put, listener: Listener
) -> None:
    failed = await _run(told, await put(POOR, source_batch_id="march"))
    await reopen(told.db, failed, force_partial=False, actor="test")
    await _run(told, failed.id)  # it fails again while the alert is open
    await reopen(told.db, failed, force_partial=True, actor="test")
    await _run(told, failed.id)
    assert listener.messages == [
        "[INGEST FAILURE] march: too_many_invalid_rows",
        "[INGEST RECOVERED] march: partial",
    ]
    assert [each["type"] for each in listener.heard] == ["failure", "success"]


async def test_a_dismissed_failure_is_no_dead_letter_any_more_and_its_alert_is_withdrawn(
    told: Context, put: Put, listener: Listener, query: Any
) -> None:
    failed = await _run(told, await put(POOR, source_batch_id="march"))
    assert (await _watch(told)).dead_letters == 1
    await dismiss(told.db, failed, actor="someone")
    assert (await _watch(told)).dead_letters == 0
    assert listener.messages[1:] == ["[INGEST FAILURE DISMISSED] march"]
    assert query("SELECT actor, action FROM weighbridge.audit_log WHERE action LIKE 'upload.%'") == [
        ("someone", "upload.dismiss")
    ]
    await reopen(told.db, failed, force_partial=False, actor="test")
    await _run(told, failed.id)  # what fails again is looked at again
    assert (await _watch(told)).dead_letters == 1


async def test_a_takeover_is_alerted_and_so_is_the_end_of_it(
    told: Context, put: Put, listener: Listener, clock: Any
) -> None:
    upload_id = await put(meta_file(), source_batch_id="march")
    await claim(told)
    clock.forward(hours=2)
    async with told.db.tx() as tx:
        await recover.recover(tx, 5)
    await _tell(told)
    assert listener.messages == ["[STALE TAKEOVER] march abandoned for 2.0h"]
    assert [each["type"] for each in listener.heard] == ["warning"]
    assert (await _run(told, upload_id)).status == Status.COMPLETED
    assert listener.messages[1:] == ["[STALE TAKEOVER RECOVERED] march: completed"]


async def test_every_takeover_is_alerted(told: Context, put: Put, listener: Listener, clock: Any) -> None:
    await put(meta_file(), source_batch_id="march")
    for _ in range(2):
        await claim(told)
        clock.forward(hours=1)
        async with told.db.tx() as tx:
            await recover.recover(tx, 5)
    await _tell(told)
    assert listener.messages == ["[STALE TAKEOVER] march abandoned for 1.0h"] * 2


async def test_more_than_five_dead_letters_are_alerted_once_until_they_are_gone(
    told: Context, listener: Listener, query: Any, workspace: UUID
) -> None:
    _waiting(query, workspace, 6)
    query("ALTER TABLE data_uploads DISABLE TRIGGER ALL")
    one = "(SELECT id FROM data_uploads WHERE status = 'pending' LIMIT 1)"
    query(f"UPDATE data_uploads SET status = 'failed', finished_at = now() WHERE id NOT IN {one}")
    assert ((await _watch(told)).dead_letters, listener.messages) == (5, [])
    query("UPDATE data_uploads SET status = 'failed', finished_at = now()")
    for _ in range(3):
        await _watch(told)
    assert listener.messages == ["Ingest dead-letter queue has 6 messages"]
    query("UPDATE data_uploads SET dismissed_at = now()")
    for _ in range(2):
        await _watch(told)
    assert listener.messages[1:] == ["Ingest dead-letter queue is back to 0 messages"]
    query("UPDATE data_uploads SET dismissed_at = NULL")
    await _watch(told)
    assert listener.messages[2:] == ["Ingest dead-letter queue has 6 messages"]


async def test_a_backlog_of_more_than_a_hundred_is_alerted_once_until_it_is_worked_off(
    told: Context, listener: Listener, query: Any, workspace: UUID
) -> None:
    _waiting(query, workspace, 100)
    assert ((await _watch(told)).backlog, listener.messages) == (100, [])
    _waiting(query, workspace, 1)
    await claim(told)  # one that is worked on still counts
    await asyncio.gather(*(_watch(told) for _ in range(8)))  # as many workers do
    assert listener.messages == ["Ingest backlog at 101 pending jobs"]
    query("DELETE FROM data_uploads WHERE status = 'pending'")
    await _watch(told)
    assert listener.messages[1:] == ["Ingest backlog is back to 1 pending jobs"]


async def test_a_worker_watches_the_queues_by_itself(
    told: Context, listener: Listener, query: Any, workspace: UUID, eventually: Any
) -> None:
    _waiting(query, workspace, 3)
    query("UPDATE data_uploads SET run_after = weighbridge.now() + interval '1 day'")
    options = WorkerOptions(poll=timedelta(seconds=0.05), lease=timedelta(seconds=3), alert_backlog=2)
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(told, options).run(stop))
    await eventually(lambda: listener.messages == ["Ingest backlog at 3 pending jobs"])
    stop.set()
    await running


async def test_an_alert_whose_sender_died_is_sent_by_another(
    told: Context, listener: Listener, query: Any, workspace: UUID, clock: Any
) -> None:
    _waiting(query, workspace, 3)
    async with told.db.tx() as tx:
        await figures.watch_queues(tx, 5, 2)
    query("SELECT * FROM weighbridge.claim_event_deliveries('dead', '{alerts}', '60 seconds', 10)")
    await _tell(told)
    assert listener.messages == []
    clock.forward(seconds=61)
    async with told.db.tx() as tx:
        await recover.recover(tx, 5)
    await _tell(told)
    assert listener.messages == ["Ingest backlog at 3 pending jobs"]


async def test_a_dead_webhook_holds_nothing_up_and_hears_of_it_when_it_is_back(
    told: Context, put: Put, listener: Listener, query: Any, clock: Any
) -> None:
    listener.answer = 500
    failed = await _run(told, await put(POOR, source_batch_id="march"))
    assert failed.status == Status.FAILED
    assert (await _run(told, await put(meta_file()))).status == Status.COMPLETED
    [(failures, error)] = query(
        "SELECT failures, last_error FROM weighbridge.event_deliveries WHERE delivered_at IS NULL"
    )
    assert failures == 1
    assert error == "RetryLater: Address 1 of WEIGHBRIDGE_ALERT_URLS did not accept the alert."
    listener.answer = 200
    clock.forward(seconds=6)
    await _tell(told)
    assert listener.messages == ["[INGEST FAILURE] march: too_many_invalid_rows"]


async def test_a_webhook_that_hangs_holds_nothing_up(
    told: Context, put: Put, listener: Listener, query: Any, eventually: Any
) -> None:
    listener.go_on.clear()
    await put(POOR)
    slow = WorkerOptions(poll=timedelta(seconds=0.05))
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(told, slow).run(stop))
    await eventually(lambda: listener.bodies)
    good = await put(meta_file())
    await eventually(
        lambda: query("SELECT 1 FROM data_uploads WHERE id = %s AND status = 'completed'", (good,))
    )
    assert listener.heard == []
    listener.go_on.set()
    stop.set()
    await running


async def test_an_address_that_took_an_alert_is_not_told_again_because_of_another(
    ctx: Context, put: Put, clock: Any, listener: Listener
) -> None:
    with listening() as broken:
        broken.answer = 503
        both = replace(ctx, consumers=ctx.consumers | alerting(Alerts([listener.url, broken.url]), ctx.db))
        await _run(both, await put(POOR, source_batch_id="march"))
        broken.answer = 200
        clock.forward(seconds=6)
        # By another worker, that knows only what the database does.
        other = replace(ctx, consumers=ctx.consumers | alerting(Alerts([listener.url, broken.url]), ctx.db))
        await _tell(other)
        assert len(listener.messages) == len(broken.messages) == 1


async def test_an_address_that_is_none_keeps_no_alert_from_the_others(
    ctx: Context, put: Put, listener: Listener, query: Any
) -> None:
    both = replace(ctx, consumers=ctx.consumers | alerting(Alerts(["nonsense", listener.url]), ctx.db))
    await _run(both, await put(POOR, source_batch_id="march"))
    assert len(listener.messages) == 1
    assert query("SELECT last_error FROM weighbridge.event_deliveries WHERE delivered_at IS NULL") == [
        ("RetryLater: Address 1 of WEIGHBRIDGE_ALERT_URLS did not accept the alert.",)
    ]


async def test_a_service_without_an_address_logs_alerts(
    ctx: Context, put: Put, lines: Any, query: Any
) -> None:
    silent = replace(ctx, consumers=ctx.consumers | alerting(Alerts([]), ctx.db))
    await _run(silent, await put(POOR, source_batch_id="march"))
    [line] = lines("Alert")
    assert (line["level"], line["message"]) == ("ERROR", "[INGEST FAILURE] march: too_many_invalid_rows")
    assert query("SELECT count(*) FROM weighbridge.event_deliveries WHERE delivered_at IS NULL") == [(0,)]


async def test_a_command_without_an_address_leaves_alerts_to_the_service(
    ctx: Context, told: Context, put: Put, listener: Listener
) -> None:
    await _run(ctx, await put(POOR, source_batch_id="march"))
    assert listener.messages == []
    await _tell(told)
    assert listener.messages == ["[INGEST FAILURE] march: too_many_invalid_rows"]


async def test_many_alerts_to_a_webhook_that_hangs_hold_no_other_announcement_up(
    told: Context, put: Put, listener: Listener, query: Any, eventually: Any
) -> None:
    listener.go_on.clear()
    query("SELECT weighbridge.raise_alert('x', n::text, 'ERROR', 'm') FROM generate_series(1, 40) AS n")
    await put(meta_file())
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(told, WorkerOptions(poll=timedelta(seconds=0.05))).run(stop))
    await eventually(lambda: query("SELECT 1 FROM weighbridge.audit_log"), within=8)
    assert listener.heard == []
    listener.go_on.set()
    stop.set()
    await running


async def test_the_end_of_an_alert_is_never_told_before_its_beginning(
    told: Context, put: Put, listener: Listener, clock: Any
) -> None:
    listener.answer = 500
    failed = await _run(told, await put(POOR, source_batch_id="march"))
    listener.answer = 200
    await dismiss(told.db, failed, actor="test")
    await _tell(told)
    assert listener.messages == []
    clock.forward(seconds=6)
    await _tell(told)
    assert listener.messages == [
        "[INGEST FAILURE] march: too_many_invalid_rows", "[INGEST FAILURE DISMISSED] march",
    ]  # fmt: skip


def test_a_wrong_address_is_named_by_its_number_alone() -> None:
    secret = f"nonsense-{uuid4()}"
    with pytest.raises(ConfigError) as wrong:
        Alerts(["json://127.0.0.1:1/x", secret]).addresses  # noqa: B018
    assert "WEIGHBRIDGE_ALERT_URLS: address 2 is not supported by apprise." in str(wrong.value)
    assert secret not in str(wrong.value)
