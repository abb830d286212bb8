"""The state machine: one table, in Python and in the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Clock
from weighbridge.model.states import MOVES, Status
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import history


def test_the_database_and_python_have_the_same_transitions(query: Any) -> None:
    stored = {
        tuple(row) for row in query("SELECT verb, from_status, to_status, operator FROM weighbridge.moves")
    }
    declared = {(m.verb, str(s), str(m.target), m.operator) for m in MOVES.values() for s in m.sources}
    assert stored == declared


@pytest.mark.parametrize("before", list(Status))
def test_the_database_allows_only_declared_transitions_even_in_psql(
    query: Any, workspace: UUID, before: Status
) -> None:
    for number, after in enumerate(Status):
        [(upload,)] = query(
            "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status)"
            " VALUES (%s, 'manual', 'ads', sha256(%s), 1, %s) RETURNING id",
            (workspace, b"%d" % number, before),
        )
        allowed = before == after or any(
            before in move.sources and after == move.target and not move.operator for move in MOVES.values()
        )
        if allowed:
            query("UPDATE data_uploads SET status = %s WHERE id = %s", (after, upload))
        else:
            with pytest.raises(psycopg.Error, match="is not an allowed transition") as caught:
                query("UPDATE data_uploads SET status = %s WHERE id = %s", (after, upload))
            assert caught.value.sqlstate == "WB002"


async def test_the_trace_has_the_times_of_the_last_hundred_states(
    db: Database, query: Any, workspace: UUID, clock: Clock
) -> None:
    [(upload,)] = query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size)"
        " VALUES (%s, 'manual', 'ads', sha256('x'), 1) RETURNING id",
        (workspace,),
    )
    moves = ["processing", "pending"] * 51
    for status in moves:
        query("UPDATE data_uploads SET status = %s", (status,))
        query("UPDATE data_uploads SET status = status, rows_read = rows_read + 1")  # no transition
    clock.forward(hours=1)
    query("UPDATE data_uploads SET status = 'processing'")
    query(
        "UPDATE data_uploads SET status = 'failed', error_code = 'x', error_text = 'No.', finished_at = now()"
    )
    async with db.tx() as tx:
        told = await history.trace(tx, upload)
    assert [moment.what for moment in told] == ["received", *moves[4:], "processing", "failed"]
    assert [moment.at for moment in told] == sorted(moment.at for moment in told)
    assert told[-1].at - told[-3].at >= timedelta(hours=1)
    assert [moment.detail for moment in told[-2:]] == ["", "x: No."]
    query("UPDATE data_uploads SET states = '[]'")  # a file from before traces existed
    async with db.tx() as tx:
        assert [moment.what for moment in await history.trace(tx, upload)] == ["received", "failed"]


def test_an_operator_retry_reopens_a_failed_upload_and_is_audited(query: Any, workspace: UUID) -> None:
    [(upload,)] = query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status, error_code)"
        " VALUES (%s, 'manual', 'ads', sha256('x'), 1, 'failed', 'malformed_file') RETURNING id",
        (workspace,),
    )
    assert query("SELECT weighbridge.retry_upload(%s, false, 'someone')", (upload,)) == [("pending",)]
    assert query(
        "SELECT actor, action, detail ->> 'from' FROM weighbridge.audit_log WHERE subject = %s", (upload,)
    ) == [("someone", "upload.retry", "failed")]


@pytest.mark.parametrize("status", ["completed", "processing", "pending"])
def test_retry_does_not_change_an_upload_that_has_not_failed(
    query: Any, workspace: UUID, status: str
) -> None:
    [(upload,)] = query(
        "INSERT INTO data_uploads (workspace_id, source, pipeline, content_sha256, byte_size, status)"
        " VALUES (%s, 'manual', 'ads', sha256('x'), 1, %s) RETURNING id",
        (workspace, status),
    )
    assert query("SELECT weighbridge.retry_upload(%s, false, 'someone')", (upload,)) == [(status,)]
    assert query("SELECT status FROM data_uploads") == [(status,)]
