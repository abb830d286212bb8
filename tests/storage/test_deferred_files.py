"""A file that the store cannot take is kept and queued, or refused whole (the specified unit tests, by their names)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.conftest import meta_file
from tests.observe.conftest import Lines
from tests.observe.conftest import lines as lines
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.storage import queue as storage_queue
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive

Query = Callable[..., list[tuple[Any, ...]]]
CSV = meta_file(1, 1)


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / "blobs")


class Store:
    """The folder of blobs, which can be made unusable: a file replaces the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fails(self) -> None:
        if self.folder.is_dir():
            self.folder.rename(self.folder.with_name("mended"))
        self.folder.write_text("not a folder")

    def works(self) -> None:
        self.folder.unlink()
        if self.folder.with_name("mended").is_dir():
            self.folder.with_name("mended").rename(self.folder)


@pytest.fixture
def send(ctx: Context, workspace: UUID, tmp_path: Path) -> Callable[..., Awaitable[Received]]:
    async def send(content: bytes = CSV, **said: Any) -> Received:
        file = tmp_path / "export.csv"
        file.write_bytes(content)
        asked = Request(workspace_id=workspace, platform="meta", filename="Smith_John.csv", **said)
        return await receive(ctx, asked, file)

    return send


async def test_enqueueFailedUpload_writes_file_inserts_row(
    ctx: Context, store: Store, send: Any, query: Query, workspace: UUID
) -> None:
    store.fails()
    user = UUID("7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b")
    received = await send(created_by=user, source_batch_id="batch-7")
    assert (received.status, received.storage_status) == (Status.PENDING, "pending_retry")
    file = ctx.spool.path(received.queue_id)
    assert file.read_bytes() == CSV
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    [row] = query(
        "SELECT temp_file_path, bucket, object_path, content_hash, byte_size, retry_count, max_retries,"
        " next_retry_at > weighbridge.now(), metadata, user_id, payload_submission_id, workspace_id, spool_id"
        " FROM upload_queue WHERE id = %s",
        (received.queue_id,),
    )
    digest = hashlib.sha256(CSV).hexdigest()
    [(day,)] = query("SELECT (weighbridge.now() AT TIME ZONE 'UTC')::date")
    assert row == (
        str(file), "local", f"{workspace}/{day:%Y/%m/%d}/{digest}", digest, len(CSV), 0, 5, True,
        {"pipeline": "ads", "platform": "meta", "source": "manual", "file_kind": "csv", "source_batch_id": "batch-7"},
        user, received.upload_id, workspace, ctx.spool.id,
    )  # fmt: skip
    upload = query(
        "SELECT status, storage_status, file_url, run_after = 'infinity', error_code, error_text FROM data_uploads"
    )
    assert upload == [
        ("pending", "pending_retry", None, True, "STORAGE_PENDING_RETRY",
         "Upload deferred and will retry automatically")
    ]  # fmt: skip
    assert query("SELECT type, payload ->> 'queue_id' FROM weighbridge.events") == [
        ("storage.upload.enqueued", str(received.queue_id))
    ]


async def test_enqueueFailedUpload_cleans_temp_file_on_insert_failure(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    store.fails()
    query(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON upload_queue FOR EACH ROW EXECUTE FUNCTION no()"
    )
    with pytest.raises(RequestRefused) as refusal:
        await send()
    assert (refusal.value.status, refusal.value.code, refusal.value.message) == (
        500,
        "STORAGE_QUEUE_FAILED",
        "Unable to persist upload retry",
    )
    assert [path.name for path in ctx.spool.folder.iterdir()] == ["spool-id"]
    assert list(ctx.scratch.iterdir()) == []
    assert query("SELECT FROM data_uploads") == query("SELECT FROM weighbridge.events") == []


async def test_an_unusable_queue_folder_leaves_nothing(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    store.fails()
    (ctx.spool.folder / "spool-id").unlink()
    ctx.spool.folder.rmdir()
    ctx.spool.folder.write_text("not a folder either")
    with pytest.raises(RequestRefused, match="Unable to persist upload retry"):
        await send()
    assert list(ctx.scratch.iterdir()) == []
    assert query("SELECT FROM data_uploads") == []


async def test_a_row_whose_commit_answer_was_lost_counts(
    ctx: Context, store: Store, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fails()
    defer = storage_queue.defer

    async def lose_the_answer(tx: Any, deferral: Any) -> None:
        await defer(tx, deferral)
        await tx.execute("COMMIT")  # the server committed; the client sees only the lost connection
        raise ConnectionError

    from weighbridge.uploads import receive as step
    from weighbridge.uploads.check_request import check

    asked = Request(workspace_id=UUID(int=5), platform="meta")
    checked = check(ctx, asked)
    (ctx.scratch / "one").write_bytes(CSV)
    monkeypatch.setattr(storage_queue, "defer", lose_the_answer)
    file = await step.check_file(ctx, checked, ctx.scratch / "one", None, UUID(int=9))
    try:
        received = await step.record(ctx, checked, file)
    except RequestRefused:
        pytest.fail("it was queued")
    assert query("SELECT id FROM upload_queue") == [(received.queue_id,)]
    assert ctx.spool.path(received.queue_id).is_file()


async def test_content_sent_again_while_it_waits_is_the_first_upload(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    store.fails()
    first, again = await send(), await send()
    assert (again.upload_id, again.duplicate, again.storage_status) == (
        first.upload_id,
        True,
        "pending_retry",
    )
    assert query("SELECT count(*) FROM upload_queue") == [(1,)]
    assert {path.name for path in ctx.spool.folder.iterdir()} == {"spool-id", str(first.queue_id)}


async def test_no_log_line_has_the_path_or_the_name(
    ctx: Context, store: Store, send: Any, lines: Lines
) -> None:
    store.fails()
    received = await send()
    [said] = lines("UploadQueueEnqueue")
    assert {name: said[name] for name in ("queue_id", "bucket", "byte_size", "retry_count", "level")} == {
        "queue_id": str(received.queue_id),
        "bucket": "local",
        "byte_size": len(CSV),
        "retry_count": 0,
        "level": "INFO",
    }
    assert str(ctx.spool.folder) not in lines.text
    assert "Smith" not in lines.text


@settings(max_examples=100, deadline=None)
@given(content=st.binary(min_size=1, max_size=5000))
def test_sha256_hashing_is_deterministic(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A hundred runs: the hash is that of the raw bytes, whatever the size of the pieces."""
    from weighbridge.pipelines import BUILT_IN
    from weighbridge.uploads.receive import _ScratchWriter

    expected = hashlib.sha256(content).digest()
    for size in (1, 7, len(content)):
        with Path(os.devnull).open("wb") as nowhere:
            writer = _ScratchWriter(nowhere, "a.csv", BUILT_IN["ads"], 10_000)
            writer.kind = "csv"  # whatever it is: the hash is of the bytes
            for start in range(0, len(content), size):
                writer._write(content[start : start + size])
        assert (writer.digest.digest(), writer.size) == (expected, len(content))


async def test_a_file_that_waits_for_the_store_keeps_its_read_options(
    ctx: Context, store: Store, send: Any, query: Query
) -> None:
    store.fails()
    waits = await send(date_order="dmy", delimiter="tab")
    again = await send(delimiter="\t", date_order="dmy")
    other = await send()
    assert (again.upload_id, again.duplicate) == (waits.upload_id, True)
    assert other.upload_id != waits.upload_id
    stored = dict(query("SELECT id, reading FROM data_uploads"))
    assert stored == {waits.upload_id: {"date_order": "dmy", "delimiter": "\t"}, other.upload_id: {}}
