"""The queries of every poll cost little, however many projects and jobs there are."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

PROJECTS, DEEP = 500, 20_000


@pytest.fixture
def backlog(database_url: str, workspace: UUID) -> Any:
    """Projects with a job each, one with very many, and a long history; nobody has analysed the tables."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE data_uploads SET (autovacuum_enabled = off)")
        connection.execute(
            "INSERT INTO projects (workspace_id, id, name) SELECT %s, n, 'p' FROM generate_series(1, %s) AS n",
            (workspace, PROJECTS),
        )
        for status, count in (("completed", DEEP), ("pending", DEEP)):
            connection.execute(
                "INSERT INTO data_uploads (workspace_id, project_id, source, pipeline, content_sha256, byte_size,"
                " status) SELECT %s, 1, 'manual', 'keywords', sha256((%s || n)::bytea), 1, %s"
                " FROM generate_series(1, %s) AS n",
                (workspace, status, status, count),
            )
        connection.execute(
            "INSERT INTO data_uploads (workspace_id, project_id, source, pipeline, content_sha256, byte_size)"
            " SELECT %s, n, 'manual', 'keywords', sha256('x'), 1 FROM generate_series(2, %s) AS n",
            (workspace, PROJECTS),
        )
        yield connection


def pages(connection: Any, statement: str) -> int:
    plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {statement}").fetchone()
    top = plan[0][0]["Plan"]
    assert top["Actual Rows"] == 1
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


@pytest.mark.parametrize("analysed", [False, True])
def test_leasing_a_project_and_claiming_its_job_touch_few_pages(backlog: Any, analysed: bool) -> None:
    if analysed:
        backlog.execute("VACUUM ANALYZE data_uploads, projects, weighbridge.attempts")
    lease = "SELECT * FROM weighbridge.claim_waiting_project('w', '{keywords}', '1 minute', 3, NULL)"
    backlog.execute(lease)  # once for the caches of the catalogue
    assert pages(backlog, lease) < 20 * PROJECTS  # a few for each project with jobs
    (token,) = backlog.execute(
        "SELECT lease_token FROM weighbridge.attempts WHERE queue = 'projects'"
    ).fetchone()
    claim = f"SELECT * FROM weighbridge.claim_job('{token}', 'w', '{{keywords}}', '1 minute', 3)"
    assert pages(backlog, claim) < 600
