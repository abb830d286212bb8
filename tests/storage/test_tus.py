"""Resumable upload by tus 1.0, header by header: https://tus.io/protocols/resumable-upload."""

from __future__ import annotations

import base64
import hashlib
import stat
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.api.conftest import CSV, MakeKey, Query
from tests.conftest import Clock
from tests.storage.files import PART, File, Sender, bytes_of, metadata
from weighbridge.delivery.context import Context
from weighbridge.uploads import resumable

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


@pytest.fixture
def sender(client: httpx.AsyncClient, key: dict[str, str]) -> Sender:
    return Sender(client, key)


@pytest.fixture
def parts(home: Path) -> Callable[[], list[str]]:
    """The files that are still coming, by name."""
    return lambda: sorted(path.name for path in home.glob("queue/*/files/*"))


# OPTIONS and versions ------------------------------------------------------------------------------------------


async def test_options_reports_the_protocol_without_a_key(client: httpx.AsyncClient) -> None:
    answer = await client.options("/api/files")
    assert answer.status_code == 204
    said = {name: value for name, value in answer.headers.items() if name.startswith("tus-")}
    assert said == {
        "tus-resumable": "1.0.0",
        "tus-version": "1.0.0",
        "tus-extension": "creation,checksum,expiration,termination",
        "tus-max-size": str(50 * 2**20),
        "tus-checksum-algorithm": "sha1,sha256,md5",
    }


@pytest.mark.parametrize("version", [{}, {"Tus-Resumable": "0.2.2"}])
async def test_another_version_is_412_and_changes_nothing(
    sender: Sender, query: Query, version: dict[str, str]
) -> None:
    file = await sender.begin(len(CSV))
    for method in ("HEAD", "PATCH", "DELETE", "POST"):
        url = "/api/files" if method == "POST" else file.url
        headers = {**sender.key, **PART, "Upload-Offset": "0", "Upload-Length": "9", **version}
        answer = await sender.client.request(method, url, headers=headers)
        assert (answer.status_code, answer.headers["tus-version"]) == (412, "1.0.0")
    assert query("SELECT id, received FROM weighbridge.resumable_uploads") == [(file.id, 0)]


async def test_every_response_has_the_version_also_a_refusal(sender: Sender) -> None:
    for answer in (
        await sender.client.post("/api/files"),
        await sender.create(None),
        await File(sender, f"/api/files/{uuid4()}").ask("PATCH"),
        await File(sender, "/api/files/nonsense").ask("HEAD"),
        await sender.client.put("/api/files"),
    ):
        assert answer.status_code >= 400
        assert answer.headers["tus-resumable"] == "1.0.0"


# A file in parts -----------------------------------------------------------------------------------------------


async def test_a_file_in_parts_becomes_an_upload(
    sender: Sender, query: Query, home: Path, parts: Callable[[], list[str]]
) -> None:
    said = metadata(platform="meta", filename="C:\\exports\\a.csv", filetype="text/csv", relativePath="null")
    begun = await sender.create(len(CSV), said)
    assert (begun.status_code, begun.content) == (201, b"")
    file = File(sender, begun.headers["location"])
    assert file.url.startswith("/api/files/")
    asked = await file.ask("HEAD")
    assert (asked.status_code, asked.headers["cache-control"]) == (200, "no-store")
    assert asked.headers["upload-offset"] == "0"
    assert asked.headers["upload-length"] == str(len(CSV))
    assert asked.headers["upload-metadata"] == said
    assert parsedate_to_datetime(asked.headers["upload-expires"]).tzinfo is not None

    first = await file.patch(CSV[:20], 0)
    assert (first.status_code, first.headers["upload-offset"]) == (204, "20")
    assert "weighbridge-upload-id" not in first.headers
    assert parts() == [str(file.id)]
    assert stat.S_IMODE(bytes_of(home, file.id).stat().st_mode) == 0o600
    assert stat.S_IMODE(bytes_of(home).stat().st_mode) == 0o700
    assert await file.offset() == 20

    last = await file.patch(CSV[20:], 20)
    assert (last.status_code, last.headers["upload-offset"]) == (204, str(len(CSV)))
    assert (last.headers["weighbridge-status"], last.headers["weighbridge-duplicate"]) == ("pending", "false")
    upload = last.headers["weighbridge-upload-id"]
    assert query("SELECT id::text, content_sha256, filename, source, file_kind FROM data_uploads") == [
        (upload, hashlib.sha256(CSV).digest(), "a.csv", "api", "csv")
    ]
    assert parts() == []
    asked = await file.ask("HEAD")
    assert (asked.headers["upload-offset"], asked.headers["weighbridge-upload-id"]) == (str(len(CSV)), upload)
    told = (await file.ask("GET")).json()
    assert told.pop("expires_at")
    assert told.pop("progress")["rows_read"] == 0
    assert told == {
        "file_id": str(file.id), "offset": len(CSV), "length": len(CSV), "upload_id": upload, "ended": False,
        "status": "pending", "duplicate": False, "storage_status": "stored", "error": None, "message": None,
    }  # fmt: skip


async def test_the_response_to_the_last_part_can_be_requested_again(sender: Sender, query: Query) -> None:
    file = await sender.begin(len(CSV), force="true")
    first = await file.patch(CSV, 0)
    again = await file.patch(b"", len(CSV))
    for name in ("upload-offset", "weighbridge-upload-id", "weighbridge-duplicate"):
        assert first.headers[name] == again.headers[name]
    assert (await file.patch(CSV, 0)).status_code == 409
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_the_same_content_again_is_the_first_upload(sender: Sender, query: Query) -> None:
    plain = await sender.client.post(
        "/api/uploads", headers=sender.key, data={"platform": "meta"}, files={"file": ("b.csv", CSV)}
    )
    first = plain.json()["upload_id"]
    again = await sender.send(CSV)
    assert again.headers["weighbridge-upload-id"] == first
    assert again.headers["weighbridge-duplicate"] == "true"
    forced = await sender.send(CSV, force="true")
    assert forced.headers["weighbridge-upload-id"] != first
    assert forced.headers["weighbridge-duplicate"] == "false"
    assert query("SELECT count(*) FROM data_uploads") == [(2,)]


async def test_metadata_fields_have_the_same_meaning_as_in_a_form(sender: Sender, query: Query) -> None:
    user, client_id = str(uuid4()), str(uuid4())
    said = {"source": "webhook", "created_by": user, "client_id": client_id, "source_batch_id": "b-1"}
    await sender.send(CSV, force_partial="yes", **said)
    assert query(
        "SELECT source, created_by::text, client_id::text, source_batch_id, force_partial, forced FROM data_uploads"
    ) == [("webhook", user, client_id, "b-1", True, False)]


async def test_the_method_can_be_set_in_a_header(sender: Sender) -> None:
    file = await sender.begin(len(CSV))
    override = {"X-HTTP-Method-Override": "PATCH", "Upload-Offset": "0", **PART}
    assert (await file.ask("POST", CSV[:5], **override)).headers["upload-offset"] == "5"
    assert (await file.ask("POST", **{"X-HTTP-Method-Override": "DELETE"})).status_code == 204
    assert (await file.ask("HEAD")).status_code == 404


# Parts that do not fit -----------------------------------------------------------------------------------------


async def test_a_part_that_does_not_fit_changes_nothing(sender: Sender) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:10], 0)

    async def endless() -> Any:
        while True:
            yield bytes(20)

    for answer, status, code in (
        (await file.patch(CSV[5:], 5), 409, "wrong_offset"),
        (await file.patch(CSV[20:], 20), 409, "wrong_offset"),
        (await file.patch(CSV[10:], 10, **{"Content-Type": "text/csv"}), 415, "unsupported_media_type"),
        (await file.patch(CSV[10:], 10, **{"Upload-Offset": "ten"}), 400, "invalid_header"),
        (await file.patch(CSV[10:] + b"!", 10), 413, "too_many_bytes"),
        (await file.patch(endless(), 10), 413, "too_many_bytes"),
        (await file.patch(CSV[10:], 10, **{"Upload-Checksum": "crc32 AAAA"}), 400, "unknown_algorithm"),
        (await file.patch(CSV[10:], 10, **{"Upload-Checksum": "sha1 ???"}), 400, "invalid_header"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (status, code)
        assert await file.offset() == 10
    assert (await file.patch(CSV[10:], 10)).headers["weighbridge-status"] == "pending"


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "md5"])
async def test_a_part_with_a_wrong_checksum_is_460_and_not_stored(
    sender: Sender, query: Query, home: Path, algorithm: str
) -> None:
    def checksum(content: bytes) -> dict[str, str]:
        digest = base64.b64encode(hashlib.new(algorithm, content).digest()).decode()
        return {"Upload-Checksum": f"{algorithm} {digest}"}

    file = await sender.begin(len(CSV))
    assert (await file.patch(CSV[:10], 0, **checksum(CSV[:10]))).headers["upload-offset"] == "10"
    spoiled = await file.patch(b"x" * 5, 10, **checksum(CSV[10:15]))
    assert (spoiled.status_code, spoiled.json()["error"]) == (460, "checksum_mismatch")
    assert bytes_of(home, file.id).read_bytes() == CSV[:10]
    assert await file.offset() == 10
    assert (await file.patch(CSV[10:], 10, **checksum(CSV[10:]))).status_code == 204
    assert query("SELECT content_sha256 FROM data_uploads") == [(hashlib.sha256(CSV).digest(),)]


# The end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [(PNG, 415, "unsupported_format"), (b"\n  \n", 422, "empty_file"), (CSV + b"x", 409, "batch_differs")],
)
async def test_a_refusal_at_the_end_is_that_of_a_plain_upload_and_can_be_requested_again(
    sender: Sender, query: Query, parts: Callable[[], list[str]], content: bytes, status: int, code: str
) -> None:
    first = await sender.send(CSV, source_batch_id="first")
    form = {"platform": "meta", "source_batch_id": "first"}
    plain = await sender.client.post(
        "/api/uploads", headers=sender.key, data=form, files={"file": ("a.csv", content)}
    )
    file = await sender.begin(len(content), source_batch_id="first")
    refused = await file.patch(content, 0)
    assert (refused.status_code, refused.json()) == (plain.status_code, plain.json())
    assert (refused.status_code, refused.json()["error"]) == (status, code)
    asked = await file.ask("HEAD")
    assert (asked.status_code, asked.headers["weighbridge-error"]) == (410, code)
    assert "upload-offset" not in asked.headers
    assert (await file.patch(b"", len(content))).status_code == 410
    told = (await file.ask("GET")).json()
    assert (told["error"], told["message"], told["upload_id"]) == (code, refused.json()["message"], None)
    assert parts() == []
    recorded = first.headers["weighbridge-upload-id"]
    assert query("SELECT id::text FROM data_uploads") == [(recorded,)]
    assert (await file.ask("DELETE")).status_code == 204
    assert (await file.ask("GET")).status_code == 404


async def test_a_file_that_the_store_cannot_take_waits_for_it(
    sender: Sender, home: Path, query: Query, parts: Callable[[], list[str]]
) -> None:
    (home / "blobs").write_text("in the way")
    file = await sender.begin(len(CSV))
    last = await file.patch(CSV, 0)
    assert (last.status_code, last.headers["weighbridge-storage-status"]) == (204, "pending_retry")
    queue = query("SELECT id::text, payload_submission_id::text FROM upload_queue")
    assert queue == [(last.headers["weighbridge-queue-id"], last.headers["weighbridge-upload-id"])]
    assert next(home.glob(f"queue/*/{last.headers['weighbridge-queue-id']}")).read_bytes() == CSV
    assert (await file.ask("GET")).json()["storage_status"] == "pending_retry"
    assert parts() == []


# Files that are never completed ----------------------------------------------------------------------------------


async def test_a_file_expires_after_its_last_part(
    ctx: Context, sender: Sender, clock: Clock, query: Query, parts: Callable[[], list[str]]
) -> None:
    file, other = await sender.begin(len(CSV)), await sender.begin(len(CSV))
    clock.forward(hours=23)
    before = parsedate_to_datetime((await file.ask("HEAD")).headers["upload-expires"])
    after = parsedate_to_datetime((await file.patch(CSV[:9], 0)).headers["upload-expires"])
    assert 22 * 3600 < (after - before).total_seconds() < 24 * 3600
    clock.forward(hours=2)
    assert (await other.ask("HEAD")).status_code == 410
    assert await resumable.sweep(ctx) == 1
    assert (await other.ask("HEAD")).status_code == 404
    assert await file.offset() == 9
    clock.forward(hours=23)
    for method in ("HEAD", "GET", "DELETE"):
        assert (await file.ask(method)).status_code == 410
    assert (await file.patch(CSV[9:], 9)).json()["error"] == "file_expired"
    assert await resumable.sweep(ctx) == 1
    assert parts() == []
    assert query("SELECT count(*) FROM weighbridge.resumable_uploads") == [(0,)]


async def test_termination_deletes_a_file_but_not_an_upload(
    sender: Sender, query: Query, parts: Callable[[], list[str]]
) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    ended = await file.ask("DELETE")
    assert (ended.status_code, ended.headers["tus-resumable"]) == (204, "1.0.0")
    assert parts() == []
    for method in ("HEAD", "DELETE", "GET"):
        assert (await file.ask(method)).status_code == 404
    assert (await file.patch(CSV[9:], 9)).status_code == 404
    assert parts() == []
    recorded = await sender.begin(len(CSV))
    await recorded.patch(CSV, 0)
    kept = await recorded.ask("DELETE")
    assert (kept.status_code, kept.json()["error"]) == (410, "already_recorded")
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]
    assert (await recorded.ask("HEAD")).status_code == 200


async def test_another_workspace_sees_nothing(sender: Sender, make_key: MakeKey) -> None:
    file = await sender.begin(len(CSV))
    theirs = file.of(await make_key("admin", of=uuid4()))
    for method in ("HEAD", "DELETE", "GET"):
        assert (await theirs.ask(method)).status_code == 404
    assert (await theirs.patch(CSV, 0)).json()["error"] == "unknown_file"
    assert await file.offset() == 0


async def test_a_file_belongs_to_the_machine_that_gets_its_first_bytes(
    sender: Sender, query: Query, ctx: Context, parts: Callable[[], list[str]]
) -> None:
    """A load balancer that routes by path sends the POST to any machine, and every other request to one machine."""
    file, moved = await sender.begin(len(CSV)), await sender.begin(len(CSV))
    query("UPDATE weighbridge.resumable_uploads SET spool_id = gen_random_uuid()")
    assert await file.offset() == 0
    assert query("SELECT id FROM weighbridge.resumable_uploads WHERE spool_id = %s", (ctx.spool.id,)) == [
        (file.id,)
    ]
    assert (await moved.patch(CSV, 0)).headers["weighbridge-status"] == "pending"
    query("UPDATE weighbridge.resumable_uploads SET spool_id = gen_random_uuid()")
    assert parts() == [str(file.id)]
    assert await resumable.sweep(ctx) == 0  # that folder may be this one, by an older name
    query("UPDATE weighbridge.resumable_uploads SET expires_at = '2000-01-01'")
    assert await resumable.sweep(ctx) == 2
    assert parts() == []


async def test_a_request_for_bytes_on_another_machine_is_refused_with_the_reason(
    sender: Sender, query: Query, ctx: Context
) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    query("UPDATE weighbridge.resumable_uploads SET spool_id = gen_random_uuid()")
    for answer in (await file.patch(CSV[9:], 9), await file.ask("DELETE")):
        assert (answer.status_code, answer.json()["error"]) == (503, "other_machine")
        assert "to the same machine" in answer.json()["message"]
        assert answer.headers["retry-after"]
    assert (await file.ask("HEAD")).status_code == 503
    query("UPDATE weighbridge.resumable_uploads SET spool_id = %s", (ctx.spool.id,))
    assert (await file.patch(CSV[9:], 9)).headers["weighbridge-status"] == "pending"
