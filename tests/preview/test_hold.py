"""A preview stops when it is staged, and continues only after a user's decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Clock
from tests.engine.conftest import HEADER, meta_file, meta_line
from tests.engine.steps import parse_by_hand, reload
from tests.preview.conftest import Look, Query, Send
from weighbridge.delivery.context import Context
from weighbridge.engine import recover
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes
from weighbridge.uploads import preview, queue
from weighbridge.uploads.operator_retry import reopen
from weighbridge.uploads.retention import clean
from weighbridge.uploads.run_attempt import work
from weighbridge.worker import Worker


async def test_a_preview_stops_when_it_is_staged_and_writes_nothing(
    ctx: Context, load: Send, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    assert (held.status, held.preview, held.on_hold) == (Status.STAGING_COMPLETE, True, True)
    assert query("SELECT count(*) FROM daily_metrics") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.events") == [(0,)]
    seen = await preview.preview(ctx, held)
    assert seen.changes["daily_metric"] == Changes(inserted=12)


async def test_a_promoted_preview_continues_like_any_upload(
    ctx: Context, load: Send, finish: Look, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    await preview.promote_on_hold(ctx, held, actor="test")
    ended = await finish(held.id)
    assert (ended.status, ended.promoted_rows, ended.preview) == (Status.COMPLETED, 12, False)
    assert query("SELECT type FROM weighbridge.events") == [("IngestionCompleteEvent",)]
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'upload.promote'") == [("test",)]


async def test_a_preview_on_hold_is_not_claimed(ctx: Context, load: Send, look: Look, clock: Clock) -> None:
    held = await load(meta_file(), preview=True)
    clock.forward(days=1)
    assert not await Worker(ctx, WorkerOptions()).run_once()
    assert await look(held.id) == held


async def test_the_database_lets_no_preview_be_promoted(load: Send, query: Query) -> None:
    held = await load(meta_file(), preview=True)
    with pytest.raises(psycopg.errors.CheckViolation, match="preview_is_not_promoted"):
        query("UPDATE data_uploads SET status = 'promoting' WHERE id = %s", (held.id,))
    query("UPDATE data_uploads SET run_after = now() WHERE id = %s", (held.id,))
    assert query("SELECT run_after::text FROM data_uploads WHERE id = %s", (held.id,)) == [("infinity",)]


async def test_a_worker_that_only_parses_puts_a_preview_on_hold_too(
    ctx: Context, send: Send, look: Look, query: Query
) -> None:
    sent = await send(meta_file(), preview=True)
    assert await Worker(ctx, WorkerOptions(promotes=False)).run_once()
    assert (await look(sent.id)).on_hold


async def test_only_one_of_many_concurrent_decisions_succeeds(ctx: Context, load: Send, finish: Look) -> None:
    for number in range(4):
        held = await load(meta_file(days=1 + number), preview=True, force=True)
        said = await asyncio.gather(
            *(preview.promote_on_hold(ctx, held, actor="test") for _ in range(3)),
            *(preview.discard(ctx, held, actor="test") for _ in range(3)),
            return_exceptions=True,
        )
        refused = [each for each in said if isinstance(each, RequestRefused)]
        assert sum(each is None for each in said) == 1, said
        assert {(each.status, each.code) for each in refused} == {(409, "not_held")}
        assert len(refused) == 5
        ended = await finish(held.id)
        assert (ended.status, ended.error_code) in (
            (Status.COMPLETED, None),
            (Status.FAILED, "discarded"),
        )


async def test_a_preview_that_is_still_being_parsed_cannot_be_discarded(
    ctx: Context, send: Send, look: Look
) -> None:
    sent = await send(meta_file(), preview=True)
    for step in ("pending", "staging_complete"):
        for verb in (preview.discard, preview.promote_on_hold):
            with pytest.raises(RequestRefused, match="this upload is still being read"):
                await verb(ctx, sent, actor="test")
        assert (await look(sent.id)).status == step
        if step == "pending":
            attempt = await parse_by_hand(ctx)  # and has not said yet that it is done
    await work(attempt, ctx, promotes=True)


async def test_a_discarded_preview_is_deleted_and_does_not_count_as_a_failure(
    ctx: Context, load: Send, look: Look, query: Query
) -> None:
    held = await load(meta_file(), preview=True, source_batch_id="january")
    assert query("SELECT count(*) FROM staging.ads_daily_metric") == [(12,)]
    await preview.discard(ctx, held, actor="test")
    ended = await look(held.id)
    assert (ended.status, ended.error_code, ended.on_hold) == (Status.FAILED, "discarded", False)
    assert ended.error_text == "Discarded at the preview. Nothing was written to production."
    for table in ("staging.ads_daily_metric", "staging.ads_ad", "staging_id_resolution", "daily_metrics"):
        assert query(f"SELECT count(*) FROM {table}") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.alerts") == [(0,)]
    assert query("SELECT dead_letters, backlog FROM weighbridge.watch_queues(5, 5)") == [(0, 0)]
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'upload.discard'") == [("test",)]
    again = await load(meta_file(), source_batch_id="january")
    assert (again.id != held.id, again.status) == (True, Status.COMPLETED)


async def test_a_discarded_preview_can_be_reopened_and_is_then_no_preview(
    ctx: Context, load: Send, look: Look, finish: Look
) -> None:
    held = await load(meta_file(), preview=True)
    await preview.discard(ctx, held, actor="test")
    await reopen(ctx.db, await look(held.id), force_partial=False, actor="test")
    ended = await finish(held.id)
    assert (ended.status, ended.preview) == (Status.COMPLETED, False)


async def test_a_failed_preview_is_a_preview_again_when_it_is_reopened(
    ctx: Context, load: Send, look: Look, finish: Look
) -> None:
    poor = meta_file(days=1, ads=2, extra=(meta_line("2026-01-01", 7, impressions="many"),))
    failed = await load(poor, preview=True)
    assert (failed.status, failed.error_code) == (Status.FAILED, "too_many_invalid_rows")
    await reopen(ctx.db, failed, force_partial=True, actor="test")
    held = await finish(failed.id)
    assert (held.on_hold, (await preview.preview(ctx, held)).rejected) == (True, 1)


async def test_a_preview_is_on_hold_after_its_worker_crashed_between_parsing_and_holding(
    ctx: Context, send: Send, look: Look, query: Query, clock: Clock
) -> None:
    sent = await send(meta_file(), preview=True)
    await parse_by_hand(ctx)
    assert not (await look(sent.id)).on_hold
    clock.forward(seconds=61)
    async with ctx.db.tx() as tx:
        (taken,) = await recover.recover(tx, 5)
    assert (taken.subject, taken.gave_up) == (sent.id, False)
    held = await look(sent.id)
    assert (held.on_hold, held.crashes) == (True, 0)
    assert query("SELECT count(*) FROM weighbridge.alerts") == [(0,)]
    await preview.promote_on_hold(ctx, held, actor="test")


async def test_the_takeover_of_a_preview_is_over_when_it_is_held(
    ctx: Context, send: Send, finish: Look, query: Query, clock: Clock
) -> None:
    sent = await send(meta_file(), preview=True)
    async with ctx.db.tx() as tx:
        await queue.claim(
            tx,
            queue.ClaimRequest("gone", (Status.PENDING,), ("ads",), timedelta(seconds=60), per_workspace=3),
        )
    clock.forward(seconds=61)
    assert (await finish(sent.id)).on_hold
    assert query("SELECT condition FROM weighbridge.alerts WHERE closed_at IS NOT NULL") == [
        ("stale_takeover",)
    ]
    assert query("SELECT count(*) FROM weighbridge.alerts WHERE closed_at IS NULL") == [(0,)]


async def test_a_preview_is_on_hold_after_its_worker_stopped_between_parsing_and_holding(
    ctx: Context, send: Send, look: Look
) -> None:
    sent = await send(meta_file(), preview=True)
    attempt = await parse_by_hand(ctx)
    async with ctx.db.tx() as tx:
        await queue.release(tx, attempt.lease, queue.Release())
    assert (await look(sent.id)).on_hold
    assert not await Worker(ctx, WorkerOptions()).run_once()


async def test_a_promotion_while_a_preview_is_being_put_on_hold_is_not_lost(
    ctx: Context, send: Send, finish: Look, query: Query
) -> None:
    """The attempt that read it knows it as a preview; by the time it says that it is held, it is none."""
    sent = await send(meta_file(), preview=True)
    attempt = await parse_by_hand(ctx)
    query("UPDATE data_uploads SET preview = false WHERE id = %s", (sent.id,))
    async with ctx.db.tx() as tx:
        await queue.hold(tx, (await reload(ctx, attempt)).lease)
    assert (await finish(sent.id)).status == Status.COMPLETED


async def test_a_preview_without_a_decision_is_discarded_automatically(
    ctx: Context, load: Send, look: Look, finish: Look, clock: Clock, query: Query
) -> None:
    held = await load(meta_file(), preview=True, source_batch_id="january")
    clock.forward(days=ctx.limits.staging_days - 1)
    assert await clean(ctx) == 0
    clock.forward(days=2)
    assert await clean(ctx) > 12
    ended = await look(held.id)
    assert (ended.status, ended.error_code) == (Status.FAILED, "preview_expired")
    assert query("SELECT count(*) FROM staging.ads_daily_metric") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.alerts") == [(0,)]
    await reopen(ctx.db, ended, force_partial=False, actor="test")
    assert (await finish(held.id)).on_hold


@pytest.mark.parametrize("table", ["staging.ads_daily_metric", "staging.ads_campaign"])
async def test_rows_that_a_crash_deleted_are_parsed_again(
    ctx: Context, load: Send, finish: Look, query: Query, table: str
) -> None:
    held = await load(meta_file(), preview=True)
    query(f"DELETE FROM {table}")  # what a crash of the server does to an unlogged table
    with pytest.raises(RequestRefused, match="being read again"):
        await preview.preview(ctx, held)
    again = await finish(held.id)
    assert (again.id, again.on_hold) == (held.id, True)
    assert (await preview.preview(ctx, again)).changes["daily_metric"] == Changes(inserted=12)


async def test_a_day_that_was_as_in_production_and_is_not_any_more_is_read_again(
    ctx: Context, load: Send, finish: Look, clock: Clock
) -> None:
    """It was not staged: its receipt said that nothing of it would change."""
    await load(meta_file(days=2))
    held = await load(meta_file(days=3), preview=True)
    assert (await preview.preview(ctx, held)).changes["daily_metric"] == Changes(inserted=4, unchanged=8)
    await load("\n".join([HEADER, meta_line("2026-01-01", 0, impressions=7)]).encode())
    clock.forward(preview.HOLDS)
    with pytest.raises(RequestRefused, match="being read again"):
        await preview.preview(ctx, held)
    again = await finish(held.id)
    assert (await preview.preview(ctx, again)).changes["daily_metric"] == Changes(4, 1, 7)
    await preview.promote_on_hold(ctx, again, actor="test")
    done = (await finish(held.id)).promoted["daily_metric"]
    assert (done["inserted"], done["updated"], done["unchanged"]) == (4, 1, 7)


async def test_counts_are_kept_with_their_time_until_something_is_promoted(
    ctx: Context, load: Send, clock: Clock
) -> None:
    held = await load(meta_file(days=1), preview=True)
    first = await preview.preview(ctx, held)
    clock.forward(minutes=5)
    assert (await preview.preview(ctx, held)).as_of == first.as_of
    assert (await preview.preview(ctx, held, fresh=True)).as_of > first.as_of
    await load(meta_file(days=2))
    clock.forward(preview.HOLDS)
    now = await preview.preview(ctx, held)
    assert (first.changes["daily_metric"], now.changes["daily_metric"]) == (
        Changes(inserted=4),
        Changes(unchanged=4),
    )


async def test_while_others_are_promoted_rows_are_compared_once_in_a_while(
    ctx: Context, load: Send, clock: Clock, query: Query
) -> None:
    held = await load(meta_file(days=1), preview=True)
    await load(meta_file(days=2))
    query("ALTER TABLE data_uploads DISABLE TRIGGER USER")
    query("UPDATE data_uploads SET status = 'promoting', finished_at = NULL WHERE id <> %s", (held.id,))
    first = await preview.preview(ctx, held)
    clock.forward(seconds=9)
    for fresh in (False, True):
        assert (await preview.preview(ctx, held, fresh=fresh, operates=False)).as_of == first.as_of
    clock.forward(seconds=1)
    second = await preview.preview(ctx, held, operates=False)
    assert second.as_of > first.as_of
    assert (await preview.preview(ctx, held)).as_of == second.as_of
    assert (await preview.preview(ctx, held, fresh=True)).as_of > second.as_of  # who operates may insist


async def test_a_read_only_key_cannot_cause_a_file_to_be_parsed_again(
    ctx: Context, load: Send, look: Look, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    query("DELETE FROM staging.ads_daily_metric")
    with pytest.raises(RequestRefused, match="a key with the scope operate") as refusal:
        await preview.preview(ctx, held, operates=False)
    assert (refusal.value.status, refusal.value.code) == (409, "read_again")
    assert (await look(held.id)).on_hold


async def test_a_preview_on_hold_does_not_prevent_the_deletion_of_a_dimension_row(
    ctx: Context, load: Send, finish: Look, query: Query
) -> None:
    await load(meta_file(days=1))
    query("DELETE FROM daily_metrics")
    held = await load(meta_file(days=1, ads=3), preview=True)
    query("DELETE FROM ads")
    await preview.promote_on_hold(ctx, held, actor="test")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        query("DELETE FROM campaigns")
    assert (await finish(held.id)).promoted["ad"]["inserted"] == 3


async def test_content_of_a_preview_on_hold_is_a_duplicate_with_that_reason(
    ctx: Context, load: Send, workspace: UUID, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    again = await load(meta_file())  # does not wait for ever either
    assert (again.id, again.on_hold) == (held.id, True)
    assert query("SELECT reason FROM weighbridge.known_upload(%s, 'ads', NULL, 'meta', NULL, %s, NULL, false)",
                 (workspace, held.content_sha256)) == [("duplicate_preview",)]  # fmt: skip
