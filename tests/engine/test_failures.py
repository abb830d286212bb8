"""Every failure and retry of the specification's tables is caused here. Restarts are in test_resume.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.engine.conftest import HEADER, Put, Run, meta_file, meta_line
from tests.engine.steps import Query, claim, parse_by_hand, trouble
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import RetryLater
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import upsert_sql
from weighbridge.uploads.promote import promote
from weighbridge.uploads.run_attempt import work
from weighbridge.worker import Worker

Eventually = Callable[..., Awaitable[Any]]


def tries(query: Query) -> int:
    return int(query("SELECT last_value FROM public.troubles")[0][0])


# Failures -----------------------------------------------------------------------------------------------------


async def test_file_not_found_fails_the_upload(ctx: Context, put: Put, run: Run, query: Query) -> None:
    upload_id = await put(meta_file())
    [(url,)] = query("SELECT file_url FROM data_uploads")
    (await ctx.blobs.fetch(url, Path("."))).unlink()
    upload = await run(upload_id)
    assert (upload.status, upload.error_code) == (Status.FAILED, "file_not_found")
    assert upload.error_text == "The stored file is missing. Upload it again."


async def test_a_file_that_changed_in_the_store_fails_the_upload(
    ctx: Context, put: Put, run: Run, query: Query
) -> None:
    upload_id = await put(meta_file())
    [(url,)] = query("SELECT file_url FROM data_uploads")
    path = await ctx.blobs.fetch(url, Path("."))
    path.chmod(0o600)
    path.write_bytes(meta_file(days=1))
    upload = await run(upload_id)
    assert (upload.status, upload.error_code) == (Status.FAILED, "file_changed")


async def test_a_malformed_file_fails_the_upload(put: Put, run: Run, query: Query) -> None:
    upload = await run(await put(meta_file() + b"x" * 2_000_000 + b"\n"))
    assert (upload.status, upload.error_code) == (Status.FAILED, "malformed_file")
    assert "Line 14 is longer" in str(upload.error_text)
    assert query("SELECT count(*) FROM daily_metrics") == [(0,)]


async def test_a_row_that_cannot_be_parsed_is_skipped(put: Put, run: Run, query: Query) -> None:
    upload = await run(await put(meta_file(days=3, ads=4, extra=("2026-01-05,too,few",))))
    assert upload.status == Status.COMPLETED
    assert (upload.bins.accepted, upload.bins.rejected, upload.failed_rows) == (12, 1, 1)
    assert query("SELECT line, stage, code FROM upload_rejections") == [(14, "parse", "wrong_cell_count")]


async def test_an_invalid_row_is_marked_and_the_other_rows_continue(put: Put, run: Run, query: Query) -> None:
    upload = await run(await put(meta_file(extra=(meta_line("2026-01-05", 1, impressions=-3),))))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.COMPLETED, 12, 1)
    [(line, column, message)] = query("SELECT line, column_name, message FROM upload_rejections")
    assert (line, column) == (14, "Impressions")
    assert "-3" in message
    assert query("SELECT count(*) FROM staging_rows WHERE validation_status = 'invalid'") == [(1,)]


async def test_a_missing_parent_is_stored_as_null_with_a_warning(put: Put, run: Run, query: Query) -> None:
    query("ALTER TABLE campaigns ADD CONSTRAINT no_second CHECK (name <> 'Campaign 1')")
    upload = await run(await put(meta_file(days=2, ads=8)))
    assert (upload.status, upload.error_code) == (Status.PARTIAL, "rows_failed")
    assert query("SELECT count(*) FILTER (WHERE campaign_id IS NULL), count(*) FROM ad_sets") == [(2, 4)]
    assert query("SELECT count(*) FILTER (WHERE campaign_id IS NULL), count(*) FROM ads") == [(4, 8)]
    assert query("SELECT code, count(*) FROM upload_warnings GROUP BY 1 ORDER BY 1") == [
        ("campaign_check_violation", 1),
        ("campaign_id_not_found", 4),
    ]
    assert upload.warnings == 5


async def test_a_fact_whose_parent_was_rejected_is_not_counted_under_another_key(
    put: Put, run: Run, query: Query
) -> None:
    """With NULL in its key it would be another row, and count twice once the parent is fixed."""
    query("ALTER TABLE campaigns ADD CONSTRAINT only_one CHECK (name = 'A')")
    header = "Day,Campaign name,Campaign ID,Impressions"
    rows = [f"2026-01-01,{name},12020000000000000{n},{n + 1}" for n, name in enumerate("ABC")]
    upload = await run(await put("\n".join([header, *rows]).encode()))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.PARTIAL, 1, 2)
    assert query("SELECT line, code, raw[2] FROM upload_rejections ORDER BY line") == [
        (3, "parent_not_found", "B"),
        (4, "parent_not_found", "C"),
    ]
    query("ALTER TABLE campaigns DROP CONSTRAINT only_one")
    query("SELECT weighbridge.retry_upload(%s, false, 'test')", (upload.id,))
    upload = await run(upload.id)
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.COMPLETED, 3, 0)
    assert query("SELECT impressions FROM daily_metrics ORDER BY 1") == [(1,), (2,), (3,)]


async def test_a_fact_waits_for_a_parent_that_is_in_flight(put: Put, run: Run, query: Query) -> None:
    trouble(query, "RAISE EXCEPTION 'no parent' USING ERRCODE = '23503';", table="ad_sets", times=3)
    upload = await run(await put(meta_file()))
    assert (upload.status, tries(query)) == (Status.COMPLETED, 4)


async def test_a_parent_that_never_arrives_fails_only_its_own_rows(put: Put, run: Run, query: Query) -> None:
    trouble(query, "RAISE EXCEPTION 'no parent' USING ERRCODE = '23503';", table="ad_sets")
    upload = await run(await put(meta_file(days=1, ads=1)))
    assert (upload.status, upload.error_code) == (Status.FAILED, "nothing_promoted")
    assert query("SELECT code FROM upload_warnings ORDER BY 1") == [
        ("ad_set_id_not_found",),
        ("ad_set_parent_not_found",),
    ]


@pytest.mark.parametrize("sqlstate", ["54000", "P0001", "22003"])
async def test_only_the_row_that_the_database_refuses_is_skipped(
    put: Put, run: Run, query: Query, sqlstate: str
) -> None:
    query(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.impressions = 7 THEN"
        f" RAISE EXCEPTION 'secret 7.77' USING ERRCODE = '{sqlstate}'; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON daily_metrics FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )
    upload = await run(await put(meta_file(extra=(meta_line("2026-01-09", 0, impressions=7),))))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.PARTIAL, 12, 1)
    [(code, message)] = query("SELECT code, message FROM upload_rejections")
    assert code == "refused_by_database"
    assert "secret" not in message


@pytest.fixture
def work_through(ctx: Context, clock: Any, query: Query, eventually: Eventually) -> Any:
    """Work on one upload, moving the clock past each pause; the pauses it took, in seconds."""

    async def work_through(upload_id: UUID) -> list[float]:
        stop = asyncio.Event()
        options = WorkerOptions(poll=timedelta(seconds=0.02), lease=timedelta(hours=10))
        running = asyncio.create_task(Worker(ctx, options).run(stop))
        pauses: list[float] = []

        def parked_or_ended() -> Any:
            return query(
                "SELECT status, extract(epoch FROM run_after - weighbridge.now()) FROM data_uploads WHERE id = %s"
                " AND (status IN ('completed', 'partial', 'failed') OR run_after > weighbridge.now())",
                (upload_id,),
            )

        try:
            while True:
                [(status, pause)] = await eventually(parked_or_ended)
                if status in ("completed", "partial", "failed"):
                    return pauses
                pauses.append(float(pause))
                clock.forward(seconds=float(pause) + 0.001)
        finally:
            stop.set()
            await running

    return work_through


async def test_a_lost_connection_is_retried_three_times_and_the_upload_continues(
    put: Put, query: Query, work_through: Any
) -> None:
    trouble(query, "PERFORM pg_terminate_backend(pg_backend_pid());", times=3)
    pauses = await work_through(await put(meta_file()))
    assert [round(pause) for pause in pauses] == [1, 2, 4]
    assert query("SELECT status, row_count FROM data_uploads") == [("completed", 12)]


async def test_a_connection_lost_a_fourth_time_fails_the_upload(
    put: Put, query: Query, work_through: Any
) -> None:
    trouble(query, "PERFORM pg_terminate_backend(pg_backend_pid());")
    pauses = await work_through(await put(meta_file()))
    assert len(pauses) == 3
    assert query("SELECT status, error_code FROM data_uploads") == [("failed", "connection")]


async def test_progress_resets_the_retry_count(
    ctx: Context, put: Put, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed with the last retry, two batches written, then the connection is lost: that is the first failure."""
    upload_id = await put(meta_file())
    await parse_by_hand(ctx)
    query("UPDATE weighbridge.attempts SET closed_at = weighbridge.now(), outcome = 'released'")
    query("UPDATE data_uploads SET failures = 3")
    attempt = await claim(ctx)
    assert attempt.upload.failures == 3
    written, upsert = 0, upsert_sql.upsert

    async def lost(*args: Any, **options: Any) -> Any:
        nonlocal written
        written += 1
        if written > 2:
            raise RetryLater("connection", "The connection was lost.")
        return await upsert(*args, **options)

    monkeypatch.setattr(upsert_sql, "upsert", lost)
    await work(attempt, replace(ctx, limits=replace(ctx.limits, batch_rows=2)), promotes=True)
    assert query("SELECT status, failures FROM data_uploads WHERE id = %s", (upload_id,)) == [
        ("staging_complete", 1)
    ]


async def test_a_transaction_that_takes_too_long_is_retried_three_times(
    database_url: str, put: Put, query: Query, ctx: Context, work_through: Any
) -> None:
    query(f"ALTER DATABASE {database_url.split('/')[3].split('?')[0]} SET statement_timeout = '10s'")
    trouble(query, "SET LOCAL statement_timeout = '50ms'; PERFORM pg_sleep(30);", times=3)
    query("ALTER FUNCTION public.trouble() SET statement_timeout = '50ms'")
    quick = Database(database_url, statement_timeout_ms=300)
    await quick.open()
    try:
        object.__setattr__(ctx, "db", quick)
        pauses = await work_through(await put(meta_file()))
    finally:
        await quick.close()
    assert [round(pause) for pause in pauses] == [1, 2, 4]
    assert query("SELECT status, row_count FROM data_uploads") == [("completed", 12)]


async def test_a_write_that_row_level_security_denies_fails_the_upload(
    put: Put, run: Run, query: Query
) -> None:
    query("DROP POLICY workspace ON daily_metrics; CREATE POLICY nobody ON daily_metrics USING (false)")
    upload = await run(await put(meta_file()))
    assert (upload.status, upload.error_code) == (Status.FAILED, "permission_denied")


async def test_an_unexpected_unique_violation_skips_only_that_row(put: Put, run: Run, query: Query) -> None:
    query("CREATE UNIQUE INDEX unexpected ON daily_metrics (workspace_id, spend) WHERE spend = 7.77")
    odd = tuple(meta_line("2026-02-01", ad, spend="7.77") for ad in range(2))
    upload = await run(await put(meta_file(days=3, ads=4, extra=odd)))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.PARTIAL, 13, 1)
    [(line, stage, code, message, raw)] = query(
        "SELECT line, stage, code, message, raw FROM upload_rejections"
    )
    assert (stage, code) == ("promote", "unique_violation")
    assert line in (14, 15)
    assert "7.77" not in message
    assert raw == odd[line - 14].split(",")


async def test_a_failing_batch_is_split_until_only_the_bad_row_is_skipped(
    put: Put, run: Run, query: Query
) -> None:
    query("ALTER TABLE daily_metrics ADD CONSTRAINT no_13 CHECK (impressions <> 13)")
    content = [HEADER, *(meta_line("2026-01-01", ad, impressions=ad) for ad in range(200))]
    upload = await run(await put("\n".join(content).encode()))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.PARTIAL, 199, 1)
    assert query("SELECT line, code FROM upload_rejections") == [(15, "check_violation")]
    assert query("SELECT count(*) FROM daily_metrics") == [(199,)]


# Retries ------------------------------------------------------------------------------------------------------


async def test_a_deadlock_is_retried_three_times_within_the_batch(put: Put, run: Run, query: Query) -> None:
    trouble(query, "RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01';", times=3)
    upload = await run(await put(meta_file()))
    assert (upload.status, upload.failures) == (Status.COMPLETED, 0)
    assert tries(query) == 4


async def test_a_persistent_deadlock_fails_only_its_batch(ctx: Context, put: Put, query: Query) -> None:
    trouble(query, "RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01';", times=4)
    await put(meta_file(days=3, ads=4))
    small = replace(ctx, limits=replace(ctx.limits, batch_rows=4))
    await promote(await parse_by_hand(small), small)
    assert query("SELECT status, promoted_rows, failed_rows FROM data_uploads") == [("partial", 8, 4)]
    assert query("SELECT DISTINCT code, count(*) FROM upload_rejections GROUP BY 1") == [("deadlock", 4)]


class RateLimited:
    """A store that answers the first `times` requests with a rate limit."""

    def __init__(self, store: Any, times: int) -> None:
        self.store, self.times = store, times

    async def put(self, key: str, file: Path) -> str:
        return str(await self.store.put(key, file))

    async def fetch(self, file_url: str, scratch: Path) -> Path:
        self.times -= 1
        if self.times >= 0:
            raise RetryLater("rate_limit", "The store asks us to slow down.")
        return Path(await self.store.fetch(file_url, scratch))


@pytest.mark.parametrize(("times", "status"), [(5, "completed"), (6, "failed")])
async def test_a_rate_limit_is_retried_five_times_a_minute_apart(
    ctx: Context, put: Put, query: Query, work_through: Any, times: int, status: str
) -> None:
    upload_id = await put(meta_file())
    object.__setattr__(ctx, "blobs", RateLimited(ctx.blobs, times))
    pauses = await work_through(upload_id)
    assert [round(pause) for pause in pauses] == [60] * 5
    assert query("SELECT status FROM data_uploads") == [(status,)]
