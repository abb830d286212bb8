"""The claim costs the same, however many uploads have finished: a hundred thousand here, a million in `make soak`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from tests.proof.workers import LONG

FINISHED = 1_000_000 if LONG else 100_000
INDEXES = (
    "data_uploads_recent",
    "data_uploads_content",
    "data_uploads_ended",
    "data_uploads_staged",
    "data_uploads_blob",
    "weighbridge.attempts_history",
)


def test_the_claim_touches_a_handful_of_pages_however_many_uploads_have_finished(
    database_url: str, workspace: UUID
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        made = [
            connection.execute("SELECT pg_get_indexdef(%s::regclass)", (name,)).fetchone() for name in INDEXES
        ]
        connection.execute(f"DROP INDEX {', '.join(INDEXES)}")  # faster made afterwards
        connection.execute(
            "INSERT INTO data_uploads"  # ascending ids and one timestamp: preparing the rows should be fast
            " (id, created_at, workspace_id, source, pipeline, content_sha256, byte_size, status)"
            " SELECT lpad(n::text, 32, '0')::uuid, now(), %s, 'manual', 'ads', sha256(n::text::bytea), 1, 'completed'"
            " FROM generate_series(1, %s) AS n",
            (workspace, FINISHED),
        )
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size)"
            " SELECT %s, 'manual', 'ads', sha256(n::text::bytea), 2"
            " FROM generate_series(%s, %s) AS n",
            (workspace, FINISHED + 1, FINISHED + 110),
        )
        # Each upload has an attempt: its worker, its times and its result are kept.
        connection.execute(
            "INSERT INTO weighbridge.attempts (lease_token, queue, subject, workspace_id, slot, worker, opened_at,"
            " progressed_at, lease_until, closed_at, outcome)"
            " SELECT id, 'uploads', id, workspace_id, 1, 'w', created_at, created_at, created_at, created_at, 'done'"
            " FROM data_uploads WHERE status = 'completed'"
        )
        connection.execute(
            "UPDATE data_uploads SET workspace_id = gen_random_uuid() WHERE id IN"
            " (SELECT id FROM data_uploads WHERE status = 'pending' LIMIT 10)"
        )
        for definition in made:
            assert definition
            connection.execute(definition[0])
        connection.execute("VACUUM ANALYZE data_uploads, weighbridge.attempts")
        claim = "SELECT * FROM weighbridge.claim_waiting_upload('w', '{pending}', '{ads}', '1 minute', 3)"
        connection.execute(claim)  # once for the caches of the catalogue
        plan: Any = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {claim}").fetchone()
        top = plan[0][0]["Plan"]
        assert top["Actual Rows"] == 1
        # Some ten workspaces have queued uploads: a few pages for each, and a few for the writes.
        assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 400


def test_the_claim_does_not_look_at_staged_files_that_wait_for_their_turn(
    database_url: str, workspace: UUID
) -> None:
    """Many files of one lane are staged behind one that is still parsed."""
    staged = 3_000
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE data_uploads DISABLE TRIGGER USER")
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, lane, status)"
            " SELECT %s, 'manual', 'ads', sha256(n::text::bytea), 1, 'ads//meta',"
            " CASE n WHEN 1 THEN 'processing' ELSE 'staging_complete' END FROM generate_series(1, %s) AS n",
            (workspace, staged),
        )
        connection.execute(
            "INSERT INTO weighbridge.attempts (queue, subject, workspace_id, slot, worker, opened_at, progressed_at,"
            " lease_until) SELECT 'uploads', id, workspace_id, 1, 'w', now(), now(), now() + interval '1 h'"
            " FROM data_uploads WHERE status = 'processing'"
        )
        sources = "'{pending,staging_complete}'"
        claim = f"SELECT * FROM weighbridge.claim_waiting_upload('w', {sources}, '{{ads}}', '1 minute', 3)"
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE data_uploads")
            connection.execute(claim)
            plan: Any = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {claim}").fetchone()
            top = plan[0][0]["Plan"]
            assert top["Actual Rows"] == 0
            assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < staged / 4, analyzed
