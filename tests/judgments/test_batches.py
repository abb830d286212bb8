"""`source_batch_id` names a batch once: over the command line, over HTTP, and by many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.cli.conftest import Command
from tests.engine.steps import claim
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.uploads.operator_retry import reopen
from weighbridge.uploads.receive import Received

from .conftest import BATCH, ROW, Lines, Load, Query, Send, case, judgments

GOOD = judgments(ROW)
OTHER = judgments(case("CV-2"))
POOR = judgments(ROW, case("CV-2", judgment_amount="many"))  # half of its rows are bad
KEYS = [
    "upload_id", "status", "duplicate", "total_rows", "promoted_rows", "failed_rows", "inserted", "updated",
    "unchanged", "superseded", "bins", "plaintiffs_upserted", "judgments_upserted", "affected_dates", "error_code",
    "error_text", "columns", "missing_fields", "warnings", "warnings_total", "reading",
]  # fmt: skip


async def refused(sent: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        await sent
    return caught.value


def release_first(upload_id: UUID) -> str:
    return (
        f"To load a fixed file under this name, release the name first: POST /api/uploads/{upload_id}/release-batch, "
        f"or weighbridge uploads release-batch {upload_id}."
    )


# What intake says -------------------------------------------------------------------------------------------


async def test_a_batch_that_comes_again_is_the_first_one_whatever_its_state(
    ctx: Context, send: Send, load: Load, query: Query, clock: Any
) -> None:
    first = await send(GOOD, batch=BATCH)
    assert (first.status, first.duplicate, first.reason) == (Status.PENDING, False, None)

    async def again() -> tuple[UUID, str | None]:
        received = await send(GOOD, batch=BATCH)
        assert received.duplicate
        return received.upload_id, received.reason

    assert await again() == (first.upload_id, "duplicate_pending")
    await claim(ctx)
    assert await again() == (first.upload_id, "duplicate_processing")
    clock.forward(hours=2)  # stale, and nobody's takeover yet
    assert await again() == (first.upload_id, "duplicate_processing")
    upload = await load(GOOD, batch=BATCH)  # sent once more, and taken over
    assert (upload.id, upload.status, upload.crashes) == (first.upload_id, Status.COMPLETED, 1)
    assert await again() == (first.upload_id, "duplicate_completed")
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


@pytest.mark.parametrize("name", [None, "another name"])
async def test_the_same_content_without_its_name_is_the_first_one_too(
    send: Send, load: Load, name: str | None
) -> None:
    first = await load(GOOD, batch=BATCH)
    again = await send(GOOD, batch=name)
    assert (again.upload_id, again.duplicate, again.reason) == (first.id, True, "duplicate_content")


async def test_a_completed_batch_stays_completed_even_by_force(send: Send, load: Load) -> None:
    first = await load(GOOD, batch=BATCH)
    again = await send(GOOD, batch=BATCH, force=True)
    assert (again.upload_id, again.reason) == (first.id, "duplicate_completed")


async def test_a_failed_batch_is_an_operators_to_open_again(
    ctx: Context, send: Send, load: Load, query: Query
) -> None:
    failed = await load(POOR, batch=BATCH)
    assert failed.status == Status.FAILED
    refusal = await refused(send(POOR, batch=BATCH))
    assert (refusal.status, refusal.code) == (409, "batch_failed")
    assert refusal.message == (
        f"The batch '{BATCH}' failed. To load this file again after its cause is fixed: "
        f"POST /api/uploads/{failed.id}/retry, or weighbridge uploads retry {failed.id}. {release_first(failed.id)}"
    )
    await reopen(ctx.db, failed, force_partial=True, actor="test")
    assert (await send(POOR, batch=BATCH)).reason == "duplicate_pending"
    upload = await load(POOR, batch=BATCH)
    assert (upload.id, upload.status) == (failed.id, Status.PARTIAL)
    assert (await send(POOR, batch=BATCH)).reason == "duplicate_completed"
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


@pytest.mark.parametrize("first", [GOOD, POOR])
async def test_other_content_under_a_name_that_is_taken_is_refused(
    send: Send, load: Load, query: Query, first: str
) -> None:
    upload = await load(first, batch=BATCH)
    refusal = await refused(send(OTHER, batch=BATCH))
    assert (refusal.status, refusal.code) == (409, "batch_differs")
    taken = f"The batch '{BATCH}' was loaded with other content, as upload {upload.id}"
    assert refusal.message == (
        f"{taken}, and failed. {release_first(upload.id)}"
        if first == POOR
        else f"{taken}. Give this file another batch name."
    )
    assert query("SELECT id FROM data_uploads") == [(upload.id,)]


async def test_a_name_is_taken_in_its_own_workspace_only(load: Load, query: Query) -> None:
    first = await load(GOOD, batch=BATCH)
    second = await load(OTHER, batch=BATCH, of=uuid4())
    assert first.id != second.id
    assert query("SELECT DISTINCT status, source_batch_id FROM data_uploads") == [("completed", BATCH)]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" * 201, "'" + "x" * 57 + "…'"),
        ("a\nb", r"'a\nb'"),
        ("a\u200eb", r"'a\u200eb'"),
        ("\x07", r"'\x07'"),
    ],
)
async def test_a_name_that_is_none_is_refused(send: Send, query: Query, name: str, shown: str) -> None:
    refusal = await refused(send(GOOD, batch=name))
    assert (refusal.status, refusal.code) == (422, "invalid_batch")
    assert refusal.message == f"source_batch_id: expected up to 200 printable characters, got {shown}."
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]


@pytest.mark.parametrize(
    "name", ["x" * 200, "Übertrag 2026/01 № 7", "2026-01-07T00:00:00Z", "'; DROP TABLE judgments"]
)
async def test_any_printable_name_will_do(load: Load, query: Query, name: str) -> None:
    await load(GOOD, batch=name)
    assert query("SELECT source_batch_id FROM ingest.import_runs") == [(name,)]


@pytest.mark.parametrize("name", ["jane@example.com", "jane 212-555-0100", "123-45-6789"])
async def test_a_name_that_may_not_be_logged_is_refused_and_not_repeated(
    send: Send, logged: Lines, name: str
) -> None:
    refusal = await refused(send(GOOD, batch=name))
    assert (refusal.status, refusal.code) == (422, "invalid_batch")
    assert name.split()[-1] not in f"{refusal.message}{logged}"


# Many at once -----------------------------------------------------------------------------------------------


async def test_of_many_who_send_a_batch_at_once_one_makes_the_upload(send: Send, query: Query) -> None:
    received = await asyncio.gather(*(send(GOOD, batch=BATCH) for _ in range(8)))
    assert len({each.upload_id for each in received}) == 1
    assert sorted((each.duplicate, each.reason or "") for each in received) == [
        (False, ""),
        *[(True, "duplicate_pending")] * 7,
    ]
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_of_many_who_send_other_content_under_one_name_one_is_taken(send: Send, query: Query) -> None:
    files = [judgments(case(f"CV-{number}")) for number in range(6)]
    answers = await asyncio.gather(*(send(text, batch=BATCH) for text in files), return_exceptions=True)
    refusals = [each for each in answers if isinstance(each, RequestRefused)]
    assert len([each for each in answers if isinstance(each, Received)]) == 1
    assert [refusal.code for refusal in refusals] == ["batch_differs"] * 5
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


# Over HTTP --------------------------------------------------------------------------------------------------


@pytest.fixture
def post(client: httpx.AsyncClient, key: dict[str, str]) -> Callable[..., Any]:
    """`await post(text, as_query=True, source_batch_id=…)`: the answer of the API."""

    async def post(text: str, *, as_query: bool, **fields: str) -> httpx.Response:
        fields = {"pipeline": "judgments", **fields}
        if as_query:
            headers = {**key, "Content-Type": "text/csv"}
            return await client.post("/api/uploads", params=fields, content=text.encode(), headers=headers)
        files = {"file": ("simplicity.csv", text.encode())}
        return await client.post("/api/uploads", data=fields, files=files, headers=key)

    return post


@pytest.mark.parametrize("as_query", [True, False])
async def test_a_batch_over_http(post: Callable[..., Any], load: Load, as_query: bool) -> None:
    first = await post(GOOD, as_query=as_query, source_batch_id=BATCH)
    assert first.status_code == 201
    assert first.json()["duplicate"] is False
    assert "reason" not in first.json()
    await load(GOOD, batch=BATCH)

    again = await post(GOOD, as_query=as_query, source_batch_id=BATCH)
    assert (again.status_code, again.json()["reason"]) == (200, "duplicate_completed")
    assert again.json()["upload_id"] == first.json()["upload_id"]

    differs = await post(OTHER, as_query=as_query, source_batch_id=BATCH)
    assert (differs.status_code, differs.json()["error"]) == (409, "batch_differs")

    failed = await load(POOR, batch="poor")
    again = await post(POOR, as_query=as_query, source_batch_id="poor")
    assert (again.status_code, again.json()["error"]) == (409, "batch_failed")
    assert str(failed.id) in again.json()["message"]

    wrong = await post(OTHER, as_query=as_query, source_batch_id="x" * 201)
    assert (wrong.status_code, wrong.json()["error"]) == (422, "invalid_batch")

    unnamed = await post(OTHER, as_query=as_query, source_batch_id="")
    assert unnamed.status_code == 201


# At the command line ----------------------------------------------------------------------------------------


def test_a_batch_at_the_command_line(main: Command, tmp_path: Path, query: Query) -> None:
    good, other, poor = (tmp_path / f"{name}.csv" for name in ("good", "other", "poor"))
    for path, text in ((good, GOOD), (other, OTHER), (poor, POOR)):
        path.write_text(text)
    options = ("--pipeline", "judgments", "--json", "--batch")

    loaded = main("load", good, *options, BATCH)
    assert (loaded.code, list(loaded.json)) == (0, KEYS)
    assert (loaded.json["status"], loaded.json["judgments_upserted"]) == ("completed", 1)
    again = main("load", good, *options, BATCH)
    assert (again.code, again.json) == (0, {**loaded.json, "duplicate": True})

    differs = main("load", other, *options, BATCH)
    assert (differs.code, differs.json["error"]) == (1, "batch_differs")
    assert differs.json["message"] in differs.err

    failed = main("load", poor, *options, "poor").json
    assert failed["status"] == "failed"
    assert main("load", poor, *options, "poor").json["error"] == "batch_failed"
    assert main("uploads", "retry", failed["upload_id"], "--force-partial").code == 0
    assert main("load", poor, *options, "poor").json["status"] == "partial"
    assert query("SELECT source_batch_id, status::text FROM ingest.import_runs ORDER BY created_at") == [
        (BATCH, "completed"),
        ("poor", "completed"),
    ]
