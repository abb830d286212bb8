"""An operator frees the batch name of a failed upload; the fixed file is then the one run of that name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from tests.api.conftest import MakeKey
from tests.cli.conftest import Command
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.uploads.receive import Received
from weighbridge.uploads.release_batch import release_batch

from .conftest import BATCH, ROW, Load, Query, Send, case, judgments

POOR = judgments(ROW, case("CV-2", judgment_amount="many"))
FIXED = judgments(ROW, case("CV-2", judgment_amount="7"))
RUNS = "SELECT source_batch_id, status::text FROM ingest.import_runs ORDER BY created_at"


async def test_the_fixed_file_gets_the_name_of_the_failed_batch(
    ctx: Context, load: Load, send: Send, query: Query, workspace: UUID
) -> None:
    failed = await load(POOR, batch=BATCH)
    with pytest.raises(RequestRefused, match=f"uploads release-batch {failed.id}"):
        await send(FIXED, batch=BATCH)
    assert await release_batch(ctx.db, failed, actor="someone") == BATCH
    fixed = await load(FIXED, batch=BATCH)
    assert (fixed.id != failed.id, fixed.status, fixed.source_batch_id) == (True, Status.COMPLETED, BATCH)
    assert query(RUNS) == [(str(failed.id), "failed"), (BATCH, "completed")]
    assert query("SELECT released_batch_id, status FROM data_uploads WHERE id = %s", (failed.id,)) == [
        (BATCH, "failed")
    ]
    audited = (
        "SELECT workspace_id, actor, detail FROM weighbridge.audit_log WHERE action = 'upload.release_batch'"
    )
    detail = {"source_batch_id": BATCH, "error_code": "too_many_invalid_rows"}
    assert query(audited) == [(workspace, "someone", detail)]
    assert (await send(FIXED, batch=BATCH)).reason == "duplicate_completed"


@pytest.mark.parametrize(
    ("status", "name", "code", "sentence"),
    [
        (
            "pending",
            BATCH,
            "not_failed",
            "Only a failed upload can release its batch name; this one is pending.",
        ),
        (
            "processing",
            BATCH,
            "not_failed",
            "Only a failed upload can release its batch name; this one is processing.",
        ),
        (
            "promoting",
            BATCH,
            "not_failed",
            "Only a failed upload can release its batch name; this one is promoting.",
        ),
        (
            "completed",
            BATCH,
            "not_failed",
            "Only a failed upload can release its batch name; this one is completed.",
        ),
        (
            "partial",
            BATCH,
            "not_failed",
            "Only a failed upload can release its batch name; this one is partial.",
        ),
        ("failed", None, "no_batch", "This upload has no batch name to release."),
    ],
)
async def test_every_other_upload_keeps_its_name(
    client: httpx.AsyncClient,
    key: dict[str, str],
    in_state: object,
    query: Query,
    status: str,
    name: str | None,
    code: str,
    sentence: str,
) -> None:
    in_state(status)  # type: ignore[operator]
    query("UPDATE data_uploads SET source_batch_id = %s", (name,))
    ((id_,),) = query("SELECT id FROM data_uploads")
    answer = await client.post(f"/api/uploads/{id_}/release-batch", headers=key)
    assert (answer.status_code, answer.json()) == (409, {"error": code, "message": sentence})
    assert query("SELECT source_batch_id, released_batch_id FROM data_uploads") == [(name, None)]
    assert not query("SELECT FROM weighbridge.audit_log")


async def test_over_http_with_the_scope_operate(
    client: httpx.AsyncClient, key: dict[str, str], make_key: MakeKey, load: Load
) -> None:
    failed = await load(POOR, batch=BATCH)
    address = f"/api/uploads/{failed.id}/release-batch"
    assert (await client.post(address, headers=await make_key("upload", "read"))).status_code == 403
    answer = await client.post(address, headers=key)
    assert answer.json() == {"upload_id": str(failed.id), "status": "failed", "released_batch_id": BATCH}
    again = await client.post(address, headers=key)
    assert (again.status_code, again.json()["message"]) == (
        409,
        "The batch name of this upload is already released.",
    )
    shown = (await client.get(f"/api/uploads/{failed.id}", headers=key)).json()
    assert (shown["source_batch_id"], shown["released_batch_id"]) == (None, BATCH)


def test_at_the_command_line(main: Command, tmp_path: Path) -> None:
    poor, fixed = tmp_path / "poor.csv", tmp_path / "fixed.csv"
    poor.write_text(POOR)
    fixed.write_text(FIXED)
    options = ("--pipeline", "judgments", "--json", "--batch", BATCH)
    failed = main("load", poor, *options).json
    assert main("load", fixed, *options).json["error"] == "batch_differs"
    done = main("uploads", "release-batch", failed["upload_id"])
    assert (done.code, done.out) == (
        0, f"The batch name is free. Load the fixed file: weighbridge load FILE --pipeline judgments --batch {BATCH}\n",
    )  # fmt: skip
    assert main("load", fixed, *options).json["status"] == "completed"
    again = main("uploads", "release-batch", failed["upload_id"])
    assert (again.code, again.err) == (1, "weighbridge: The batch name of this upload is already released.\n")


async def test_of_many_who_send_other_content_after_the_release_one_is_taken(
    ctx: Context, load: Load, send: Send, query: Query
) -> None:
    failed = await load(POOR, batch=BATCH)
    await release_batch(ctx.db, failed, actor="test")
    files = [judgments(case(f"CV-{number}")) for number in range(6)]
    answers = await asyncio.gather(*(send(text, batch=BATCH) for text in files), return_exceptions=True)
    assert len([each for each in answers if isinstance(each, Received)]) == 1
    assert [each.code for each in answers if isinstance(each, RequestRefused)] == ["batch_differs"] * 5
    assert query("SELECT count(*) FROM data_uploads WHERE source_batch_id = %s", (BATCH,)) == [(1,)]


async def test_of_two_operators_who_release_a_name_one_is_told_that_it_is_released(
    ctx: Context, load: Load, query: Query
) -> None:
    failed = await load(POOR, batch=BATCH)
    answers = await asyncio.gather(
        *(release_batch(ctx.db, failed, actor="test") for _ in range(2)), return_exceptions=True
    )
    assert sorted(isinstance(each, RequestRefused) for each in answers) == [False, True]
    assert query("SELECT count(*) FROM weighbridge.audit_log WHERE action = 'upload.release_batch'") == [(1,)]
