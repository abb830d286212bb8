"""The store, from outside: after any failure of the store, no upload is lost or counted twice."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests import prefork
from tests.conftest import Clock
from tests.proof.workers import until
from tests.storage.proxy import Proxy
from tests.storage.s3 import S3
from tests.storage.site import DEFAULT_USER, FILE, FIRST_PAUSE, Site, check_deferred

Query = Callable[..., list[tuple[Any, ...]]]
Settled = Callable[[UUID | str], None]


@pytest.mark.parametrize("path", ["/upload_file", "/api/uploads"])
def test_a_healthy_store_stores_the_file_at_once(
    site: Site, s3: S3, query: Query, settled: Settled, workspace: UUID, path: str
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
    site: Site, s3: S3, line: Proxy, clock: Clock, query: Query, settled: Settled, workspace: UUID, path: str
) -> None:
    """The store is killed during an upload → queued → it is back → stored, and the upload continues."""
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
    """The columns that the contract fixes."""
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
        "The file store cannot be used now: the request was interrupted.",
        {"pipeline": "ads", "platform": "meta", "source": "api", "file_kind": "csv"},
        DEFAULT_USER, UUID(told["upload_id"]),
    )  # fmt: skip


def test_a_hanging_store_does_not_delay_the_response(
    site: Site, s3: S3, clock: Clock, query: Query, settled: Settled
) -> None:
    s3.stop()
    began = time.monotonic()
    told = check_deferred(site.send(FILE))
    assert time.monotonic() - began < 5  # store_seconds is 1; the rest is the machine's
    s3.go_on()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])


def test_a_store_that_answers_503_is_called_once_and_the_file_is_queued(
    site: Site, line: Proxy, clock: Clock, query: Query, settled: Settled
) -> None:
    line.refuse()
    told = check_deferred(site.send(FILE))
    assert len(line.requests) == 1
    assert site.metric('storage_upload_failure_total{bucket="weighbridge",reason="rate_limit"}') == 1
    clock.forward(FIRST_PAUSE)
    until(lambda: query("SELECT retry_count FROM upload_queue") == [(1,)])
    assert len(line.requests) == 2
    assert site.metric('storage_queue_processed_total{status="postponed"}') == 1
    line.mend()
    site.start()
    clock.forward(minutes=3)
    settled(told["upload_id"])


def test_a_file_whose_storing_was_not_confirmed_is_stored_once(
    site: Site, s3: S3, line: Proxy, clock: Clock, settled: Settled
) -> None:
    line.mute()
    told = check_deferred(site.send(FILE))
    until(lambda: list(s3.stored.values()) == [len(FILE)])
    line.mend()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])
    assert list(s3.stored.values()) == [len(FILE)]


def test_a_file_is_stored_when_a_full_disk_has_space_again(
    make_site: Callable[..., Site], small_s3: S3, clock: Clock, settled: Settled
) -> None:
    small_s3.fill()
    site = make_site(WEIGHBRIDGE_BLOB_URL=small_s3.bucket_url, **small_s3.environment())
    told = check_deferred(site.send(FILE))
    small_s3.make_room()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(told["upload_id"])
    assert list(small_s3.stored.values()) == [len(FILE)]


def test_a_file_sent_again_while_it_waits_is_the_same_upload(
    site: Site, s3: S3, clock: Clock, settled: Settled
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


def test_many_senders_of_one_file_create_one_upload_and_one_waiting_file(
    site: Site, s3: S3, clock: Clock, query: Query, settled: Settled
) -> None:
    s3.kill()
    answers = [each.result() for each in [site.sending(FILE) for _ in range(4)]]
    assert sorted(each.status_code for each in answers) == [200, 200, 200, 202]
    [upload_id] = {each.json()["upload_id"] for each in answers}
    assert len(site.waiting) == 1
    s3.start()
    site.start()
    clock.forward(FIRST_PAUSE)
    settled(upload_id)


def test_after_the_last_retry_file_and_row_wait_for_an_operator(
    make_site: Callable[..., Site], s3: S3, line: Proxy, clock: Clock, query: Query, settled: Settled
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
    """The output of a command on that machine; it never has the path of waiting files."""
    done = subprocess.run(
        [prefork.command(), *arguments],
        env=site.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert str(site.queue) not in done.stdout + done.stderr
    return done.stdout
