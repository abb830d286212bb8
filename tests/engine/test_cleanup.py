"""CleanupWorker: deletes staged rows after seven days, and never production rows."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Put, Run, meta_file, meta_line
from tests.engine.steps import parse_by_hand
from weighbridge.delivery.context import Context
from weighbridge.engine import recover
from weighbridge.uploads import queue
from weighbridge.uploads.retention import SCRATCH_SECONDS, clean, sweep

STAGED = "SELECT count(*) FROM staging_rows"
LANDED = "SELECT (SELECT count(*) FROM campaigns), (SELECT count(*) FROM daily_metrics)"


async def test_staged_rows_are_deleted_after_seven_days_and_production_rows_are_kept(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    await run(await put(meta_file(days=3, ads=4)))
    clock.forward(days=6, hours=23)
    assert await clean(ctx) == 0
    assert query(STAGED) == [(19,)]
    clock.forward(hours=2)
    assert await clean(ctx) > 0
    assert query(STAGED) == [(0,)]
    assert query("SELECT count(*) FROM staging_id_resolution") == [(0,)]
    assert query(LANDED) == [(1, 12)]


async def test_staged_rows_of_an_unfinished_upload_are_kept(
    ctx: Context, put: Put, query: Any, clock: Any
) -> None:
    await put(meta_file())
    await parse_by_hand(ctx)
    clock.forward(days=8)
    assert await clean(ctx) == 0
    assert query(STAGED) == [(19,)]


async def test_a_second_cleanup_changes_nothing(ctx: Context, put: Put, run: Run, clock: Any) -> None:
    await run(await put(meta_file()))
    clock.forward(days=8)
    assert await clean(ctx) > 0
    assert await clean(ctx) == 0


async def test_an_upload_that_was_reopened_during_cleanup_keeps_its_staged_rows(
    ctx: Context, put: Put, query: Any, clock: Any
) -> None:
    from weighbridge.uploads import staging

    upload_id = await put(meta_file())
    attempt = await parse_by_hand(ctx)
    query("SELECT weighbridge.fail_upload(%s, 'code', 'text')", (attempt.lease.token,))
    clock.forward(days=8)
    async with ctx.db.tx() as tx:
        assert await staging.expired(tx, 7, list(ctx.pipelines.values())) == [upload_id]
    query("SELECT weighbridge.retry_upload(%s, false, 'test')", (upload_id,))
    async with ctx.db.tx("weighbridge_clean") as tx:
        assert not await staging.expire(tx, upload_id, 7)


async def test_cleanup_keeps_staged_rows_of_unknown_pipelines(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    await run(await put(meta_file()))
    clock.forward(days=8)
    object.__setattr__(ctx, "pipelines", {})
    assert await clean(ctx) == 0
    assert query(STAGED) == [(19,)]


async def test_staged_rows_of_a_failed_parse_are_deleted_too(
    ctx: Context, put: Put, query: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    await put(meta_file())
    object.__setattr__(ctx, "limits", replace(ctx.limits, stage_rows=1))
    monkeypatch.setattr(queue, "finish_staging", killed)
    with pytest.raises(RuntimeError):
        await parse_by_hand(ctx)
    clock.forward(minutes=2)
    async with ctx.db.tx() as tx:
        await recover.recover(tx, max_crashes=1)
    assert query("SELECT status, staged_at FROM data_uploads") == [("failed", None)]
    assert query(STAGED) == [(19,)]
    clock.forward(days=8)
    assert await clean(ctx) > 0
    assert query(STAGED) == [(0,)]


async def test_staged_rows_of_an_upload_that_failed_again_before_staging_are_deleted_too(
    ctx: Context, put: Put, run: Run, query: Any, clock: Any
) -> None:
    bad = tuple(meta_line("2026-01-09", ad, impressions="x") for ad in range(20))
    upload_id = await put(meta_file(extra=bad))
    assert (await run(upload_id)).error_code == "too_many_invalid_rows"
    query("SELECT weighbridge.retry_upload(%s, false, 'test')", (upload_id,))
    [(url,)] = query("SELECT file_url FROM data_uploads")
    Path(url.removeprefix("file://")).unlink()
    assert (await run(upload_id)).error_code == "file_not_found"
    clock.forward(days=8)
    assert await clean(ctx) > 0
    assert query("SELECT count(*) FROM staging.ads_daily_metric") == [(0,)]


def test_scratch_files_of_killed_processes_are_deleted_after_a_day(tmp_path: Path) -> None:
    (tmp_path / "parse-old").mkdir()
    (tmp_path / "parse-old" / "rows.arrow").write_bytes(b"x")
    for name in ("intake-old", "intake-new"):
        (tmp_path / name).write_bytes(b"x")
    long_ago = time.time() - SCRATCH_SECONDS - 60
    for name in ("parse-old", "intake-old"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    assert sweep(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["intake-new"]
