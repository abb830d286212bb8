"""SQL that the specification of the judgments prints runs as printed. What it creates is compared with what is there.

The one change: tenancy adds workspace_id to unique keys, and so to their ON CONFLICT targets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from .conftest import HEADER, ROW, Load, Query, Send, case, judgments

STATUS_ENUM = """
CREATE TYPE ingest.import_run_status AS ENUM (
    'pending',     -- Queued, not yet claimed
    'processing',  -- Claimed by a worker, actively running
    'completed',   -- Successfully finished
    'failed'       -- Terminal failure (moved to DLQ)
);
"""
GUARD = """
CREATE TRIGGER trg_import_runs_status_guard
    BEFORE UPDATE ON ingest.import_runs
    FOR EACH ROW
    EXECUTE FUNCTION ingest.guard_status_transition();
"""
TAKEOVER = """
        UPDATE ingest.import_runs
        SET status = 'pending'
        WHERE source_batch_id = %s
          AND status = 'processing'
          AND started_at < NOW() - INTERVAL '1 hour'
"""
STALE_RUNS = """
SELECT
    id,
    source_batch_id,
    status,
    started_at,
    EXTRACT(EPOCH FROM (NOW() - started_at)) / 3600 AS hours_stale,
    file_hash
FROM ingest.import_runs
WHERE status = 'processing'
  AND started_at < NOW() - INTERVAL '1 hour'
ORDER BY started_at ASC;
"""  # CREATE OR REPLACE VIEW ingest.v_stale_runs AS
STALE_RUNS_COMMENT = "Import runs stuck in processing state for >1 hour (potential crash victims)."
UPSERT = """
    INSERT INTO public.judgments (
        case_number, plaintiff_name, defendant_name,
        judgment_amount, filing_date, county, source_file
    ) VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (case_number) DO UPDATE SET
        plaintiff_name = COALESCE(EXCLUDED.plaintiff_name, judgments.plaintiff_name),
        defendant_name = COALESCE(EXCLUDED.defendant_name, judgments.defendant_name),
        judgment_amount = COALESCE(EXCLUDED.judgment_amount, judgments.judgment_amount),
        filing_date = COALESCE(EXCLUDED.filing_date, judgments.filing_date),
        county = COALESCE(EXCLUDED.county, judgments.county),
        updated_at = NOW()
    RETURNING (xmax = 0) AS is_insert
"""
CHECK_1 = """
SELECT id, source_batch_id, status, record_count,
       started_at, completed_at
FROM ingest.import_runs
WHERE source_batch_id = 'golden_path_test_%'
ORDER BY started_at DESC
LIMIT 1;

-- Expected: status='completed', record_count=1
"""
CHECK_2 = """
SELECT COUNT(*) AS stale_count
FROM ingest.v_stale_runs;

-- Expected: 0
"""
CHECK_3 = """
SELECT
    tc.constraint_name,
    tc.table_schema,
    tc.table_name,
    kcu.column_name
FROM information_schema.table_constraints tc
JOIN information_schema.key_column_usage kcu
    ON tc.constraint_name = kcu.constraint_name
WHERE tc.constraint_type = 'UNIQUE'
  AND tc.table_name IN ('judgments', 'plaintiffs', 'import_runs')
ORDER BY tc.table_name;

-- Expected: case_number (judgments), dedupe_key (plaintiffs), source_batch_id (import_runs)
"""
CHECK_4 = """
-- Insert same case twice - should not error
INSERT INTO public.judgments (case_number, plaintiff_name)
VALUES ('TEST-IDEMPOTENCY-001', 'Test Plaintiff')
ON CONFLICT (case_number) DO UPDATE SET updated_at = NOW()
RETURNING (xmax = 0) AS was_insert;

-- First run: was_insert = true
-- Second run: was_insert = false
"""
BACKLOG = "SELECT COUNT(*) FROM ingest.import_runs WHERE status IN ('pending', 'processing')"
FAILED = "SELECT COUNT(*) FROM ingest.import_runs WHERE status = 'failed' AND completed_at > NOW() - '24h'"
STALE = "SELECT COUNT(*) FROM ingest.v_stale_runs"
AVERAGE = (
    "SELECT AVG(EXTRACT(EPOCH FROM (completed_at - started_at))) FROM ingest.import_runs"
    " WHERE status = 'completed'"
)

Printed = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def printed(database_url: str, workspace: UUID) -> Iterator[Printed]:
    """`printed(CHECK_2)`: the rows, in a session of the workspace; the key of ON CONFLICT is the workspace's too."""
    with psycopg.connect(database_url, autocommit=True) as session:
        session.execute("SELECT set_config('weighbridge.workspace_id', %s, false)", (str(workspace),))

        def printed(statement: str, params: Any = None) -> list[tuple[Any, ...]]:
            own = statement.replace("ON CONFLICT (case_number)", "ON CONFLICT (workspace_id, case_number)")
            cursor = session.execute(own, params)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

        yield printed


def test_the_enum_is_the_printed_one(query: Query) -> None:
    name = re.search(r"CREATE TYPE (\S+)", STATUS_ENUM)
    assert name
    labels = re.findall(r"^    '(\w+)'", STATUS_ENUM, re.M)
    assert query(f"SELECT enum_range(NULL::{name[1]})::text[]") == [(labels,)]


def test_the_guard_is_the_printed_one_but_for_a_view_it_stands_instead(query: Query) -> None:
    [(found,)] = query(
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger "
        " WHERE tgrelid = 'ingest.import_runs'::regclass AND tgname = 'trg_import_runs_status_guard'"
    )
    assert found == " ".join(GUARD.replace("BEFORE", "INSTEAD OF").rstrip(";\n").split())


def test_the_view_of_stale_runs_has_the_printed_columns_and_comment(query: Query, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        names = [
            [column.name for column in connection.execute(statement).description or ()]
            for statement in (STALE_RUNS, "SELECT * FROM ingest.v_stale_runs")
        ]
    assert names[0] == names[1]
    assert query("SELECT obj_description('ingest.v_stale_runs'::regclass)") == [(STALE_RUNS_COMMENT,)]


async def test_the_stale_takeover_resets_what_the_view_lists(
    send: Send, printed: Printed, query: Query
) -> None:
    await send(judgments(ROW), batch="b-1")
    query("UPDATE data_uploads SET status = 'processing', started_at = now() - INTERVAL '2 hours'")
    assert [row[1] for row in printed(STALE_RUNS)] == ["b-1"]
    assert printed(CHECK_2) == printed(STALE) == [(1,)]
    assert printed(TAKEOVER, ("b-1",)) == [(1,)]
    assert printed(STALE_RUNS) == []
    assert printed(CHECK_2) == printed(STALE) == [(0,)]
    assert printed(TAKEOVER, ("b-1",)) == [(0,)]


def test_the_upsert_inserts_then_updates_and_keeps_what_is_known(printed: Printed, query: Query) -> None:
    known = ("CV-1", "Jane Roe", "John Doe", "1234.56", "2024-03-04", "Kings", "january.csv")
    assert printed(UPSERT, known) == [(True,)]
    assert printed(UPSERT, ("CV-1", None, None, None, None, "Queens", "february.csv")) == [(False,)]
    assert query(
        "SELECT plaintiff_name, defendant_name, judgment_amount::text, filing_date::text, county, source_file"
        " FROM judgments"
    ) == [("Jane Roe", "John Doe", "1234.560000", "2024-03-04", "Queens", "january.csv")]


async def test_rows_of_the_upsert_and_of_a_file_are_the_same_rows(
    printed: Printed, load: Load, query: Query
) -> None:
    printed(UPSERT, ("CV-1", "Jane Roe", None, None, None, None, "by hand"))
    upload = await load(judgments(case("CV-1", county="Kings")))
    assert upload.promoted["judgment"]["updated"] == 1
    assert query("SELECT plaintiff_name, county FROM judgments") == [("Jane Roe", "Kings")]


async def test_check_1_finds_the_completed_run(printed: Printed, load: Load) -> None:
    upload = await load(judgments(ROW), batch="golden_path_test_%")  # as printed: = and no LIKE
    assert printed(CHECK_1) == [
        (upload.id, "golden_path_test_%", "completed", 1, upload.started_at, upload.finished_at)
    ]


def test_check_2_finds_no_stale_run(printed: Printed) -> None:
    assert printed(CHECK_2) == [(0,)]


def test_check_3_lists_the_unique_constraints(printed: Printed) -> None:
    """Of import_runs none: it is a view, and its batches are unique where they are stored."""
    found = {(schema, table, column) for _, schema, table, column in printed(CHECK_3)}
    assert found == {
        ("public", "judgments", "workspace_id"),
        ("public", "judgments", "case_number"),
        ("public", "plaintiffs", "workspace_id"),
        ("public", "plaintiffs", "dedupe_key"),
    }
    behind = printed(CHECK_3.replace("'import_runs'", "'data_uploads'"))
    assert {column for name, _, _, column in behind if name == "data_uploads_batch"} == {
        "workspace_id",
        "source_batch_id",
    }


def test_check_4_inserts_once_and_then_updates(printed: Printed) -> None:
    assert printed(CHECK_4) == [(True,)]
    assert printed(CHECK_4) == [(False,)]


async def test_the_figures_of_the_dashboard(printed: Printed, load: Load, send: Send, query: Query) -> None:
    assert printed(AVERAGE) == [(None,)]
    upload = await load(judgments(ROW))
    await load(f"{HEADER}\n")
    await send(judgments(case("CV-2")))
    assert upload.started_at
    assert upload.finished_at
    assert printed(BACKLOG) == [(1,)]
    assert printed(STALE) == [(0,)]
    [(average,)] = printed(AVERAGE)
    assert float(average) == pytest.approx((upload.finished_at - upload.started_at).total_seconds())


async def test_the_failures_of_a_day_need_the_word_that_was_left_out(printed: Printed, load: Load) -> None:
    """To Postgres, `- '24h'` is a point in time that it cannot read; INTERVAL says what was meant."""
    await load(f"{HEADER}\n")
    with pytest.raises(psycopg.errors.InvalidDatetimeFormat):
        printed(FAILED)
    assert printed(FAILED.replace("'24h'", "INTERVAL '24h'")) == [(1,)]
