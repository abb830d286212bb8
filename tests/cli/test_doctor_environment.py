"""`weighbridge doctor` beside the database: addresses for alerts, keys, disks, clocks, stores, settings."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.intake.test_blob_stores import bucket  # noqa: F401 (a real S3 server)
from weighbridge.cli.doctor.check import CheckStatus
from weighbridge.cli.doctor.database import check_skew
from weighbridge.cli.doctor.machine import GB, check_space
from weighbridge.postgres.doctor import Skew

from .conftest import Command
from .test_doctor import found, statuses

# Alerts -----------------------------------------------------------------------------------------------------


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a real HTTP server, as apprise writes it, and what it has been sent. /gone answers 404."""
    heard: list[bytes] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(404 if self.path.startswith("/gone") else 200)
            self.end_headers()
            heard.append(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"json://user:hunter2@127.0.0.1:{server.server_port}", heard
        server.shutdown()


def test_an_address_that_takes_a_message_is_well(main: Command, webhook: tuple[str, list[bytes]]) -> None:
    address, heard = webhook
    done = main("doctor", "--json", WEIGHBRIDGE_ALERT_URLS=f"{address}/a,{address}/b")
    assert (done.code, done.json["status"]) == (0, "ok")
    assert found(done, "webhook")["found"] == "All 2 addresses accepted a test message."
    assert len(heard) == 2
    assert all(b"Test message from weighbridge doctor" in body for body in heard)


def test_without_sending_an_address_is_only_read(main: Command, webhook: tuple[str, list[bytes]]) -> None:
    address, heard = webhook
    done = main("doctor", "--no-send", "--json", WEIGHBRIDGE_ALERT_URLS=f"{address}/gone")
    assert found(done, "webhook")["found"] == "The address is valid; no test message was sent."
    assert (done.code, heard) == (0, [])


def test_a_wrong_alert_url_is_reported_by_its_number_and_never_shown(
    weighbridge: Command, webhook: tuple[str, list[bytes]]
) -> None:
    address, heard = webhook
    urls = f"{address}/ok,{address}/gone/s3cret,json://u:hunter2@127.0.0.1:1/s3cret,s3cret://hunter2/x"
    done = weighbridge("doctor", "--json", WEIGHBRIDGE_ALERT_URLS=urls)
    assert done.code == 1
    assert found(done, "webhook")["found"] == (
        "Address 2 did not accept a test message (it answered 404 Not Found). "
        "Address 3 did not accept a test message (no HTTP response). Address 4 is not an address that apprise supports."
    )
    assert "WEIGHBRIDGE_ALERT_URLS" in found(done, "webhook")["fix"]
    assert len(heard) == 2
    for shown in (done, weighbridge("doctor", WEIGHBRIDGE_ALERT_URLS=urls)):
        assert shown.err == ""
        assert "hunter2" not in shown.out
        assert "s3cret" not in shown.out


# The machine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["WEIGHBRIDGE_VAULT_KEY", "OPSMANTIK_VAULT_KEY"])
def test_the_vaults_key_is_32_bytes_and_never_shown(main: Command, name: str) -> None:
    good = base64.b64encode(os.urandom(32)).decode()
    done = main("doctor", "--json", **{name: good})
    assert (found(done, "vault key")["status"], done.code) == ("ok", 0)
    for bad, got in (
        ("hunter2!", "got something else"),
        (base64.b64encode(b"hunter2").decode(), "got 7 bytes"),
    ):
        done = main("doctor", "--json", **{name: bad})
        assert (found(done, "vault key")["status"], done.code) == ("failed", 1)
        assert got in found(done, "vault key")["found"]
        assert bad not in done.out


def test_the_command_that_makes_a_key_makes_a_good_one(main: Command) -> None:
    assignment = found(main("doctor", "--json"), "vault key")["fix"]
    ours = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    made = subprocess.check_output(
        ["sh", "-c", f"{assignment}; echo $WEIGHBRIDGE_VAULT_KEY"], text=True, env=ours
    )
    assert found(main("doctor", "--json", WEIGHBRIDGE_VAULT_KEY=made.strip()), "vault key")["status"] == "ok"


@pytest.mark.parametrize(
    ("free", "total", "status"),
    [
        (GB - 1, 8 * GB, CheckStatus.FAILED),
        (GB, 8 * GB, CheckStatus.WARNING),
        (5 * GB - 1, 8 * GB, CheckStatus.WARNING),
        (5 * GB, 8 * GB, CheckStatus.OK),
        (99 * GB, 1000 * GB, CheckStatus.WARNING),
        (100 * GB, 1000 * GB, CheckStatus.OK),
    ],
)
def test_a_disk_is_reported_before_it_is_full(free: int, total: int, status: CheckStatus) -> None:
    assert check_space(free, total) == status


@pytest.mark.parametrize(
    ("seconds", "doubt", "status"),
    [
        (1.9, 0, CheckStatus.OK),
        (-2.1, 0, CheckStatus.WARNING),
        (2.1, 0.5, CheckStatus.OK),
        (-29, 0, CheckStatus.WARNING),
        (31, 0.5, CheckStatus.FAILED),
    ],
)
def test_clocks_may_differ_by_two_seconds_besides_the_round_trip(
    seconds: float, doubt: float, status: CheckStatus
) -> None:
    assert check_skew(Skew(seconds, doubt)).status == status


def test_an_unusable_file_store_is_reported(main: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url, words in (
        (tmp_path / "file", "The file store cannot be used now"),
        ("ftp://u:hunter2@x", "expected a folder or s3://bucket/prefix"),
    ):
        done = main("doctor", "--json", WEIGHBRIDGE_BLOB_URL=str(url))
        assert "hunter2" not in done.out
        assert statuses(done, "failed") == {"file store"}
        assert words in found(done, "file store")["found"]


def test_nothing_stays_in_the_file_store(main: Command, home: Path) -> None:
    assert main("doctor").code == 0
    assert list((home / "blobs").iterdir()) == []


def test_a_bucket_is_tried_and_left_empty(main: Command, bucket: str) -> None:  # noqa: F811
    from obstore.store import S3Store

    done = main("doctor", "--json", WEIGHBRIDGE_BLOB_URL=bucket)
    assert found(done, "file store")["found"] == "The bucket: a test file was stored, read and deleted."
    assert "blobs" not in found(done, "disk space")["found"]
    assert list(S3Store.from_url(bucket).list().collect()) == []
    gone = main("doctor", "--json", WEIGHBRIDGE_BLOB_URL="s3://no-such-bucket")
    assert statuses(gone, "failed") == {"file store"}


def test_a_home_folder_without_write_access_is_reported(main: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = main("doctor", "--json", WEIGHBRIDGE_HOME=str(tmp_path / "file"))
    assert {"home", "queue folder", "file store"} == statuses(done, "failed")
    assert "Weighbridge cannot write to" in found(done, "home")["found"]


def test_wrong_settings_are_reported_and_no_other_check_runs(main: Command) -> None:
    done = main("doctor", "--json", WEIGHBRIDGE_PORT="high")
    assert done.code == 1
    assert [check["name"] for check in done.json["checks"]] == ["settings"]
    assert "WEIGHBRIDGE_PORT: input should be a valid integer" in done.json["checks"][0]["found"]


def test_a_missing_module_is_reported(main: Command) -> None:
    done = main("doctor", "--json", WEIGHBRIDGE_PIPELINES="no.such")
    assert statuses(done, "failed") == {"pipelines"}
    assert "cannot import 'no.such'" in found(done, "pipelines")["found"]


def test_a_timeout_that_differs_from_the_specified_one_is_reported(main: Command) -> None:
    done = main("doctor", "--json", WEIGHBRIDGE_PROCESSING_TIMEOUT_HOURS="3")
    assert (done.code, found(done, "processing timeout")["status"]) == (0, "warning")
    assert "after 3 hours" in found(done, "processing timeout")["found"]
