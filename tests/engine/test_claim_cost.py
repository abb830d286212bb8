"""The claim costs the same with a million finished uploads behind it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

FINISHED = 1_000_000


def test_the_claim_touches_a_handful_of_pages_with_a_million_finished_uploads(
    database_url: str, workspace: UUID
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "DROP INDEX data_uploads_recent, data_uploads_content"
        )  # they only slow the set-up
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status)"
            " SELECT %s, 'manual', 'ads', '\\x00'::bytea || substring(sha256('x') FROM 2), 1, 'completed'"
            " FROM generate_series(1, %s)",
            (workspace, FINISHED),
        )
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size)"
            " SELECT %s, 'manual', 'ads', sha256('x'), 1 FROM generate_series(1, 100)",
            (workspace,),
        )
        connection.execute("VACUUM ANALYZE data_uploads")
        claim = "SELECT * FROM weighbridge.claim_upload('w', '{pending}', '{ads}', '1 minute', 3)"
        connection.execute(claim)  # once for the caches of the catalogue
        plan: Any = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {claim}").fetchone()
        top = plan[0][0]["Plan"]
        assert top["Actual Rows"] == 1
        assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 150
