"""A real tus client (tuspy), a real service in its own process, and a connection between them that breaks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import psycopg
import pytest
from tusclient.client import TusClient

from tests import prefork
from tests.api.conftest import new_key
from tests.storage.files import PART, VERSION, metadata
from tests.storage.proxy import Proxy
from weighbridge.postgres.transactions import Database

ROWS = 12_000
HEADER = "Day,Campaign name,Amount spent (USD),Notes\n"


class Service:
    """`weighbridge up`, which can be killed and comes back at the same address, with the same folders."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._port = 0
        self.start()

    def start(self) -> None:
        self._log = log = self._folder / f"{uuid4()}.log"
        environment = {
            **os.environ,
            "DATABASE_URL": self.url,
            "WEIGHBRIDGE_HOME": str(self._folder / "home"),
            "WEIGHBRIDGE_PORT": str(self._port),
            "WEIGHBRIDGE_POLL_SECONDS": "0.2",
        }
        with log.open("wb") as said:
            command = [prefork.command(), "up"]
            self._process = subprocess.Popen(command, env=environment, stderr=said)
        self._port = until(lambda: self._listens(log))

    def _listens(self, log: Path) -> int:
        assert self._process.poll() is None, log.read_text()
        found = re.search(r"listens on http://\S+:(\d+)", log.read_text())
        return int(found.group(1)) if found else 0

    def kill(self) -> None:
        """The process is gone afterwards, and with it its locks: tests/prefork ends a command just after its client."""
        [process] = re.findall(r"Started server process \[(\d+)\]", self._log.read_text())
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        until(lambda: not psutil.pid_exists(int(process)))

    def stop(self) -> None:
        """As a deploy does. It must not wait for senders."""
        self._process.terminate()
        self._process.wait(8)

    @property
    def port(self) -> int:
        return self._port

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def key(self, workspace: UUID) -> dict[str, str]:
        async def make() -> dict[str, str]:
            db = Database(self.url, size=1)
            await db.open()
            try:
                return await new_key(db, workspace, ("upload", "read"))
            finally:
                await db.close()

        return asyncio.run(make())

    def ask(self, statement: str, *params: Any) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(statement, params).fetchone()  # type: ignore[call-overload]
        return row and row[0]

    def received(self, workspace: UUID) -> int:
        """The recorded bytes of the workspace's file."""
        return int(
            self.ask("SELECT received FROM weighbridge.resumable_uploads WHERE workspace_id = %s", workspace)
            or 0
        )

    def result(self, workspace: UUID) -> tuple[Any, ...]:
        """The workspace's one upload, once it has ended, and what it left in production."""
        ended = (
            "SELECT status IN ('completed', 'partial', 'failed') FROM data_uploads WHERE workspace_id = %s"
        )
        until(lambda: self.ask(ended, workspace), within=30)
        with psycopg.connect(self.url) as connection:
            uploads = connection.execute(
                "SELECT status, content_sha256, byte_size, bins, total_rows, promoted_rows, failed_rows"
                " FROM data_uploads WHERE workspace_id = %s",
                (workspace,),
            ).fetchall()
            rows = connection.execute(
                "SELECT count(*), sum(spend) FROM daily_metrics WHERE workspace_id = %s", (workspace,)
            ).fetchall()
        assert len(uploads) == 1
        return uploads[0], rows[0]


def until(question: Callable[[], Any], *, within: float = 20) -> Any:
    give_up = time.monotonic() + within
    while not (answer := question()):
        assert time.monotonic() < give_up, f"still {answer!r} after {within} s"
        time.sleep(0.01)
    return answer


@pytest.fixture(scope="module")
def service(shared_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(shared_database_url, tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 25 MB: twelve thousand rows with long notes."""
    path = tmp_path_factory.mktemp("export") / "export.csv"
    with path.open("w") as file:
        file.write(HEADER)
        for row in range(ROWS):
            file.write(
                f"2025-01-{row % 28 + 1:02},Campaign {row // 28},{row % 97}.25,{f'note {row} ' * 205}\n"
            )
    assert 23 << 20 < path.stat().st_size < 30 << 20
    return path


@pytest.fixture(scope="module")
def plain(service: Service, export: Path) -> tuple[Any, ...]:
    """The result of the same file in one request over a good connection."""
    workspace = uuid4()
    with export.open("rb") as file:
        sent = httpx.post(
            f"{service.address}/api/uploads",
            headers=service.key(workspace),
            data={"platform": "meta"},
            files={"file": ("export.csv", file)},
            timeout=30,
        )
    assert sent.status_code == 201, sent.text
    result = service.result(workspace)
    assert result[0][0] == "completed"
    assert result[1][0] == ROWS
    return result


@pytest.fixture
def line(service: Service) -> Iterator[Proxy]:
    with Proxy(service.port) as proxy:
        yield proxy


def uploader(line: Proxy, key: dict[str, str], export: Path, **how: Any) -> Any:
    said = {"platform": "meta", "filename": "export.csv"}
    client = TusClient(f"{line.url}/api/files", headers=key)
    return client.uploader(str(export), metadata=said, retries=600, retry_delay=0.05, **how)


def test_a_connection_that_breaks_repeatedly_gives_the_same_rows(
    service: Service, line: Proxy, export: Path, plain: tuple[Any, ...], workspace: UUID
) -> None:
    sending = uploader(line, service.key(workspace), export)
    line.cut(after=4_000_000, times=6)
    sending.upload()
    assert sending.offset == export.stat().st_size
    assert line.requests.count("POST /api/files") == 1
    assert sum(each.startswith("PATCH") for each in line.requests) >= 6
    assert service.result(workspace) == plain


def test_parts_with_checksums_give_the_same_rows_too(
    service: Service, line: Proxy, export: Path, plain: tuple[Any, ...], workspace: UUID
) -> None:
    sending = uploader(line, service.key(workspace), export, chunk_size=2 << 20, upload_checksum=True)
    line.cut(after=5_000_000, times=4)
    sending.upload()
    assert service.result(workspace) == plain


def test_an_upload_continues_where_it_was_after_the_service_restarts(
    service: Service, line: Proxy, export: Path, plain: tuple[Any, ...], workspace: UUID
) -> None:
    sending = uploader(line, service.key(workspace), export)
    line.slow(12_000_000)
    with ThreadPoolExecutor(1) as threads:
        going = threads.submit(sending.upload)
        try:
            for end, share in ((service.kill, 6), (service.stop, 4)):
                until(lambda share=share: service.received(workspace) > export.stat().st_size // share)
                end()
                kept = service.received(workspace)
                service.start()
            line.mend()
            going.result(20)
        finally:
            sending.retries = 0
    assert kept > export.stat().st_size // 4
    assert service.result(workspace) == plain


def test_a_client_that_reconnects_before_the_server_notices_does_not_wait(
    service: Service, line: Proxy, export: Path, plain: tuple[Any, ...], workspace: UUID
) -> None:
    """The connection hangs: for the server it is still open."""
    sending = uploader(line, service.key(workspace), export)
    line.hang(after=9_000_000)
    stuck = threading.Thread(target=lambda: _given_up(sending), daemon=True)
    stuck.start()
    assert line.stuck.wait(20)
    until(lambda: service.received(workspace) > 8_000_000)
    began = time.monotonic()
    again = TusClient(f"{service.address}/api/files", headers=service.key(workspace))
    url = sending.url.replace(line.url, service.address)
    resumed = again.uploader(str(export), url=url)
    assert 8_000_000 < resumed.offset < 9_000_000
    resumed.upload()
    assert time.monotonic() - began < 5
    assert service.result(workspace) == plain


def _given_up(sending: Any) -> None:
    sending.retries = 0
    with pytest.raises(Exception):  # noqa: B017 (whatever tuspy makes of a line that is closed in the end)
        sending.upload()


def test_a_process_killed_during_a_part_keeps_the_recorded_bytes(
    service: Service, export: Path, plain: tuple[Any, ...], workspace: UUID
) -> None:
    content, key = export.read_bytes(), {**service.key(workspace), **VERSION}
    begun = httpx.post(
        f"{service.address}/api/files",
        headers={**key, "Upload-Length": str(len(content)), "Upload-Metadata": metadata(platform="meta")},
    )
    url = service.address + begun.headers["location"]
    sent, killed = threading.Event(), threading.Event()

    def hanging() -> Iterator[bytes]:
        yield content[:10_000_000]
        sent.set()
        killed.wait(10)

    def send() -> None:
        with pytest.raises(httpx.HTTPError):
            httpx.patch(url, headers={**key, **PART, "Upload-Offset": "0"}, content=hanging(), timeout=30)

    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send)
        assert sent.wait(10)
        until(lambda: service.received(workspace))
        service.kill()
        killed.set()
        sending.result(10)
    noted = service.received(workspace)
    service.start()
    asked = httpx.head(url, headers=key)
    assert int(asked.headers["upload-offset"]) == noted >= 8 << 20
    last = httpx.patch(
        url, headers={**key, **PART, "Upload-Offset": str(noted)}, content=content[noted:], timeout=30
    )
    assert (last.status_code, last.headers["weighbridge-duplicate"]) == (204, "false")
    assert service.result(workspace) == plain
