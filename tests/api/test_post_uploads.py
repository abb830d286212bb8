"""`POST /api/uploads`: one file, many files, and every refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from .conftest import CSV, Query

LeftBehind = Callable[[], list[str]]
PNG = b"\x89PNG\r\n\x1a\n\x00\x00"


async def send(client: httpx.AsyncClient, key: dict[str, str], *files: tuple[str, bytes], **data: str) -> Any:
    return await client.post(
        "/api/uploads",
        headers=key,
        data={"platform": "meta", **data},
        files=[("file", (name, content)) for name, content in files],
    )


def body(*parts: tuple[str, bytes], boundary: str = "xyz") -> bytes:
    """A form as it goes over the wire: (headers, content) for each part."""
    lines = [
        b"--" + boundary.encode() + b"\r\n" + head.encode() + b"\r\n\r\n" + content for head, content in parts
    ]
    return b"\r\n".join([*lines, b"--" + boundary.encode() + b"--\r\n"])


FORM = {"Content-Type": "multipart/form-data; boundary=xyz"}
FIELD = 'Content-Disposition: form-data; name="platform"'
FILE = 'Content-Disposition: form-data; name="file"; filename="a.csv"'


async def test_a_file_is_accepted(
    client: httpx.AsyncClient, key: dict[str, str], workspace: UUID, query: Query
) -> None:
    client_id, creator = str(uuid4()), str(uuid4())
    answer = await send(
        client, key, ("März.csv", CSV), source="manual", client_id=client_id, created_by=creator,
        workspace_id=str(workspace), force_partial="true",
    )  # fmt: skip
    assert answer.status_code == 201
    told = answer.json()
    assert told == {
        "upload_id": told["upload_id"], "status": "pending", "duplicate": False, "filename": "März.csv",
    }  # fmt: skip
    assert query(
        "SELECT workspace_id::text, client_id::text, created_by::text, source, filename, force_partial"
        " FROM data_uploads WHERE id = %s",
        (told["upload_id"],),
    ) == [(str(workspace), client_id, creator, "manual", "März.csv", True)]


async def test_a_file_name_can_be_given_as_a_field(client: httpx.AsyncClient, key: dict[str, str]) -> None:
    answer = await send(client, key, ("blob", CSV), filename="march.csv")
    assert (answer.status_code, answer.json()["filename"]) == (201, "march.csv")


async def test_the_same_file_again_is_200_and_the_first_upload(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    first = (await send(client, key, ("a.csv", CSV))).json()
    again = await send(client, key, ("b.csv", CSV))
    assert again.status_code == 200
    assert again.json() == {
        **first, "duplicate": True, "filename": "b.csv", "reason": "duplicate_content",
    }  # fmt: skip


async def test_the_same_file_sent_concurrently_is_one_upload(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    answers = await asyncio.gather(*(send(client, key, ("a.csv", CSV)) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({answer.json()["upload_id"] for answer in answers}) == 1
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_many_files_are_many_uploads(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    files = [(f"{number}.csv", CSV + b"x" * number) for number in range(5)]
    answer = await send(client, key, *files, client_id=str(uuid4()))
    assert answer.status_code == 201
    told = answer.json()["uploads"]
    assert [each["filename"] for each in told] == [name for name, _ in files]
    assert len({each["upload_id"] for each in told}) == 5
    assert query("SELECT count(*), count(DISTINCT client_id) FROM data_uploads") == [(5, 1)]


async def test_each_of_several_files_has_its_own_result(
    client: httpx.AsyncClient, key: dict[str, str], query: Query, home: Any
) -> None:
    answer = await send(client, key, ("a.csv", CSV), ("b.csv", PNG), ("c.csv", b""), ("d.csv", CSV))
    assert answer.status_code == 207
    good, picture, empty, again = answer.json()["uploads"]
    assert (good["status"], good["duplicate"]) == ("pending", False)
    assert (picture["filename"], picture["error"]) == ("b.csv", "unsupported_format")
    assert (empty["filename"], empty["error"]) == ("c.csv", "empty_file")
    assert (again["upload_id"], again["duplicate"]) == (good["upload_id"], True)
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]
    assert list((home / "scratch").iterdir()) == []


async def test_several_invalid_files_are_422(
    client: httpx.AsyncClient, key: dict[str, str], left_behind: LeftBehind
) -> None:
    answer = await send(client, key, ("a.csv", PNG), ("b.csv", b""))
    assert (answer.status_code, answer.json()["error"]) == (422, "nothing_accepted")
    assert [each["error"] for each in answer.json()["uploads"]] == ["unsupported_format", "empty_file"]
    assert left_behind() == []


@pytest.mark.parametrize(
    ("data", "content", "status", "code"),
    [
        ({"workspace_id": "x"}, CSV, 422, "invalid_workspace"),
        ({"client_id": "x"}, CSV, 422, "invalid_client"),
        ({"platform": "mta"}, CSV, 422, "unknown_platform"),
        ({"platform": ""}, CSV, 422, "unknown_platform"),
        ({"source": "x"}, CSV, 422, "unknown_source"),
        ({"pipeline": "x"}, CSV, 422, "unknown_pipeline"),
        ({"plattform": "meta"}, CSV, 422, "unknown_field"),
        ({"force": "perhaps"}, CSV, 422, "invalid_field"),
        ({"source": "x" * 20_000}, CSV, 422, "invalid_field"),
        ({}, b"", 422, "empty_file"),
        ({}, PNG, 415, "unsupported_format"),
        ({}, CSV * 20_000, 413, "file_too_large"),
    ],
)
async def test_a_refusal_has_a_code_and_a_message_and_leaves_nothing(
    small_client: httpx.AsyncClient,
    key: dict[str, str],
    left_behind: LeftBehind,
    data: dict[str, str],
    content: bytes,
    status: int,
    code: str,
) -> None:
    answer = await send(small_client, key, ("a.csv", content), **data)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert answer.json()["message"].endswith((".", "?"))
    assert left_behind() == []


@pytest.fixture
async def small_client(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An API that takes files up to 1 MB."""
    from dataclasses import replace

    from weighbridge.api import create
    from weighbridge.model.limits import Limits

    small = replace(app, ctx=replace(app.ctx, limits=Limits(max_upload_bytes=2**20)))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create(small)), base_url="http://weighbridge"
    ) as client:
        yield client


async def test_a_file_that_is_too_large_ends_the_request_and_nothing_is_stored(
    small_client: httpx.AsyncClient, key: dict[str, str], left_behind: LeftBehind
) -> None:
    answer = await send(small_client, key, ("a.csv", CSV), ("b.csv", CSV * 20_000), ("c.csv", CSV + b"c"))
    assert (answer.status_code, answer.json()["error"]) == (413, "file_too_large")
    assert left_behind() == []


async def test_a_field_after_a_file_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, key: dict[str, str], left_behind: LeftBehind
) -> None:
    late = body((FIELD, b"meta"), (FILE, CSV), (FIELD.replace("platform", "client_id"), b"x"))
    answer = await client.post("/api/uploads", headers=key | FORM, content=late)
    assert (answer.status_code, answer.json()) == (
        422,
        {
            "error": "field_after_file",
            "message": "The field 'client_id' was sent after a file. Send the fields first, then the files.",
        },
    )
    assert left_behind() == []


async def test_the_error_of_a_missing_field_says_that_it_must_precede_the_file(
    client: httpx.AsyncClient, key: dict[str, str], left_behind: LeftBehind
) -> None:
    late = body((FILE, CSV), (FIELD, b"meta"))
    answer = await client.post("/api/uploads", headers=key | FORM, content=late)
    assert (answer.status_code, answer.json()) == (
        422,
        {
            "error": "unknown_platform",
            "message": "platform: expected one of meta, google, tiktok, got none. Send the fields before the files.",
        },
    )
    assert left_behind() == []


async def test_a_file_sent_as_a_field_is_refused_with_a_hint(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    form = body((FIELD, b"meta"), (FIELD.replace("platform", "file"), CSV))
    answer = await client.post("/api/uploads", headers=key | FORM, content=form)
    assert answer.json()["message"] == (
        "file: expected a file, got a field without a file name. In curl: -F file=@report.csv."
    )


@pytest.mark.parametrize("said", ["platform=meta&platform=google", "platform=google"])
async def test_a_repeated_field_is_refused_at_any_position(
    client: httpx.AsyncClient, key: dict[str, str], left_behind: LeftBehind, said: str
) -> None:
    form = body((FIELD, b"meta"), (FILE, CSV))
    answer = await client.post(f"/api/uploads?{said}", headers=key | FORM, content=form)
    assert (answer.status_code, answer.json()) == (
        422,
        {"error": "repeated_field", "message": "platform: expected once, got more than once."},
    )
    assert left_behind() == []


@pytest.mark.parametrize(
    ("headers", "content", "status", "code"),
    [
        (FORM, b"", 400, "malformed_body"),
        (FORM, b"not a form at all", 400, "malformed_body"),
        (FORM, body((FIELD, b"meta"), (FILE, CSV))[:-20], 400, "malformed_body"),
        ({"Content-Type": "multipart/form-data"}, body((FILE, CSV)), 400, "malformed_body"),
        ({"Content-Type": "multipart/form-data; boundary=" + "x" * 300}, b"x", 400, "malformed_body"),
        (FORM, body((FIELD, b"meta")), 422, "missing_file"),
        (FORM, body((FIELD, b"\xff\xfe")), 422, "invalid_field"),
        (FORM, body((FIELD.replace("platform", "file"), CSV)), 422, "missing_filename"),
        (FORM, body((FIELD.replace("platform", "upload"), CSV)), 422, "unknown_field"),
        (FORM, body((FIELD, b"meta"), (FIELD, b"google"), (FILE, CSV)), 422, "repeated_field"),
        ({"Content-Type": "application/xml"}, CSV, 415, "unsupported_media_type"),
        ({}, b"", 415, "unsupported_media_type"),
    ],
)
async def test_a_body_that_is_not_a_form_is_refused(
    client: httpx.AsyncClient,
    key: dict[str, str],
    left_behind: LeftBehind,
    headers: dict[str, str],
    content: bytes,
    status: int,
    code: str,
) -> None:
    answer = await client.post("/api/uploads", headers=key | headers, content=content)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert left_behind() == []


async def test_a_form_may_arrive_byte_by_byte(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        for byte in body((FIELD, b"meta"), (FILE, CSV)):
            yield bytes([byte])

    answer = await client.post("/api/uploads", headers=key | FORM, content=trickle())
    assert answer.status_code == 201
    assert query("SELECT byte_size FROM data_uploads") == [(len(CSV),)]


async def test_a_file_can_be_the_body_with_its_fields_in_the_query(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    answer = await client.post(
        "/api/uploads?platform=meta&filename=a.csv&force=1",
        headers=key | {"Content-Type": "text/csv; charset=utf-8"},
        content=CSV,
    )
    assert (answer.status_code, answer.json()["filename"]) == (201, "a.csv")
    assert query("SELECT byte_size, forced FROM data_uploads") == [(len(CSV), True)]


async def test_a_body_whose_content_length_is_too_large_is_not_read(
    small_client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    read = 0

    async def never() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield CSV

    answer = await small_client.post(
        "/api/uploads?platform=meta",
        headers=key | {"Content-Type": "text/csv", "Content-Length": "2000000"},
        content=never(),
    )
    assert (answer.status_code, read) == (413, 0)


async def test_a_sender_that_stops_sending_times_out_and_nothing_is_stored(
    app: Any, key: dict[str, str], left_behind: LeftBehind
) -> None:
    from dataclasses import replace

    from weighbridge.api import create

    async def silent() -> AsyncIterator[bytes]:
        yield body((FIELD, b"meta"), (FILE, CSV))[:-20]
        await asyncio.Event().wait()

    hasty = replace(app, settings=app.settings.model_copy(update={"sender_seconds": 0.05}))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create(hasty)), base_url="http://weighbridge"
    ) as client:
        answer = await client.post("/api/uploads", headers=key | FORM, content=silent())
    assert (answer.status_code, answer.json()["error"]) == (408, "sender_silent")
    assert left_behind() == []


async def test_a_file_that_cannot_be_stored_yet_is_queued(
    client: httpx.AsyncClient, key: dict[str, str], home: Any, left_behind: LeftBehind
) -> None:
    (home / "blobs").write_text("a file where the folder should be")
    answer = await send(client, key, ("a.csv", CSV))
    told = answer.json()
    assert (answer.status_code, told["status"], told["storage_status"]) == (
        202,
        "pending_retry",
        "pending_retry",
    )
    assert set(told) == {"status", "queue_id", "storage_status", "upload_id"}
    assert [each.rpartition("/")[2] for each in sorted(left_behind())] == [
        "blobs",
        told["queue_id"],
        f"row {told['upload_id']}",
    ]


async def test_another_workspace_cannot_be_uploaded_to(
    client: httpx.AsyncClient, key: dict[str, str], left_behind: Callable[[], list[str]]
) -> None:
    data = {"platform": "meta", "workspace_id": str(uuid4())}
    answer = await client.post("/api/uploads", headers=key, data=data, files={"file": ("a.csv", CSV)})
    assert (answer.status_code, answer.json()["error"]) == (403, "wrong_workspace")
    assert left_behind() == []
