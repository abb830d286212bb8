"""The queue, from outside: after a crash of any process on any machine, every file is stored once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg

from tests.conftest import WAITING, Clock
from tests.engine.conftest import meta_file
from tests.proof.workers import until
from tests.storage.proxy import Proxy
from tests.storage.s3 import S3
from tests.storage.site import FILE, FIRST_PAUSE, Site, check_deferred

LEASE = timedelta(seconds=61)
OURS = "datname = current_database() AND application_name LIKE 'weighbridge%%'"

Query = Callable[..., list[tuple[Any, ...]]]
Settled = Callable[[UUID | str], None]


@contextmanager
def in_the_way(url: str, statement: str) -> Iterator[None]:
    """A transaction that others wait for, rolled back at the end."""
    with psycopg.connect(url, application_name="test") as connection:
        connection.execute(statement)  # type: ignore[call-overload]
        yield
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


def test_two_workers_store_one_file_once(
    site: Site, line: Proxy, clock: Clock, query: Query, settled: Settled
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


def test_a_machine_does_not_touch_the_files_of_another_machine(
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


# Processes that crash -----------------------------------------------------------------------------------------


def test_an_api_killed_between_file_and_row_leaves_a_file_that_the_sweep_removes(
    site: Site, line: Proxy, database_url: str, query: Query
) -> None:
    line.refuse()
    with in_the_way(database_url, "LOCK TABLE upload_queue IN SHARE ROW EXCLUSIVE MODE"):
        sending = site.sending(FILE)
        [left] = until(lambda: site.waiting)
        until(lambda: query(WAITING))  # its row; or a chore, while the row is about to be inserted
        site.kill()
    assert isinstance(sending.exception(), httpx.TransportError)
    until(lambda: not query(f"SELECT FROM pg_stat_activity WHERE {OURS}"))
    assert query("SELECT count(*) FROM data_uploads") == query("SELECT count(*) FROM upload_queue") == [(0,)]

    long_ago = time.time() - 3600
    other = left.with_name(str(uuid4()))
    other.write_bytes(FILE)
    os.utime(other, (long_ago, long_ago))
    worker = site.start()
    until(lambda: not other.exists())
    assert site.waiting == [left]  # its row may be inserted soon
    worker.kill()
    os.utime(left, (long_ago, long_ago))
    site.start()
    until(lambda: site.waiting == [])
    line.mend()
    site.start("api")
    assert site.send(FILE).status_code == 201  # nothing of it blocks the next file


def test_the_replay_of_a_killed_worker_is_taken_over(
    site: Site, line: Proxy, s3: S3, clock: Clock, query: Query, settled: Settled
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


def test_a_stopping_worker_releases_its_replay(
    site: Site, line: Proxy, clock: Clock, query: Query, settled: Settled
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    site.kill()
    line.hang(after=len(FILE) // 2)
    clock.forward(FIRST_PAUSE)
    worker = site.start(WEIGHBRIDGE_STORE_SECONDS="5")  # longer than it takes to stop
    assert line.stuck.wait(20)
    worker.stop()
    assert query("SELECT retry_count FROM upload_queue") == [(0,)]
    line.mend()
    site.start()  # at once: there is no lease to wait for
    settled(told["upload_id"])
    ends = "SELECT outcome FROM weighbridge.attempts WHERE queue = 'storage' ORDER BY opened_at"
    assert [outcome for (outcome,) in query(ends)] == ["released", "done"]


def test_a_row_without_its_file_fails_the_upload_with_a_message(
    site: Site, line: Proxy, query: Query
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    [waiting] = site.waiting
    waiting.unlink()
    site.start()
    # By the sweep, long before it would be tried again.
    until(lambda: query("SELECT count(*) FROM upload_queue") == [(0,)], within=15)
    shown = site.get(f"/api/uploads/{told['upload_id']}")
    assert (shown["status"], shown["error_code"]) == ("failed", "STORAGE_FILE_LOST")
    assert shown["error_text"].endswith("Upload it again.")
    line.mend()
    assert site.send(FILE).status_code == 201
