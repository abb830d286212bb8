"""Bytes reserved while a form is received: before they are read, and released if a file is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.api.conftest import CSV, Query
from weighbridge.api import create
from weighbridge.app import App
from weighbridge.model.limits import Allowance

LINES = CSV.splitlines(keepends=True)


def csv(size: int) -> bytes:
    """A file of at least so many bytes."""
    return LINES[0] + LINES[1] * (size // len(LINES[1]))


@pytest.fixture
async def narrow(app: App) -> Any:
    """The API, with room for 30 KB of a workspace."""
    limits = replace(app.ctx.limits, workspace=Allowance(month=30_000))
    api = create(replace(app, ctx=replace(app.ctx, limits=limits)))
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        yield client


async def form(client: httpx.AsyncClient, key: dict[str, str], *files: tuple[str, bytes]) -> httpx.Response:
    parts = [("file", file) for file in files]
    return await client.post("/api/uploads", headers=key, data={"platform": "meta"}, files=parts)


async def test_a_form_over_the_quota_is_refused_before_its_files_are_read(
    narrow: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    read = 0
    boundary = b"--x\r\n"
    head = boundary + b'Content-Disposition: form-data; name="platform"\r\n\r\nmeta\r\n' + boundary
    head += b'Content-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'

    async def body() -> Any:
        nonlocal read
        yield head
        while read < 40_000:
            read += 1000
            yield b"x" * 1000

    headers = {
        **key,
        "Content-Type": "multipart/form-data; boundary=x",
        "Content-Length": str(len(head) + 40_000),
    }
    answer = await narrow.post("/api/uploads", headers=headers, content=body())
    assert (answer.status_code, answer.json()["error"]) == (413, "STORAGE_QUOTA_EXCEEDED")
    assert read <= 1000
    assert query("SELECT count(*) FROM weighbridge.storage_reservations") == [(0,)]


async def test_the_reservation_of_a_refused_file_is_available_to_the_next(
    narrow: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(12_000)
    answer = await form(narrow, key, ("a.png", picture), ("b.csv", csv(15_000)))
    assert answer.status_code == 207
    assert [each.get("error") for each in answer.json()["uploads"]] == ["unsupported_format", None]
    assert query("SELECT count(*) FROM weighbridge.storage_reservations") == [(0,)]


async def test_each_of_several_files_over_the_quota_has_its_reason(
    narrow: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    """Sent without a length: the quota can only be checked after the files were received."""
    made = narrow.build_request(
        "POST",
        "/api/uploads",
        headers=key,
        data={"platform": "meta"},
        files=[("file", (f"{size}.csv", csv(size))) for size in (20_000, 21_000)],
    )

    async def body() -> Any:
        yield made.read()

    headers = {**key, "Content-Type": made.headers["content-type"]}
    answer = await narrow.post("/api/uploads", headers=headers, content=body())
    assert answer.status_code == 207
    first, second = answer.json()["uploads"]
    assert first["status"] == "pending"
    assert (second["error"], second["limit"]) == ("STORAGE_QUOTA_EXCEEDED", 30_000)
    assert second["used"] == len(csv(20_000))
    assert second["resets_at"]


async def test_an_impossible_content_length_causes_no_server_error(
    narrow: httpx.AsyncClient, key: dict[str, str]
) -> None:
    headers = {**key, "Content-Type": "multipart/form-data; boundary=x", "Content-Length": "9" * 25}

    async def body() -> Any:
        yield b'--x\r\nContent-Disposition: form-data; name="platform"\r\n\r\nmeta\r\n'
        yield (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
            + CSV
            + b"\r\n--x--\r\n"
        )

    answer = await narrow.post("/api/uploads", headers=headers, content=body())
    assert (answer.status_code, answer.json()["error"]) == (413, "STORAGE_QUOTA_EXCEEDED")


async def test_the_status_of_a_refused_form_distinguishes_client_and_server_errors(
    narrow: httpx.AsyncClient, key: dict[str, str], app: App
) -> None:
    """A client does not retry after 422; after a failure of the server it should."""
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    answer = await form(narrow, key, ("a.png", picture), ("b.csv", b""))
    assert (answer.status_code, answer.json()["error"]) == (422, "nothing_accepted")
    assert app.ctx.blobs.folder is not None
    app.ctx.blobs.folder.write_text("not a folder")
    app.ctx.spool.folder.rename(app.ctx.spool.folder.with_name("away"))
    answer = await form(narrow, key, ("a.csv", csv(100)), ("b.csv", csv(200)))
    assert (answer.status_code, answer.json()["error"]) == (500, "nothing_accepted")
    assert [each["error"] for each in answer.json()["uploads"]] == ["STORAGE_QUEUE_FAILED"] * 2


async def test_a_failing_store_is_called_once_in_a_request_of_many_files(
    narrow: httpx.AsyncClient, key: dict[str, str], app: App
) -> None:
    """A hanging store would need its timeout for each file."""
    asked = 0
    put = app.ctx.blobs.put

    async def count(key: str, file: Any, *, keep: bool = False) -> str:
        nonlocal asked
        asked += 1
        return await put(key, file, keep=keep)

    assert app.ctx.blobs.folder is not None
    app.ctx.blobs.folder.write_text("not a folder")
    object.__setattr__(app.ctx.blobs, "put", count)
    answer = await form(narrow, key, *((f"{n}.csv", csv(100 * n)) for n in range(1, 6)))
    assert (answer.status_code, asked) == (202, 1)
    told = answer.json()["uploads"]
    assert [set(each) for each in told] == [
        {"status", "queue_id", "storage_status", "upload_id", "filename"}
    ] * 5
    assert len({each["queue_id"] for each in told}) == 5
