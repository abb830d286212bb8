"""S5 from outside: whatever happens to the store and to the processes, no upload is lost and none counts twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from tests.api.conftest import new_key
from tests.conftest import Clock
from tests.engine.conftest import meta_file
from tests.proof.workers import until
from tests.storage.proxy import Proxy
from tests.storage.s3 import S3
from tests.storage.site import Site
from weighbridge.db.pool import Database

FILE = meta_file(days=20, ads=40)
ROWS = 20 * 40
FIRST_PAUSE = timedelta(seconds=31)  # what a file waits before it is first tried again, and a little
LEASE = timedelta(seconds=61)
DEFAULT_USER = UUID(int=0)

Query = Callable[..., list[tuple[Any, ...]]]
Settle = Callable[[UUID], dict[str, Any]]


@pytest.fixture
def key(database_url: str, workspace: UUID) -> dict[str, str]:
    async def make() -> dict[str, str]:
        db = Database(database_url, size=1)
        await db.open()
        try:
            return await new_key(db, workspace, ("upload", "read", "operate"))
        finally:
            await db.close()

    return asyncio.run(make())


@pytest.fixture
def make_site(database_url: str, tmp_path: Path, key: dict[str, str]) -> Iterator[Callable[..., Site]]:
    """`make_site(**s3.environment())`: another machine, with its API."""
    made: list[Site] = []

    def make_site(**settings: str) -> Site:
        site = Site(database_url, tmp_path / f"site-{len(made)}", key, **settings)
        made.append(site)
        site.start("api")
        return site

    yield make_site
    for site in made:
        site.end()


@pytest.fixture
def site(make_site: Callable[..., Site], s3: S3, line: Proxy) -> Site:
    """A machine whose way to the store can be spoiled."""
    return make_site(WEIGHBRIDGE_BLOB_URL=s3.bucket_url, **s3.environment(line.port))


@pytest.fixture
def settled(query: Query) -> Callable[[UUID | str], None]:
    """`settled(upload_id)`: wait until it is in production, and nothing of it waits anywhere."""

    def settled(upload_id: UUID | str) -> None:
        ended = (
            "SELECT status, error_text FROM data_uploads WHERE id = %s AND status IN ('completed', 'failed')"
        )
        assert until(lambda: query(ended, (upload_id,))) == [("completed", None)]
        assert query("SELECT count(*) FROM daily_metrics") == [(ROWS,)]
        assert query("SELECT count(*) FROM upload_queue") == [(0,)]
        usage = "SELECT total_bytes, total_sources FROM storage_usage WHERE user_id = %s"
        assert query(usage, (DEFAULT_USER,)) == [(len(FILE), 1)]
        assert query("SELECT storage_status FROM data_uploads WHERE id = %s", (upload_id,)) == [("stored",)]

    return settled


def check_deferred(answer: httpx.Response) -> dict[str, str]:
    """S5's answer, and nothing but the upload's id beside it."""
    assert answer.status_code == 202, answer.text
    told: dict[str, str] = answer.json()
    assert told == {
        "status": "pending_retry",
        "queue_id": str(UUID(told["queue_id"])),
        "storage_status": "pending_retry",
        "upload_id": str(UUID(told["upload_id"])),
    }
    return told


# The store ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/upload_file", "/api/uploads"])
def test_a_healthy_store_takes_the_file_at_once(
    site: Site, s3: S3, query: Query, settled: Settle, workspace: UUID, path: str
) -> None:
    answer = site.send(FILE, path)
    assert answer.status_code == 201
    told = answer.json()
    assert told == {
        "upload_id": told["upload_id"],
        "status": "pending",
        "duplicate": False,
        "filename": "export.csv",
    }
    [(key, size)] = s3.stored.items()
    assert key.startswith(f"{workspace}/")
    assert key.endswith(hashlib.sha256(FILE).hexdigest())
    assert size == len(FILE)
    assert site.waiting == []
    assert site.metric('storage_upload_success_total{bucket="weighbridge"}') == 1
    site.start()
    settled(told["upload_id"])


@pytest.mark.parametrize("path", ["/upload_file", "/api/uploads"])
def test_it_007_upload_queue_retry(
    site: Site, s3: S3, line: Proxy, clock: Clock, query: Query, settled: Settle, workspace: UUID, path: str
) -> None:
    """The store is killed in the middle of an upload → queued → it is back → stored, and the upload goes its way."""
    site.start()
    line.hang(after=len(FILE) // 2)
    sending = site.sending(FILE, path)
    assert line.stuck.wait(20)
    s3.kill()
    line.mend()
    told = check_deferred(sending.result())

    [waiting] = site.waiting
    assert waiting.name == told["queue_id"]
    assert waiting.read_bytes() == FILE
    assert waiting.stat().st_mode & 0o777 == 0o600
    assert waiting.parent.stat().st_mode & 0o777 == 0o700
    check_row(query, told, waiting, workspace)
    shown = site.get(f"/api/uploads/{told['upload_id']}")
    assert (shown["status"], shown["storage_status"]) == ("pending", "pending_retry")
    assert shown["error_code"] == "STORAGE_PENDING_RETRY"
    assert shown["error_text"] == "Upload deferred and will retry automatically"
    assert site.metric("storage_queue_depth") == 1
    assert site.metric('storage_upload_failure_total{bucket="weighbridge",reason="connection"}') == 1
    [logged] = site.said("UploadQueueEnqueue")
    assert (logged["queue_id"], logged["bucket"], logged["byte_size"], logged["retry_count"]) == (
        told["queue_id"], "weighbridge", len(FILE), 0,
    )  # fmt: skip

    s3.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])
    until(lambda: site.waiting == [])
    assert list(s3.stored.values()) == [len(FILE)]
    assert query("SELECT type, count(*) FROM weighbridge.events WHERE type LIKE 'storage.%%' GROUP BY 1") == [
        ("storage.upload.enqueued", 1)
    ]
    assert site.metric("storage_queue_depth") == 0


def check_row(query: Query, told: dict[str, str], waiting: Path, workspace: UUID) -> None:
    """S5's columns."""
    [row] = query(
        "SELECT id, temp_file_path, bucket, object_path, content_hash, byte_size, retry_count, max_retries,"
        " next_retry_at > weighbridge.now() AND next_retry_at < weighbridge.now() + INTERVAL '1 minute',"
        " error_message, metadata, user_id, payload_submission_id FROM upload_queue"
    )
    digest = hashlib.sha256(FILE).hexdigest()
    object_path = row[3]
    assert object_path.startswith(f"{workspace}/")
    assert object_path.endswith(f"/{digest}")
    assert row == (
        UUID(told["queue_id"]), str(waiting), "weighbridge", object_path, digest, len(FILE), 0, 5,
        True,
        "The file store cannot be used now.",
        {"pipeline": "ads", "platform": "meta", "source": "api", "file_kind": "csv"},
        DEFAULT_USER, UUID(told["upload_id"]),
    )  # fmt: skip


def test_a_store_that_hangs_is_not_waited_for(
    site: Site, s3: S3, clock: Clock, query: Query, settled: Settle
) -> None:
    s3.stop()
    began = time.monotonic()
    told = check_deferred(site.send(FILE))
    assert time.monotonic() - began < 5  # store_seconds is 1; the rest is the machine's
    s3.go_on()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])


def test_a_store_that_says_503_is_asked_once_and_then_left_to_the_queue(
    site: Site, line: Proxy, clock: Clock, query: Query, settled: Settle
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    assert len(line.requests) == 1
    assert site.metric('storage_upload_failure_total{bucket="weighbridge",reason="rate_limit"}') == 1
    clock.forward(FIRST_PAUSE)
    until(lambda: query("SELECT retry_count FROM upload_queue") == [(1,)])
    assert len(line.requests) == 2
    assert site.metric('storage_queue_processed_total{status="put_off"}') == 1
    line.mend()
    site.start()
    clock.forward(minutes=3)
    settled(told["upload_id"])


def test_a_full_disk_takes_the_file_when_there_is_room(
    make_site: Callable[..., Site], small_s3: S3, clock: Clock, settled: Settle
) -> None:
    small_s3.fill()
    site = make_site(WEIGHBRIDGE_BLOB_URL=small_s3.bucket_url, **small_s3.environment())
    told = check_deferred(site.send(FILE))
    small_s3.make_room()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])
    assert list(small_s3.stored.values()) == [len(FILE)]


def test_the_same_file_while_it_waits_is_the_same_upload(
    site: Site, s3: S3, clock: Clock, settled: Settle
) -> None:
    s3.kill()
    told = check_deferred(site.send(FILE))
    again = site.send(FILE)
    assert again.status_code == 200
    assert (again.json()["upload_id"], again.json()["duplicate"]) == (told["upload_id"], True)
    assert len(site.waiting) == 1
    s3.start()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])


def test_after_the_last_retry_file_and_row_wait_for_an_operator(
    make_site: Callable[..., Site], s3: S3, line: Proxy, clock: Clock, query: Query, settled: Settle
) -> None:
    site = make_site(
        WEIGHBRIDGE_BLOB_URL=s3.bucket_url, WEIGHBRIDGE_STORAGE_RETRIES="2", **s3.environment(line.port)
    )
    line.refuse()
    told = check_deferred(site.send(FILE))
    for tried in (1, 2):
        clock.forward(minutes=5 * tried)
        until(lambda tried=tried: query("SELECT retry_count FROM upload_queue") == [(tried,)])
    until(lambda: site.get(f"/api/uploads/{told['upload_id']}")["status"] == "failed")
    shown = site.get(f"/api/uploads/{told['upload_id']}")
    assert (shown["storage_status"], shown["error_code"]) == ("retry_failed", "STORAGE_RETRY_FAILED")
    assert f"weighbridge storage retry {told['queue_id']}" in shown["error_text"]
    happened = (
        "SELECT payload ->> 'queue_id' FROM weighbridge.events WHERE type = 'storage.upload.retry_failed'"
    )
    assert query(happened) == [(told["queue_id"],)]
    clock.forward(days=1)
    assert [each.name for each in site.waiting] == [told["queue_id"]]
    assert len(line.requests) == 3

    line.mend()
    [listed] = json.loads(command(site, "storage", "list", "--json"))
    assert (listed["queue_id"], listed["storage_status"]) == (told["queue_id"], "retry_failed")
    command(site, "storage", "retry", told["queue_id"])
    site.start()
    settled(told["upload_id"])
    until(lambda: site.waiting == [])


def command(site: Site, *arguments: str) -> str:
    """What a command on that machine says; never where the files wait."""
    done = subprocess.run(
        [sys.executable, "-m", "weighbridge", *arguments],
        env=site.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert str(site.queue) not in done.stdout + done.stderr
    return done.stdout


# The queue ----------------------------------------------------------------------------------------------------


@contextmanager
def in_the_way(url: str, statement: str) -> Iterator[psycopg.Connection]:
    """A transaction that others wait for, gone in the end."""
    with psycopg.connect(url, application_name="test") as connection:
        connection.execute(statement)  # type: ignore[call-overload]
        yield connection
        connection.rollback()


def test_a_row_that_cannot_be_written_leaves_no_file(site: Site, line: Proxy, query: Query) -> None:
    query("ALTER TABLE upload_queue ADD CONSTRAINT none CHECK (false)")
    line.refuse()
    answer = site.send(FILE)
    assert answer.status_code == 500
    assert (answer.json()["error"], answer.json()["message"]) == (
        "STORAGE_QUEUE_FAILED", "Unable to persist upload retry",
    )  # fmt: skip
    assert site.waiting == []
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]
    [logged] = site.said("UploadQueueEnqueueFailed")
    assert (logged["bucket"], logged["error_code"]) == ("weighbridge", "STORAGE_QUEUE_FAILED")
    assert logged["trace_id"]


def test_two_workers_and_one_row_store_it_once(
    site: Site, line: Proxy, clock: Clock, query: Query, settled: Settle
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    line.mend()
    line.forget()
    for _ in range(2):
        site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])
    assert len([each for each in line.requests if each.startswith("PUT ")]) == 1
    assert query("SELECT outcome FROM weighbridge.attempts WHERE queue = 'storage'") == [("done",)]


def test_a_machine_leaves_the_files_of_another_one_alone(
    make_site: Callable[..., Site], s3: S3, line: Proxy, clock: Clock, query: Query
) -> None:
    here, there = (
        make_site(WEIGHBRIDGE_BLOB_URL=s3.bucket_url, **s3.environment(line.port)) for _ in range(2)
    )
    line.refuse()
    mine = check_deferred(here.send(FILE))
    clock.forward(seconds=1)
    theirs = check_deferred(there.send(meta_file(days=1)))
    here.stop()
    line.mend()
    there.start()
    clock.forward(FIRST_PAUSE)  # both are due, mine first
    done = "SELECT status FROM data_uploads WHERE id = %s AND status = 'completed'"
    until(lambda: query(done, (theirs["upload_id"],)))
    tried = "SELECT count(*) FROM weighbridge.attempts WHERE queue = 'storage' AND subject = %s"
    assert query(tried, (theirs["queue_id"],)) == [(1,)]
    assert query(tried, (mine["queue_id"],)) == [(0,)]
    assert query("SELECT id, retry_count FROM upload_queue") == [(UUID(mine["queue_id"]), 0)]
    assert [each.name for each in here.waiting] == [mine["queue_id"]]
    here.start("api")
    until(lambda: query(done, (mine["upload_id"],)))


# Processes that die -------------------------------------------------------------------------------------------


def test_an_api_killed_between_file_and_row_leaves_a_file_that_the_sweep_removes(
    site: Site, line: Proxy, database_url: str, query: Query
) -> None:
    line.refuse()
    with in_the_way(database_url, "LOCK TABLE upload_queue IN SHARE ROW EXCLUSIVE MODE"):
        sending = site.sending(FILE)
        until(lambda: query("SELECT FROM pg_locks WHERE relation = 'upload_queue'::regclass AND NOT granted"))
        [left] = site.waiting
        site.kill()
    assert isinstance(sending.exception(), httpx.TransportError)
    until(lambda: not query("SELECT FROM pg_stat_activity WHERE application_name LIKE 'weighbridge%%'"))
    assert query("SELECT count(*) FROM data_uploads") == query("SELECT count(*) FROM upload_queue") == [(0,)]

    worker = site.start()
    until(lambda: "staging.cleaned" in worker.log)
    assert site.waiting == [left]  # it may be one whose row is about to come
    worker.stop()
    long_ago = time.time() - 3600
    os.utime(left, (long_ago, long_ago))
    site.start()
    until(lambda: site.waiting == [])
    line.mend()
    site.start("api")
    assert site.send(FILE).status_code == 201  # nothing of it is in the way


def test_a_worker_killed_in_the_middle_of_a_replay_is_taken_over(
    site: Site, line: Proxy, s3: S3, clock: Clock, query: Query, settled: Settle
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    site.kill()
    line.hang(after=len(FILE) // 2)
    clock.forward(FIRST_PAUSE)
    worker = site.start()
    assert line.stuck.wait(20)
    worker.kill()
    line.mend()
    clock.forward(LEASE)
    site.start()
    settled(told["upload_id"])
    ends = "SELECT outcome FROM weighbridge.attempts WHERE queue = 'storage' ORDER BY opened_at"
    assert [outcome for (outcome,) in query(ends)] == ["expired", "done"]
    until(lambda: site.waiting == [])
    assert list(s3.stored.values()) == [len(FILE)]


def test_a_row_that_has_lost_its_file_fails_its_upload_with_a_sentence(
    site: Site, line: Proxy, query: Query
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    [waiting] = site.waiting
    waiting.unlink()
    site.start()
    until(lambda: query("SELECT count(*) FROM upload_queue") == [(0,)])
    shown = site.get(f"/api/uploads/{told['upload_id']}")
    assert (shown["status"], shown["error_code"]) == ("failed", "STORAGE_FILE_LOST")
    assert shown["error_text"].endswith("Upload it again.")
    line.mend()
    assert site.send(FILE).status_code == 201
