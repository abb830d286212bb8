"""Resumable upload with failures: hanging requests, locks, an unavailable database, crashes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.api.conftest import CSV, Query
from tests.storage.files import File, Sender, bytes_of
from weighbridge.api import create
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.storage import parts
from weighbridge.uploads import resumable

# Any statement that records an upload fails as if the connection were lost.
AWAY = """
    CREATE FUNCTION away() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01'; END $$;
    CREATE TRIGGER away BEFORE INSERT ON data_uploads FOR EACH ROW EXECUTE FUNCTION away()
"""
BACK = "DROP FUNCTION away CASCADE"


@pytest.fixture
def sender(client: httpx.AsyncClient, key: dict[str, str]) -> Sender:
    return Sender(client, key)


@pytest.fixture
def lying(home: Path) -> Callable[[], list[str]]:
    return lambda: sorted(path.name for path in home.glob("queue/*/files/*"))


class Line:
    """The body of a request whose sender pauses, until it continues or the connection breaks."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.silent = asyncio.Event()  # everything so far was taken
        self.broken = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk
        self.silent.set()
        await self.broken.wait()


@pytest.mark.parametrize("method", ["HEAD", "PATCH", "DELETE"])
async def test_a_newer_request_ends_an_older_one_for_the_same_file(
    sender: Sender, query: Query, method: str
) -> None:
    file, line = await sender.begin(len(CSV)), Line(CSV[:7], CSV[7:20])
    older = asyncio.create_task(file.patch(aiter(line), 0))
    await line.silent.wait()
    if method == "HEAD":
        assert await file.offset() == 20
    elif method == "PATCH":
        assert (await file.patch(CSV[20:], 20)).headers["weighbridge-status"] == "pending"
    else:
        assert (await file.ask("DELETE")).status_code == 204
    interrupted = await older
    assert (interrupted.status_code, interrupted.json()["error"]) == (409, "interrupted")
    if method == "HEAD":
        assert (await file.patch(CSV[20:], 20)).status_code == 204
    digests = [] if method == "DELETE" else [(hashlib.sha256(CSV).digest(),)]
    assert query("SELECT content_sha256 FROM data_uploads") == digests


async def test_bytes_received_before_the_connection_broke_are_kept_except_of_a_part_with_a_checksum(
    sender: Sender, home: Path
) -> None:
    file = await sender.begin(len(CSV))
    for offset, checked, kept in ((0, {}, 9), (9, {"Upload-Checksum": "sha1 " + "A" * 27 + "="}, 9)):
        line = Line(CSV[offset : offset + 9])
        part = asyncio.create_task(file.patch(aiter(line), offset, **checked))
        await line.silent.wait()
        assert await file.offset() == kept
        assert (await part).status_code == 409
        assert bytes_of(home, file.id).read_bytes() == CSV[:kept]


async def test_a_sender_that_stops_sending_times_out(app: App, key: dict[str, str], query: Query) -> None:
    patient = replace(app, settings=app.settings.model_copy(update={"sender_seconds": 0.05}))
    transport = httpx.ASGITransport(create(patient), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        file = await Sender(client, key).begin(len(CSV))
        answer = await file.patch(aiter(Line(CSV[:20])), 0)
        assert (answer.status_code, answer.json()["error"]) == (503, "sender_silent")
        assert await file.offset() == 20


async def test_a_stopping_service_does_not_wait_for_senders(app: App, key: dict[str, str]) -> None:
    stop = asyncio.Event()
    api = create(app, stop)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://weighbridge") as client,
    ):
        file, line = await Sender(client, key).begin(len(CSV)), Line(CSV[:20])
        part = asyncio.create_task(file.patch(aiter(line), 0))
        await line.silent.wait()
        stop.set()
        async with asyncio.timeout(5):
            assert (await part).json()["error"] == "interrupted"
        assert await file.offset() == 20


async def test_progress_is_recorded_during_a_part(sender: Sender, query: Query) -> None:
    file, line = await sender.begin(30 << 20), Line(*[bytes(1 << 20)] * 17)
    part = asyncio.create_task(file.patch(aiter(line), 0))
    await line.silent.wait()
    ((noted,),) = query("SELECT received FROM weighbridge.resumable_uploads")
    assert 16 << 20 <= noted < 17 << 20  # so much is left whatever happens to the process now
    assert await file.offset() == 17 << 20
    assert (await part).status_code == 409


async def test_a_file_locked_by_another_process_is_423(sender: Sender, ctx: Context) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    with parts.lock(ctx.spool, file.id):
        for answer in (await file.patch(CSV[9:], 9), await file.ask("DELETE")):
            assert (answer.status_code, answer.json()["error"]) == (423, "locked")
        assert (await file.ask("HEAD")).status_code == 423
        assert await resumable.sweep(ctx) == 0
    assert (await file.patch(CSV[9:], 9)).headers["weighbridge-status"] == "pending"


# The database is unavailable at the end ------------------------------------------------------------------------


async def test_a_complete_file_is_received_once_the_database_is_back(
    sender: Sender, ctx: Context, query: Query, lying: Callable[[], list[str]]
) -> None:
    """The store has already moved the file: it must be neither lost nor stored twice."""
    file = await sender.begin(len(CSV), force="true")
    query(AWAY)
    answer = await file.patch(CSV, 0)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert await file.offset() == len(CSV)  # a client takes it for done
    with pytest.raises(RetryLater):
        await resumable.finish_waiting(ctx)
    assert lying() == [str(file.id)]
    query(BACK)
    assert await resumable.finish_waiting(ctx) == 1
    assert await resumable.finish_waiting(ctx) == 0
    told = (await file.ask("GET")).json()
    assert query("SELECT id::text, content_sha256 FROM data_uploads") == [
        (told["upload_id"], hashlib.sha256(CSV).digest())
    ]
    assert lying() == []


async def test_a_repeated_request_completes_the_file_without_the_worker(sender: Sender, query: Query) -> None:
    file = await sender.begin(len(CSV))
    query(AWAY)
    assert (await file.patch(CSV, 0)).status_code == 503
    query(BACK)
    assert (await file.patch(b"", len(CSV))).headers["weighbridge-status"] == "pending"
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_a_file_that_waits_for_intake_does_not_expire(
    sender: Sender, ctx: Context, query: Query
) -> None:
    file = await sender.begin(len(CSV))
    query(AWAY)
    assert (await file.patch(CSV, 0)).status_code == 503
    query("UPDATE weighbridge.resumable_uploads SET expires_at = '2000-01-01'")
    assert await resumable.sweep(ctx) == 0
    query(BACK)
    assert await resumable.finish_waiting(ctx) == 1
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_a_later_refusal_by_intake_is_reported(sender: Sender, ctx: Context, query: Query) -> None:
    """The worker completes the file without an open request: GET and HEAD return the result."""
    content = b"\x89PNG\r\n\x1a\n" + bytes(20)
    file = await sender.begin(len(content))
    await file.patch(content[:10], 0)
    (ctx.spool.folder / "files" / str(file.id)).write_bytes(content)
    query("UPDATE weighbridge.resumable_uploads SET received = length")
    assert await resumable.finish_waiting(ctx) == 1
    assert (await file.ask("HEAD")).headers["weighbridge-error"] == "unsupported_format"
    assert await resumable.finish_waiting(ctx) == 0


async def test_a_file_becomes_one_upload_however_often_it_is_finished(
    sender: Sender, ctx: Context, query: Query
) -> None:
    """With force=true there is no dedupe: only the row prevents a second upload, in the same transaction."""
    file = await sender.begin(len(CSV), force="true")
    query(AWAY)
    await file.patch(CSV, 0)
    query(BACK)
    ((workspace,),) = query("SELECT workspace_id FROM weighbridge.resumable_uploads")
    upload = await resumable.find(ctx, workspace, file.id)
    part = parts.lock(ctx.spool, file.id)
    await resumable.finish(ctx, upload, part)
    part.close()
    part.path.write_bytes(CSV)  # as if it had died before it could clean up
    with parts.lock(ctx.spool, file.id) as again, pytest.raises(RequestRefused):
        await resumable.finish(ctx, upload, again)  # a client that did not receive the result
    assert query("SELECT count(*) FROM data_uploads") == [(1,)]
    assert (await file.ask("HEAD")).status_code == 200


# What crashes leave --------------------------------------------------------------------------------------------


async def test_bytes_that_were_not_recorded_do_not_count(sender: Sender, home: Path, query: Query) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    with bytes_of(home, file.id).open("ab") as crashed:
        crashed.write(b"half of something")
    assert await file.offset() == 9
    assert (await file.patch(CSV[9:], 9)).headers["weighbridge-status"] == "pending"
    assert query("SELECT content_sha256 FROM data_uploads") == [(hashlib.sha256(CSV).digest(),)]


async def test_the_sweep_removes_bytes_without_a_row(
    sender: Sender, ctx: Context, home: Path, lying: Callable[[], list[str]]
) -> None:
    going, ended = await sender.begin(len(CSV)), await sender.begin(len(CSV))
    await going.patch(CSV[:9], 0)
    await ended.patch(CSV, 0)
    folder = bytes_of(home)
    (folder / str(uuid4())).write_bytes(b"of no row")
    (folder / str(ended.id)).write_bytes(b"of one that has ended")
    (folder / f".{uuid4()}").write_bytes(b"of a store that was killed")
    assert await resumable.sweep(ctx) == 2
    assert lying() == [str(going.id)]
    assert await going.offset() == 9


@pytest.mark.parametrize("found_by", ["sweep", "sender"])
async def test_a_row_whose_bytes_are_missing_reports_it(
    sender: Sender, ctx: Context, home: Path, found_by: str
) -> None:
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    bytes_of(home, file.id).unlink()
    if found_by == "sweep":
        await resumable.sweep(ctx)
    answer = await file.patch(CSV[9:], 9)
    assert (answer.status_code, answer.json()["error"]) == (410, "bytes_lost")
    assert (await file.ask("HEAD")).headers["weighbridge-error"] == "bytes_lost"


async def test_a_full_disk_is_a_temporary_failure(sender: Sender, home: Path, query: Query) -> None:
    """As far as a test can fill one: the folder is not writable, or the file may not grow."""
    import resource
    import signal

    file = await sender.begin(2 << 20)
    await file.patch(bytes(1000), 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExitStack() as undone:
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        undone.callback(signal.signal, signal.SIGXFSZ, ignored)
        undone.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        answer = await file.patch(bytes((2 << 20) - 1000), 1000)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert os.strerror(27) in answer.json()["message"]
    assert await file.offset() == 1000


async def test_parts_of_many_files_can_be_sent_concurrently(sender: Sender, query: Query) -> None:
    contents = [CSV.replace(b"10.50", b"%d.50" % number) for number in range(10, 20)]

    async def in_parts(content: bytes) -> File:
        file = await sender.begin(len(content))
        for offset in range(0, len(content), 7):
            assert (await file.patch(content[offset : offset + 7], offset)).status_code == 204
        return file

    await asyncio.gather(*map(in_parts, contents))
    stored = {digest for (digest,) in query("SELECT content_sha256 FROM data_uploads")}
    assert stored == {hashlib.sha256(content).digest() for content in contents}
