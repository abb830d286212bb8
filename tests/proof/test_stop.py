"""SIGTERM: a worker finishes its batch, releases the upload and exits with 0; the next worker continues."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.engine.conftest import HEADER, meta_line
from tests.proof.scene import Stage, put
from tests.proof.workers import LONG_LEASE, SETTINGS, Fleet, until
from weighbridge.app import open_app
from weighbridge.settings import read

ROWS = 200
BATCH = {"WEIGHBRIDGE_BATCH_ROWS": "2", "WEIGHBRIDGE_STAGE_ROWS": "50", **LONG_LEASE}


@pytest.fixture
def stage(database_url: str, home: Path) -> Iterator[Stage]:
    """A database with one upload of many batches."""

    async def fill() -> None:
        async with open_app(read(home=home, DATABASE_URL=database_url)) as app:
            await put(app, uuid4(), "\n".join([HEADER, *(meta_line("2026-01-01", ad) for ad in range(ROWS))]))

    asyncio.run(fill())
    stage = Stage(database_url)
    yield stage
    stage.close()


@pytest.fixture
def fleet(home: Path, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(home, tmp_path)
    yield fleet
    fleet.kill()


WAITING = (
    "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'weighbridge%'"
    " AND wait_event_type = 'Lock')"
)


@contextmanager
def _transaction(stage: Stage, statement: str, params: Any = None) -> Iterator[None]:
    """Something that stands in the worker's way and is gone in the end."""
    with psycopg.connect(stage.url, application_name="test") as connection:
        connection.execute(statement, params)  # type: ignore[call-overload]
        yield
        connection.rollback()


def _upload(stage: Stage, columns: str) -> tuple[Any, ...]:
    return stage.query(f"SELECT {columns} FROM data_uploads")[0]


def _released(stage: Stage, status: str) -> None:
    """In the queue again, as it was, with nothing held against it."""
    assert _upload(stage, "status, failures, crashes, error_code") == (status, 0, 0, None)
    assert stage.query("SELECT outcome, error FROM weighbridge.attempts WHERE queue = 'uploads'") == [
        ("released", None)
    ]
    assert stage.holds("SELECT run_after <= weighbridge.now() FROM data_uploads")
    until(lambda: stage.deserted)


def _ends_without_repeating(stage: Stage, fleet: Fleet) -> None:
    """The next worker leaves every row alone that the first one wrote."""
    written = stage.versions()
    fleet.start(stage.url, **BATCH)
    until(lambda: stage.ended)
    assert not set(written) - set(stage.versions())
    assert _upload(stage, "status, promoted_rows, promoted -> 'daily_metric' ->> 'inserted'") == (
        "completed",
        ROWS,
        str(ROWS),
    )
    assert stage.query("SELECT count(*) FROM daily_metrics") == [(ROWS,)]
    assert stage.query("SELECT count(*) FROM weighbridge.events WHERE type = 'IngestionCompleteEvent'") == [
        (1,)
    ]


# The fact in the middle of the promotion, as if another had just written it and not yet committed.
IN_THE_MIDDLE = """
INSERT INTO daily_metrics (workspace_id, platform, metric_date, campaign_id, ad_set_id, ad_id, upload_id, line,
                           created_at, updated_at)
SELECT w::uuid, 'meta', '2026-01-01', campaign_id, ad_set_id, ad_id, gen_random_uuid(), 1, now(), now()
FROM (SELECT workspace_id::text AS w FROM data_uploads) AS one, generate_series(0, %s - 1) AS ad,
     LATERAL (SELECT
         weighbridge.entity_id('campaign', w, '', 'meta', '1202000000000' || lpad((ad / 4)::text, 4, '0') || '1'),
         weighbridge.entity_id('ad_set', w, '', 'meta', '1202100000000' || lpad((ad / 2)::text, 4, '0') || '1'),
         weighbridge.entity_id('ad', w, '', 'meta', '1202200000000' || lpad(ad::text, 4, '0') || '1')
             ) AS ids (campaign_id, ad_set_id, ad_id)
ORDER BY campaign_id, ad_set_id, ad_id OFFSET %s LIMIT 1
"""
# The same for the first staged ad set.
FIRST_AD_SET = """
INSERT INTO staging.ads_ad_set (upload_id, workspace_id, seq, row_index, line, id, natural_key_hash, external_id)
SELECT id, workspace_id, 1, 0, 2, gen_random_uuid(), '', '' FROM data_uploads
"""


def test_a_worker_stopped_during_promotion_finishes_its_batch_and_releases_the_upload(
    stage: Stage, fleet: Fleet
) -> None:
    with _transaction(stage, IN_THE_MIDDLE, (ROWS, ROWS // 2)):
        worker = fleet.start(stage.url, **BATCH)
        until(lambda: stage.holds(WAITING))
        [before] = _upload(stage, "watermark_seq")
        worker.terminate()
    assert worker.wait(within=5) == 0
    _released(stage, "staging_complete")
    [after] = _upload(stage, "watermark_seq")
    assert 0 < after == before + 2 < ROWS  # the batch under way, and no other
    assert stage.query("SELECT count(*) FROM daily_metrics") == [(after,)]
    assert "Job released" in worker.said
    _ends_without_repeating(stage, fleet)


def test_a_worker_stopped_during_staging_releases_the_upload_with_its_staged_rows(
    stage: Stage, fleet: Fleet
) -> None:
    with _transaction(stage, FIRST_AD_SET):
        worker = fleet.start(stage.url, **BATCH)
        until(lambda: stage.holds(WAITING))
        worker.terminate()
    assert worker.wait(within=5) == 0
    _released(stage, "pending")
    assert _upload(stage, "staged") == ({"campaign": ROWS // 4, "ad_set": ROWS // 2},)
    staged = "SELECT seq, xmin::text FROM staging.ads_ad_set ORDER BY 1"
    before = stage.query(staged)
    _ends_without_repeating(stage, fleet)
    assert stage.query(staged) == before


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_stops_at_once(stage: Stage, home: Path, sent: signal.Signals) -> None:
    """Started as people start it."""
    environment = {**os.environ, **SETTINGS, "DATABASE_URL": stage.url, "WEIGHBRIDGE_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-m", "weighbridge", "worker"], env=environment, stderr=subprocess.PIPE, text=True
    ) as worker:
        until(lambda: stage.ended)
        worker.send_signal(sent)
        _, said = worker.communicate(timeout=10)
    assert worker.returncode == 0
    assert "Traceback" not in said
    assert stage.holds("NOT EXISTS (SELECT FROM weighbridge.attempts WHERE closed_at IS NULL)")
    assert _upload(stage, "status, promoted_rows") == ("completed", ROWS)
