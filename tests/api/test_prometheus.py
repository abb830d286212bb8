"""`/metrics`: every value for Prometheus is correct."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest

from tests.engine.conftest import meta_file, meta_line, run  # noqa: F401 (a fixture)
from tests.engine.steps import claim, parse_by_hand, trouble
from weighbridge.app import App
from weighbridge.model.states import Status
from weighbridge.postgres.queries import load
from weighbridge.service_figures import CONDITIONS
from weighbridge.uploads.run_attempt import work

from .conftest import MakeKey, Query
from .scraping import BEARER, BROKEN, TOKEN, Load, Scrape, app, load_file, scrape  # noqa: F401 (fixtures)

# Metrics from the database ----------------------------------------------------------------------------------


async def test_every_state_has_a_count_even_without_uploads(
    scrape: Scrape, load_file: Load, make_upload: Any
) -> None:
    empty = await scrape()
    assert {empty("weighbridge_uploads", state=state) for state in Status} == {0}
    assert (empty("weighbridge_backlog"), empty("weighbridge_backlog_age_seconds")) == (0, 0)
    await load_file(meta_file())
    await load_file(BROKEN)
    make_upload(status="partial", workspace_id=uuid4())
    for status in ("pending", "processing", "staging_complete", "promoting", "promoting"):
        make_upload(status=status, workspace_id=uuid4())
    seen = await scrape()
    assert {state.value: seen("weighbridge_uploads", state=state) for state in Status} == {
        "pending": 1, "processing": 1, "staging_complete": 1, "promoting": 2,
        "completed": 1, "partial": 1, "failed": 1,
    }  # fmt: skip
    assert seen("weighbridge_backlog") == 5


async def test_failures_are_dead_letters_until_they_are_dismissed_and_recent_for_a_day(
    scrape: Scrape, load_file: Load, query: Query, clock: Any
) -> None:
    failed = await load_file(BROKEN)
    seen = await scrape()
    assert (seen("weighbridge_dead_letters"), seen("weighbridge_failed_24h")) == (1, 1)
    assert {each: seen("weighbridge_alerts_open", condition=each) for each in CONDITIONS} == {
        "ingest_failure": 1, "stale_takeover": 0, "dead_letters": 0, "backlog": 0,
        "storage_queue": 0, "storage_left": 0, "circuit_open": 0, "credentials_refused": 0,
        "conversions_expiring": 0, "conversions_expired": 0, "conversions_unconfirmed": 0, "provider_unclassified": 0,
    }  # fmt: skip
    query("SELECT weighbridge.dismiss_upload(%s, 'test')", (failed.id,))
    seen = await scrape()
    assert (seen("weighbridge_dead_letters"), seen("weighbridge_failed_24h")) == (0, 1)
    assert seen("weighbridge_alerts_open", condition="ingest_failure") == 0
    clock.forward(hours=25)
    seen = await scrape()
    assert (seen("weighbridge_failed_24h"), seen("weighbridge_uploads", state="failed")) == (0, 1)


async def test_the_age_of_the_backlog_is_that_of_the_oldest_claimable_upload(
    app: App, scrape: Scrape, make_upload: Any, query: Query, clock: Any
) -> None:
    oldest = make_upload()
    clock.forward(seconds=500)
    parsed = make_upload(status="staging_complete")
    query("UPDATE data_uploads SET staged_at = weighbridge.now() WHERE id = %s", (parsed,))
    clock.forward(seconds=100)
    assert (await scrape())("weighbridge_backlog_age_seconds") == pytest.approx(600, abs=20)

    await claim(app.ctx)  # a worker has the oldest one, so it is not waiting
    assert query("SELECT status FROM data_uploads WHERE id = %s", (oldest,)) == [("processing",)]
    assert (await scrape())("weighbridge_backlog_age_seconds") == pytest.approx(100, abs=20)

    query("UPDATE data_uploads SET run_after = weighbridge.now() + interval '1 min' WHERE id = %s", (parsed,))
    seen = await scrape()  # and the other one is postponed
    assert (seen("weighbridge_backlog"), seen("weighbridge_backlog_age_seconds")) == (2, 0)
    clock.forward(seconds=90)
    assert (await scrape())("weighbridge_backlog_age_seconds") == pytest.approx(30, abs=20)


async def test_a_parsed_upload_that_its_worker_continues_is_not_waiting(
    app: App, client: httpx.AsyncClient, key: dict[str, str], scrape: Scrape, clock: Any
) -> None:
    files = {"file": ("meta.csv", meta_file())}
    await client.post("/api/uploads", headers=key, data={"platform": "meta"}, files=files)
    attempt = await parse_by_hand(app.ctx)
    assert attempt.upload.status == Status.STAGING_COMPLETE
    clock.forward(seconds=300)
    seen = await scrape()
    assert (seen("weighbridge_backlog"), seen("weighbridge_backlog_age_seconds")) == (1, 0)


async def test_live_attempts_are_counted_by_queue_and_uploads_without_a_worker_are_stale(
    app: App, scrape: Scrape, make_upload: Any, clock: Any
) -> None:
    make_upload()
    await claim(app.ctx)
    seen = await scrape()
    assert seen("weighbridge_attempts_live", queue="uploads") == 1
    assert seen("weighbridge_attempts_live", queue="outbox") == 0
    assert seen("weighbridge_stale_runs") == 0
    clock.forward(minutes=61)
    assert (await scrape())("weighbridge_stale_runs") == 1


async def test_an_event_waits_in_the_outbox_until_it_is_delivered(
    scrape: Scrape, load_file: Load, make_upload: Any, query: Query, clock: Any
) -> None:
    await load_file(meta_file())  # announced on the way
    seen = await scrape()
    assert (seen("weighbridge_outbox_waiting"), seen("weighbridge_outbox_age_seconds")) == (0, 0)
    query("UPDATE data_uploads SET status = 'failed' WHERE id = %s", (make_upload(),))  # raises an alert
    clock.forward(seconds=700)
    seen = await scrape()
    assert seen("weighbridge_outbox_waiting") == 1
    assert seen("weighbridge_outbox_age_seconds") == pytest.approx(700, abs=20)
    query("UPDATE weighbridge.event_deliveries SET gave_up_at = weighbridge.now()")  # an operator's now
    assert (await scrape())("weighbridge_outbox_waiting") == 0


async def test_the_age_of_the_oldest_transaction_excludes_the_scrape(
    scrape: Scrape, database_url: str
) -> None:
    assert (await scrape())("weighbridge_oldest_transaction_seconds") == 0
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT 1")
        first = (await scrape())("weighbridge_oldest_transaction_seconds")
        assert 0 < first < (await scrape())("weighbridge_oldest_transaction_seconds") < 60
        connection.rollback()
        assert (await scrape())("weighbridge_oldest_transaction_seconds") == 0


def test_metrics_are_read_from_indexes_however_many_uploads_there_are(
    database_url: str, workspace: UUID
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status, finished_at,"
            " file_url, bins) SELECT %s, 'manual', 'ads', sha256(n::text::bytea), 1, CASE WHEN n %% 50 = 0"
            " THEN 'failed' ELSE 'completed' END, now() - n * interval '1 min', repeat('a long address ', 6),"
            " jsonb_build_object('header', 1, 'accepted', n) FROM generate_series(1, 20000) AS n",
            (workspace,),
        )
        connection.execute(
            "INSERT INTO weighbridge.attempts (queue, subject, workspace_id, slot, worker, opened_at, progressed_at,"
            " lease_until, closed_at, outcome) SELECT 'uploads', id, workspace_id, 1, 'w', created_at, created_at,"
            " created_at, created_at, 'done' FROM data_uploads"
        )
        connection.execute(
            "WITH told AS (INSERT INTO weighbridge.events (workspace_id, upload_id, type, payload) SELECT"
            " workspace_id, id, 'IngestionCompleteEvent', '{}' FROM data_uploads RETURNING id, workspace_id)"
            " INSERT INTO weighbridge.event_deliveries (event_id, workspace_id, consumer, delivered_at)"
            " SELECT id, workspace_id, 'audit', now() FROM told"
        )
        connection.execute(
            "INSERT INTO weighbridge.alerts (condition, subject, severity, message, closed_at)"
            " SELECT 'ingest_failure', id::text, 'ERROR', '', now() FROM data_uploads"
        )
        connection.execute(
            "VACUUM ANALYZE data_uploads, weighbridge.attempts, weighbridge.events, weighbridge.event_deliveries,"
            " weighbridge.alerts"
        )
        question = load("weighbridge.service_figures")["service_figures"]
        row: Any = connection.execute(f"EXPLAIN (FORMAT json) {question}").fetchone()
    read_whole = {
        node["Relation Name"] for node in nodes(row[0][0]["Plan"]) if node["Node Type"] == "Seq Scan"
    }
    # One row per user, per waiting file, per site and provider: few rows, and all are needed.
    assert read_whole <= {"clock", "pg_database", "storage_usage", "upload_queue", "provider_health_state"}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


# Counters of the process ------------------------------------------------------------------------------------


async def test_uploads_that_a_worker_finished_are_counted(
    client: httpx.AsyncClient, scrape: Scrape, load_file: Load, make_key: MakeKey
) -> None:
    before = await scrape()
    content = meta_file(extra=(meta_line("2026-01-05", 1, impressions=-3), meta_line("2026-01-01", 1)))
    assert (await load_file(content)).status == Status.COMPLETED
    assert (await load_file(content)).status == Status.COMPLETED  # the same one: a duplicate
    assert (await load_file(BROKEN)).status == Status.FAILED
    seen = await scrape()

    def grown(name: str, **labels: str) -> float:
        return seen.since(before, f"weighbridge_{name}", **labels)

    assert grown("claims_total") == 2
    assert grown("uploads_ended_total", status="completed") == 1
    assert grown("uploads_ended_total", status="failed") == 1
    assert grown("duplicates_total", reason="duplicate_content") == 1
    assert {
        name: grown("rows_total", pipeline="ads", bin=name)
        for name in ("header", "accepted", "duplicate", "rejected", "totals", "blank", "preamble")
    } == {
        "header": 1, "accepted": 12, "duplicate": 1, "rejected": 1, "totals": 0, "blank": 0, "preamble": 0,
    }  # fmt: skip
    assert grown("stage_seconds_count", step="parse", pipeline="ads") == 2
    assert grown("stage_seconds_count", step="promote", pipeline="ads") == 1
    assert grown("stage_seconds_bucket", step="parse", pipeline="ads", le="+Inf") == 2
    assert grown("stage_seconds_sum", step="promote", pipeline="ads") > 0


async def test_a_takeover_a_lost_lease_and_a_retry_are_counted(
    app: App, scrape: Scrape, load_file: Load, make_upload: Any, query: Query, clock: Any
) -> None:
    before = await scrape()
    trouble(query, "RAISE EXCEPTION 'slow' USING ERRCODE = '57014';", times=1)
    make_upload(workspace_id=uuid4())
    lost = await claim(app.ctx)
    clock.forward(seconds=61)
    assert (await load_file(meta_file())).status == Status.COMPLETED  # its worker takes the other one back
    await work(lost, app.ctx, promotes=True)
    seen = await scrape()
    assert seen.since(before, "weighbridge_takeovers_total") == 1
    assert seen.since(before, "weighbridge_leases_lost_total") == 1
    assert seen.since(before, "weighbridge_retries_total", kind="timeout") == 1


async def test_no_label_identifies_the_owner_of_an_upload(
    client: httpx.AsyncClient, load_file: Load, workspace: UUID
) -> None:
    upload = await load_file(BROKEN, source_batch_id="jane-roe")
    text = (await client.get("/metrics", headers=BEARER)).text
    for secret in (workspace, upload.id, "jane-roe", "meta.csv", TOKEN):
        assert str(secret) not in text
