"""Intake: accepted files, and refusals, which leave nothing behind."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.delivery.context import Context
from weighbridge.model.errors import FileRefused, RequestRefused, RetryLater
from weighbridge.model.limits import Limits
from weighbridge.model.states import Status
from weighbridge.storage.store import open_store
from weighbridge.uploads import queue
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive, tidy_name
from weighbridge.uploads.stored_file import stored_file

from .conftest import CSV

Query = Callable[..., list[tuple[Any, ...]]]


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def request(workspace: UUID | str, **said: Any) -> Request:
    return Request(**{"workspace_id": workspace, "platform": "meta", "filename": "export.csv", **said})


REFUSALS: list[tuple[dict[str, Any], bytes, int, str, str]] = [
    (
        {"workspace_id": "12"},
        CSV,
        422,
        "invalid_workspace",
        "workspace_id: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got '12'.",
    ),
    (
        {"client_id": "acme"},
        CSV,
        422,
        "invalid_client",
        "client_id: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got 'acme'.",
    ),
    (
        {"created_by": "me"},
        CSV,
        422,
        "invalid_creator",
        "created_by: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got 'me'.",
    ),
    (
        {"platform": "mta"},
        CSV,
        422,
        "unknown_platform",
        "platform: expected one of meta, google, tiktok, got 'mta'; did you mean 'meta'?",
    ),
    (
        {"platform": None},
        CSV,
        422,
        "unknown_platform",
        "platform: expected one of meta, google, tiktok, got none.",
    ),
    (
        {"source": "carrier pigeon"},
        CSV,
        422,
        "unknown_source",
        "source: expected one of manual, api, webhook, got 'carrier pigeon'.",
    ),
    (
        {"pipeline": "adz"},
        CSV,
        422,
        "unknown_pipeline",
        "pipeline: expected one of ads, conversions, judgments, keywords, got 'adz'; did you mean 'ads'?",
    ),
    ({}, b"", 422, "empty_file", "file ('export.csv'): expected rows, got an empty file."),
    (
        {},
        b"\xef\xbb\xbf \r\n\r\n",
        422,
        "empty_file",
        "file ('export.csv'): expected rows, got an empty file.",
    ),
    (
        {},
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        415,
        "unsupported_format",
        "file ('export.csv'): expected CSV or JSON, got a PNG picture. Export the figures as CSV.",
    ),
    (
        {},
        b"PK\x03\x04\x14\x00\x06\x00\x08\x00",
        415,
        "unsupported_format",
        "file ('export.csv'): expected CSV or JSON, got a zip archive. Unpack it and send the files in it.",
    ),
    (
        {},
        b"\x00" * 40,
        415,
        "unsupported_format",
        "file ('export.csv'): expected CSV or JSON, got NUL bytes only. Export the file again.",
    ),
    ({}, CSV * 20_000, 413, "file_too_large", "file: expected at most 1 MB, got more. Split the export."),
]


@pytest.mark.parametrize(
    ("said", "content", "status", "code", "sentence"),
    REFUSALS,
    ids=[f"{r[3]}-{i}" for i, r in enumerate(REFUSALS)],
)
async def test_a_refusal_has_a_code_and_a_sentence_and_leaves_nothing(
    ctx: Context,
    workspace: UUID,
    tmp_path: Path,
    left_behind: Callable[[], list[str]],
    said: dict[str, Any],
    content: bytes,
    status: int,
    code: str,
    sentence: str,
) -> None:
    ctx = replace(ctx, limits=Limits(max_upload_bytes=2**20))
    file = tmp_path / "export.csv"
    file.write_bytes(content)
    for body in (file, stream(content[:20], content[20:])):
        with pytest.raises(RequestRefused) as refusal:
            await receive(ctx, request(workspace, **said), body)
        assert (refusal.value.status, refusal.value.code, refusal.value.message) == (status, code, sentence)
        assert left_behind() == []
    assert file.read_bytes() == content


async def test_a_file_that_another_machine_keeps_to_itself_is_not_called_gone(
    ctx: Context, workspace: UUID, tmp_path: Path
) -> None:
    received = await receive(ctx, request(workspace), stream(CSV))
    async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
        upload = await queue.get(tx, received.upload_id)
    assert upload is not None
    with pytest.raises(FileRefused) as refused:
        async with stored_file(upload, replace(ctx, blobs=open_store(None, tmp_path / "other"))):
            pass
    assert (refused.value.code, refused.value.message) == (
        "file_not_found",
        "The file is in another folder or bucket than the one this worker reads, perhaps on another machine. "
        "Set the same WEIGHBRIDGE_BLOB_URL on all machines (a shared folder, or s3://…), then retry the upload.",
    )
    shutil.rmtree(tmp_path / "home" / "blobs")  # as where a worker has the same settings and no such folder
    with pytest.raises(FileRefused, match="perhaps on another machine"):
        async with stored_file(upload, ctx):
            pass
    (tmp_path / "home" / "blobs").mkdir()
    with pytest.raises(FileRefused, match="The stored file is missing"):
        async with stored_file(upload, ctx):
            pass


@pytest.mark.parametrize("way", ["stream", "path"])
async def test_a_file_becomes_a_blob_and_a_pending_upload(
    ctx: Context, workspace: UUID, home: Path, tmp_path: Path, query: Query, way: str
) -> None:
    client, creator = uuid4(), uuid4()
    file = tmp_path / "export.csv"
    file.write_bytes(CSV)
    wish = request(
        workspace, client_id=str(client), created_by=str(creator), source="webhook", force_partial=True
    )
    received = await receive(ctx, wish, file if way == "path" else stream(CSV[:7], b"", CSV[7:]))

    assert (received.status, received.duplicate) == (Status.PENDING, False)
    ((row),) = query(
        "SELECT workspace_id, client_id, platform, source, pipeline, filename, file_kind, byte_size, status,"
        " created_by, force_partial, forced, content_sha256, file_url FROM data_uploads WHERE id = %s",
        (received.upload_id,),
    )
    assert row[:12] == (
        workspace, client, "meta", "webhook", "ads", "export.csv", "csv", len(CSV), "pending", creator,
        True, False,
    )  # fmt: skip
    digest = hashlib.sha256(CSV)
    assert row[12] == digest.digest()
    (day,) = query("SELECT to_char(weighbridge.now() AT TIME ZONE 'UTC', 'YYYY/MM/DD')")[0]
    blob = home / "blobs" / str(workspace) / day / digest.hexdigest()
    assert row[13] == blob.as_uri()
    assert blob.read_bytes() == CSV
    assert stat.S_IMODE(blob.stat().st_mode) == 0o600
    assert list((home / "scratch").iterdir()) == []
    assert file.exists()


async def test_json_is_told_from_csv_by_its_content(ctx: Context, workspace: UUID, query: Query) -> None:
    await receive(ctx, request(workspace), stream(b'[{"Day": "2025-01-01", "Campaign name": "Spring"}]'))
    assert query("SELECT file_kind, filename FROM data_uploads") == [("json", "export.csv")]


async def test_a_pipeline_refuses_a_format_that_it_does_not_accept(ctx: Context, workspace: UUID) -> None:
    ads = replace(ctx.pipelines["ads"], accepts=["csv"])
    ctx = replace(ctx, pipelines={"ads": ads})
    with pytest.raises(RequestRefused) as refusal:
        await receive(ctx, request(workspace), stream(b'[{"Day": "2025-01-01"}]'))
    assert (refusal.value.status, refusal.value.code) == (415, "unsupported_format")
    assert refusal.value.message == "file ('export.csv'): the pipeline ads expects CSV, got JSON."


async def test_the_largest_file_allowed_is_taken_in(ctx: Context, workspace: UUID, query: Query) -> None:
    ctx = replace(ctx, limits=Limits(max_upload_bytes=len(CSV)))
    await receive(ctx, request(workspace), stream(CSV))
    assert query("SELECT byte_size FROM data_uploads") == [(len(CSV),)]


async def test_too_large_is_said_before_the_rest_is_read(
    ctx: Context, workspace: UUID, left_behind: Callable[[], list[str]]
) -> None:
    ctx = replace(ctx, limits=Limits(max_upload_bytes=2**20))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield CSV * 1000

    with pytest.raises(RequestRefused, match="at most 1 MB"):
        await receive(ctx, request(workspace), endless())
    assert sent == 2**20 // (1000 * len(CSV)) + 1
    assert left_behind() == []


async def test_what_is_no_table_is_refused_after_its_first_bytes(ctx: Context, workspace: UUID) -> None:
    sent = 0

    async def picture() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"\x89PNG\r\n\x1a\n" * 1000

    with pytest.raises(RequestRefused, match="CSV or JSON"):
        await receive(ctx, request(workspace), picture())
    assert sent == 9  # 64 KB


async def test_a_sender_that_breaks_off_leaves_nothing(
    ctx: Context, workspace: UUID, left_behind: Callable[[], list[str]]
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CSV * 3000
        raise ConnectionResetError("the client went away")

    with pytest.raises(RetryLater):
        await receive(ctx, request(workspace), broken())
    assert left_behind() == []


async def test_the_same_content_again_is_the_first_upload(
    ctx: Context, workspace: UUID, query: Query, home: Path
) -> None:
    first = await receive(ctx, request(workspace), stream(CSV))
    again = await receive(ctx, request(workspace, filename="renamed.csv"), stream(CSV))
    assert (again.upload_id, again.status, again.duplicate) == (first.upload_id, Status.PENDING, True)
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]
    assert len([path for path in (home / "blobs").rglob("*") if path.is_file()]) == 1


async def test_the_same_content_on_another_day_is_not_stored_again(
    ctx: Context, workspace: UUID, clock: Any, home: Path
) -> None:
    await receive(ctx, request(workspace), stream(CSV))
    clock.forward(days=2)
    assert (await receive(ctx, request(workspace), stream(CSV))).duplicate
    assert len([path for path in (home / "blobs").rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    "said", [{"platform": "google"}, {"client_id": str(UUID(int=1))}, {"workspace_id": UUID(int=2)}]
)
async def test_the_same_content_in_another_scope_is_another_upload(
    ctx: Context, workspace: UUID, said: dict[str, Any]
) -> None:
    first = await receive(ctx, request(workspace), stream(CSV))
    other = await receive(ctx, replace(request(workspace), **said), stream(CSV))
    assert not other.duplicate
    assert other.upload_id != first.upload_id


async def test_force_takes_the_same_content_again(ctx: Context, workspace: UUID, query: Query) -> None:
    first = await receive(ctx, request(workspace), stream(CSV))
    second = await receive(ctx, request(workspace, force=True), stream(CSV))
    assert not second.duplicate
    assert second.upload_id != first.upload_id
    third = await receive(ctx, request(workspace), stream(CSV))
    assert (third.upload_id, third.duplicate) == (first.upload_id, True)
    assert query("SELECT count(*) FROM data_uploads WHERE forced") == [(1,)]


async def test_content_whose_upload_failed_may_come_again(
    ctx: Context, workspace: UUID, query: Query
) -> None:
    first = await receive(ctx, request(workspace), stream(CSV))
    query("UPDATE data_uploads SET status = 'failed'")
    second = await receive(ctx, request(workspace), stream(CSV))
    assert not second.duplicate
    assert second.upload_id != first.upload_id


async def test_many_senders_of_the_same_content_at_once_make_one_upload(
    ctx: Context, workspace: UUID, query: Query
) -> None:
    received = await asyncio.gather(*(receive(ctx, request(workspace), stream(CSV)) for _ in range(12)))
    assert len({each.upload_id for each in received}) == 1
    assert sorted(each.duplicate for each in received) == [False] + [True] * 11
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("C:\\fakepath\\export.csv", "export.csv"),
        ("../../etc/passwd", "passwd"),
        ("two\nlines\x00.csv", "twolines.csv"),
        ("Übersicht März.csv", "Übersicht März.csv"),
        ("x" * 300, "x" * 255),
        ("", None),
        (None, None),
    ],
)
def test_a_file_name_is_only_a_name(sent: str | None, kept: str | None) -> None:
    assert tidy_name(sent) == kept
