"""Import runs: uploads in the words of the judgments' specification, with its columns and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.steps import claim, parse_by_hand
from weighbridge.delivery.context import Context

from .conftest import BATCH, HEADER, ROW, InState, Load, Query, Send, judgments, run_of

STATUSES = ["pending", "processing", "completed", "failed"]
COLUMNS = (
    "SELECT column_name, CASE data_type WHEN 'USER-DEFINED' THEN udt_name ELSE data_type END"
    " FROM information_schema.columns WHERE table_schema = 'ingest' AND table_name = %s ORDER BY ordinal_position"
)


def test_import_runs_have_the_columns_of_the_specification_first(query: Query) -> None:
    assert query(COLUMNS, ("import_runs",))[:7] == [
        ("id", "uuid"),
        ("source_batch_id", "text"),
        ("status", "import_run_status"),
        ("record_count", "bigint"),
        ("file_hash", "text"),
        ("started_at", "timestamp with time zone"),
        ("completed_at", "timestamp with time zone"),
    ]


def test_stale_runs_have_the_columns_of_the_specification_and_no_others(query: Query) -> None:
    assert query(COLUMNS, ("v_stale_runs",)) == [
        ("id", "uuid"),
        ("source_batch_id", "text"),
        ("status", "import_run_status"),
        ("started_at", "timestamp with time zone"),
        ("hours_stale", "numeric"),
        ("file_hash", "text"),
    ]


def test_the_statuses_are_those_of_the_specification(query: Query) -> None:
    assert query("SELECT enum_range(NULL::ingest.import_run_status)::text[]") == [(STATUSES,)]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("pending", "pending"), ("processing", "processing"), ("staging_complete", "processing"),
        ("promoting", "processing"), ("completed", "completed"), ("partial", "completed"), ("failed", "failed"),
    ],
)  # fmt: skip
def test_every_state_has_its_word(query: Query, in_state: InState, state: str, shown: str) -> None:
    in_state(state)
    assert run_of(query) == shown


async def test_a_run_without_a_batch_goes_by_its_id(load: Load, query: Query) -> None:
    upload = await load(judgments(ROW))
    assert query("SELECT source_batch_id, file_hash FROM ingest.import_runs") == [
        (str(upload.id), upload.content_sha256.hex())
    ]


async def test_a_new_batch_is_pending_a_claimed_one_processing_a_done_one_completed(
    ctx: Context, send: Send, load: Load, query: Query
) -> None:
    await send(judgments(ROW), batch=BATCH)
    assert run_of(query) == "pending"
    attempt = await claim(ctx)
    assert run_of(query) == "processing"
    query("SELECT weighbridge.release_upload(%s, '0', false, NULL)", (attempt.lease.token,))
    await load(judgments(ROW), batch=BATCH)
    assert run_of(query) == "completed"


async def test_a_batch_that_throws_is_failed(load: Load, query: Query) -> None:
    await load(f"{HEADER}\n", batch=BATCH)
    assert run_of(query) == "failed"
    assert query("SELECT error_message FROM ingest.import_runs")[0][0].startswith(
        "Expected at least one record"
    )


async def test_a_staged_run_that_waits_for_its_promotion_is_not_stale(
    ctx: Context, send: Send, query: Query, clock: Any
) -> None:
    await send(judgments(ROW), batch=BATCH)
    attempt = await parse_by_hand(ctx)
    query("SELECT weighbridge.release_staged(%s)", (attempt.lease.token,))
    clock.forward(hours=2)
    assert query("SELECT count(*) FROM ingest.v_stale_runs") == [(0,)]
