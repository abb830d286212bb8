"""The point where each state resumes, and the required share of valid rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.conftest import HEADER, Put, Run, meta_file, meta_line
from tests.engine.steps import Query, claim, parse_by_hand, trouble
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.uploads.run_attempt import work

Eventually = Callable[..., Awaitable[Any]]


# The transaction that wrote each fact last: another id means that the fact was written again.
VERSIONS = "SELECT metric_date, ad_id, xmin::text FROM daily_metrics ORDER BY 1, 2"


async def promote_two_batches_of_three(ctx: Context, query: Query) -> None:
    """Parse the waiting upload, and lose the connection in the last batch of its twelve facts."""
    small = replace(ctx, limits=replace(ctx.limits, batch_rows=4))
    attempt = await parse_by_hand(small)
    trouble(
        query,
        "IF currval('public.troubles') = 3 THEN RAISE EXCEPTION 'stop' USING ERRCODE = '57P01'; END IF;",
    )
    await work(attempt, small, promotes=True)


# Restarts -----------------------------------------------------------------------------------------------------


async def test_a_pending_upload_starts_from_the_beginning(put: Put, run: Run) -> None:
    assert (await run(await put(meta_file()))).status == Status.COMPLETED


async def test_an_interrupted_parse_stages_only_the_remaining_rows(
    ctx: Context, put: Put, run: Run, query: Query, clock: Any
) -> None:
    upload_id = await put(meta_file(days=3, ads=4))
    query(
        "CREATE FUNCTION public.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'stop' USING ERRCODE = '57P01'; END $$;"
        "CREATE TRIGGER stop BEFORE INSERT ON staging.ads_ad EXECUTE FUNCTION public.stop()"
    )
    by_three = replace(ctx, limits=replace(ctx.limits, stage_rows=3))  # rows of a chunk, which is one commit
    await work(await claim(ctx), by_three, promotes=True)
    [(staged, before)] = query(
        "SELECT staged, (SELECT min(xmin::text) FROM staging.ads_campaign) FROM data_uploads"
    )
    assert staged == {"campaign": 1, "ad_set": 2}
    query("DROP TRIGGER stop ON staging.ads_ad")
    clock.forward(seconds=5)
    assert (await run(upload_id)).status == Status.COMPLETED
    assert query("SELECT min(xmin::text) FROM staging.ads_campaign") == [(before,)]


async def test_a_staged_upload_continues_with_promotion(
    ctx: Context, put: Put, run: Run, query: Query, clock: Any
) -> None:
    upload_id = await put(meta_file())
    await parse_by_hand(ctx)
    clock.forward(minutes=2)
    upload = await run(upload_id)
    assert (upload.status, upload.crashes) == (Status.COMPLETED, 1)


async def test_an_interrupted_promotion_repeats_nothing(
    ctx: Context, put: Put, run: Run, query: Query, clock: Any
) -> None:
    upload_id = await put(meta_file(days=3, ads=4))
    await promote_two_batches_of_three(ctx, query)
    assert query("SELECT status, watermark_entity, watermark_seq, promoted_rows FROM data_uploads") == [
        ("staging_complete", "daily_metric", 8, 8)
    ]
    before = query(VERSIONS)
    assert len(before) == 8
    clock.forward(seconds=5)
    upload = await run(upload_id)
    assert (upload.status, upload.promoted["daily_metric"]["inserted"]) == (Status.COMPLETED, 12)
    assert query(VERSIONS)[:8] == before


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.PARTIAL, Status.FAILED])
async def test_an_ended_upload_is_not_resumed(ctx: Context, put: Put, query: Query, status: Status) -> None:
    upload_id = await put(meta_file())
    query("ALTER TABLE data_uploads DISABLE TRIGGER guard_status")
    query("UPDATE data_uploads SET status = %s WHERE id = %s", (status, upload_id))
    with pytest.raises(AssertionError):
        await claim(ctx)


async def test_lost_staged_rows_are_read_again_from_the_file(
    ctx: Context, put: Put, run: Run, query: Query
) -> None:
    """As after a crash of Postgres, which empties unlogged tables."""
    upload_id = await put(meta_file())
    attempt = await parse_by_hand(ctx)
    query("TRUNCATE staging.ads_campaign, staging.ads_ad_set, staging.ads_ad, staging.ads_daily_metric")
    await work(attempt, ctx, promotes=True)
    assert query("SELECT status FROM data_uploads") == [("pending",)]
    assert (await run(upload_id)).status == Status.COMPLETED
    assert query("SELECT count(*) FROM daily_metrics") == [(12,)]


# The threshold of valid rows --------------------------------------------------------------------------------


def _file_with(valid: int, invalid: int) -> bytes:
    good = [meta_line("2026-01-01", ad) for ad in range(valid)]
    bad = [meta_line("2026-01-02", ad, impressions="x") for ad in range(invalid)]
    return "\n".join([HEADER, *good, *bad]).encode()


async def test_ninety_percent_valid_rows_are_enough(put: Put, run: Run) -> None:
    upload = await run(await put(_file_with(9, 1)))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.COMPLETED, 9, 1)


async def test_fewer_than_ninety_percent_fail_the_upload_and_write_nothing(
    put: Put, run: Run, query: Query
) -> None:
    upload = await run(await put(_file_with(8, 1)))
    assert (upload.status, upload.error_code) == (Status.FAILED, "too_many_invalid_rows")
    assert "88.9% of 9 rows" in str(upload.error_text)
    assert query("SELECT count(*) FROM daily_metrics") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.events WHERE type = 'IngestionCompleteEvent'") == [(0,)]


async def test_force_partial_loads_the_valid_rows(put: Put, run: Run) -> None:
    upload = await run(await put(_file_with(2, 3), force_partial=True))
    assert (upload.status, upload.promoted_rows, upload.failed_rows) == (Status.PARTIAL, 2, 3)


async def test_a_file_without_one_valid_row_fails_even_when_forced(put: Put, run: Run) -> None:
    upload = await run(await put(_file_with(0, 3), force_partial=True))
    assert (upload.status, upload.error_code) == (Status.FAILED, "no_valid_rows")


async def test_a_header_without_rows_fails(put: Put, run: Run) -> None:
    upload = await run(await put(f"{HEADER}\n".encode()))
    assert (upload.status, upload.error_code) == (Status.FAILED, "no_data")


async def test_staging_lost_in_the_middle_of_a_promotion_repeats_nothing(
    ctx: Context, put: Put, run: Run, query: Query, clock: Any
) -> None:
    upload_id = await put(meta_file(days=3, ads=4))
    await promote_two_batches_of_three(ctx, query)
    before = query(VERSIONS)
    query("TRUNCATE staging.ads_campaign, staging.ads_ad_set, staging.ads_ad, staging.ads_daily_metric")
    clock.forward(seconds=5)
    upload = await run(upload_id)
    assert (upload.status, upload.promoted["daily_metric"]["inserted"]) == (Status.COMPLETED, 12)
    assert query(VERSIONS)[:8] == before


async def test_a_promotion_restarts_if_other_rows_are_staged_than_before(
    ctx: Context, put: Put, run: Run, query: Query, clock: Any
) -> None:
    upload_id = await put(meta_file(days=3, ads=4))
    attempt = await parse_by_hand(ctx)
    query(
        "UPDATE data_uploads SET staged_digest = 'other', watermark_entity = 'daily_metric', watermark_seq = 12"
    )
    query("TRUNCATE staging.ads_campaign, staging.ads_ad_set, staging.ads_ad, staging.ads_daily_metric")
    await work(attempt, ctx, promotes=True)
    upload = await run(upload_id)
    assert (upload.status, upload.promoted["daily_metric"]["inserted"]) == (Status.COMPLETED, 12)
