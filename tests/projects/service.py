"""The whole service in processes of its own, and a client that speaks to it: two APIs, three workers, one database."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg

from tests import prefork
from tests.api.conftest import new_key
from tests.proof.scene import Stage
from tests.proof.workers import Fleet
from weighbridge.postgres.transactions import Database

APIS, WORKERS = 2, 3
SETTINGS = {
    "WEIGHBRIDGE_BATCH_ROWS": "100",  # ten commits of keywords in a file of a thousand
    "WEIGHBRIDGE_LEASE_SECONDS": "4",
    "WEIGHBRIDGE_POLL_SECONDS": "0.2",
}
ENDED = {"succeeded", "failed"}
MOVES = {("queued", "running"), *((begun, end) for begun in ("queued", "running") for end in ENDED)}
BACK = ("running", "queued")

Status = dict[str, Any]


class Service:
    """Two APIs and three workers that share a database and a folder of files."""

    def __init__(self, url: str, folder: Path) -> None:
        self.stage = Stage(url)
        self._home = folder / "home"
        self._fleet = Fleet(self._home, folder)
        self._apis = [self._start_api(folder / f"api-{number}.log") for number in range(APIS)]
        for _ in range(WORKERS):
            self.start_worker()
        self.addresses = [_address(log) for _, log in self._apis]

    def _start_api(self, log: Path) -> tuple[subprocess.Popen[bytes], Path]:
        environment = {
            **os.environ,
            **SETTINGS,
            "DATABASE_URL": self.stage.url,
            "WEIGHBRIDGE_HOME": str(self._home),
            "WEIGHBRIDGE_PORT": "0",
        }
        with log.open("wb") as said:
            command = [prefork.command(), "api"]
            return subprocess.Popen(command, env=environment, stderr=said), log

    def start_worker(self) -> None:
        self._fleet.start(self.stage.url, **SETTINGS)

    def client(self, workspace: UUID) -> Client:
        return Client(self, workspace, asyncio.run(self._key(workspace)))

    async def _key(self, workspace: UUID) -> dict[str, str]:
        db = Database(self.stage.url, size=1)
        await db.open()
        try:
            return await new_key(db, workspace, ("upload", "read", "operate"))
        finally:
            await db.close()

    @contextmanager
    def blocked(self, statement: str, params: Any = None) -> Iterator[None]:
        """A transaction that stands in the way of whoever comes, and is gone in the end."""
        with psycopg.connect(self.stage.url, application_name="test") as connection:
            connection.execute(statement, params)
            yield
            connection.rollback()

    def kill(self, owner: str) -> None:
        """SIGKILL for the worker of that name, host:pid:xxxxxx."""
        os.kill(int(owner.split(":")[1]), signal.SIGKILL)
        self.start_worker()

    def end(self) -> None:
        self._fleet.kill()
        for api, _ in self._apis:
            api.terminate()
        for api, _ in self._apis:
            assert api.wait(20) is not None
        self.stage.close()


def _address(log: Path) -> str:
    give_up = time.monotonic() + 30
    while not (found := re.search(r"listens on (http://\S+)", log.read_text())):
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.02)
    return found.group(1)


class Client:
    """Somebody of one workspace, who reaches now the one API, now the other; project 1 unless told otherwise."""

    def __init__(self, service: Service, workspace: UUID, key: dict[str, str]) -> None:
        self.workspace = workspace
        self._https = [httpx.Client(base_url=url, headers=key, timeout=60) for url in service.addresses]
        self._next = cycle(self._https)

    def make_project(self) -> None:
        """Before its first file; that would make it too."""
        made = next(self._next).post("/api/projects", json={"name": "Keywords", "project_id": 1})
        assert made.status_code == 201

    def send(self, *files: tuple[str, bytes], **fields: str) -> Any:
        """The answer to one request with these files."""
        answer = next(self._next).post(
            "/api/uploads",
            data={"pipeline": "keywords", "project_id": "1", **fields},
            files=[("file", file) for file in files],
        )
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def send_at_once(self, files: list[tuple[str, bytes]]) -> list[Any]:
        """Each file in a request of its own, from as many threads."""
        with ThreadPoolExecutor(len(files)) as threads:
            return list(threads.map(self.send, files))

    def get(self, path: str) -> Any:
        answer = next(self._next).get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def edit(self, path: str, body: Any = None) -> httpx.Response:
        return next(self._next).post(f"/api/projects/1/{path}", json=body)

    def status(self) -> Status:
        """Of either name and either API: both say the same."""
        return dict(self.get(f"/projects/1/processing{next(_SPELLED)}status"))

    def watch(self, files: int, *, lost: str | None = None) -> list[Status]:
        """Ask until so many files have ended and the groups are free; every answer on the way must make sense.

        `lost` names a job that may go back to its queue: its runner was killed.
        """
        seen = self.watch_until(lambda s: not s["locked"] and s["processedFileCount"] >= files, lost=lost)
        check_end(seen[-1], files)
        return seen

    def watch_until(
        self, seen_enough: Callable[[Status], bool], *, lost: str | None = None, within: float = 60
    ) -> list[Status]:
        give_up = time.monotonic() + within
        seen: list[Status] = []
        while not seen or not seen_enough(seen[-1]):
            assert time.monotonic() < give_up, f"still {seen[-1]} after {within} s"
            seen.append(self.status())
            check(seen[-1])
            if len(seen) > 1:
                check_pair(seen[-2], seen[-1], lost)
            time.sleep(0.01)
        return seen


_SPELLED = cycle("/-")


def check(status: Status) -> None:
    """What holds at any moment."""
    names = {state: [f["filename"] for f in status["files"] if f["status"] == state] for state in STATES}
    assert [status[f"{state}_jobs"] for state in STATES] == [len(names[state]) for state in STATES]
    assert sum(status[f"{state}_jobs"] for state in STATES) == status["uploadedFileCount"]
    assert status["processedFileCount"] == status["succeeded_jobs"] + status["failed_jobs"]
    assert (status["queuedJobs"], status["runningJobs"]) == (status["queued_jobs"], status["running_jobs"])
    assert status["uploadedFiles"] == [file["filename"] for file in status["files"]]
    assert status["queuedFiles"] == names["queued"]
    assert sorted(status["processedFiles"]) == sorted(names["succeeded"] + names["failed"])
    assert [error["filename"] for error in status["fileErrors"]] == names["failed"]
    assert status["running_jobs"] <= 1
    assert [status["current_file"]] == (names["running"] or [None])
    assert status["currentFileName"] == status["current_file"]
    assert status["locked"] or status["processedFileCount"] == status["uploadedFileCount"]
    assert (status["status"] == "processing") <= status["locked"]
    for rows in (*status["files"], status["progress"]):
        assert 0 <= rows["rows_processed"] <= rows["rows_total"]
    for rows in ("rows_total", "rows_processed"):
        assert status["progress"][rows] == sum(file[rows] for file in status["files"])


STATES = ("queued", "running", "succeeded", "failed")


def check_pair(before: Status, after: Status, lost: str | None) -> None:
    """What holds of two answers, one after the other: nothing goes back but a job that has lost its runner."""
    for count in ("uploadedFileCount", "processedFileCount", "succeeded_jobs", "failed_jobs", "groupings"):
        assert before[count] <= after[count], count
    now = {file["job_id"]: file for file in after["files"]}
    for old in before["files"]:
        new = now[old["job_id"]]
        moved = (old["status"], new["status"])
        assert old["status"] == new["status"] or moved in MOVES or (old["job_id"] == lost and moved == BACK)
        assert old["attempts"] <= new["attempts"]
        assert old["rows_processed"] <= new["rows_processed"]
        assert old["rows_total"] <= new["rows_total"]


def check_end(status: Status, files: int) -> None:
    assert (status["uploadedFileCount"], status["processedFileCount"]) == (files, files)
    assert (status["locked"], status["status"], status["current_file"]) == (False, "complete", None)
    assert status["progress"]["rows_processed"] == status["progress"]["rows_total"]
