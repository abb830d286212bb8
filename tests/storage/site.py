"""One machine of the service: an API and workers in processes of their own, with one folder for files that wait.

The processes run the commands `weighbridge api` and `weighbridge worker`, forked from a server that has imported
everything already. Nothing in them is replaced.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil

from tests.engine.conftest import meta_file
from tests.prefork import PROCESSES
from tests.proof.workers import until

FILE = meta_file(days=20, ads=40)
ROWS = 20 * 40
FIRST_PAUSE = timedelta(seconds=31)  # what a file waits before it is first tried again, and a little
DEFAULT_USER = UUID(int=0)

SETTINGS = {
    "WEIGHBRIDGE_STORE_SECONDS": "1",
    "WEIGHBRIDGE_POLL_SECONDS": "0.05",
    "WEIGHBRIDGE_LEASE_SECONDS": "60",  # nobody is taken over, however busy the machine, but by the clock
    "WEIGHBRIDGE_METRICS_TOKEN": "token",
}


class Site:
    """Its folder UPLOAD_QUEUE_DIR is named in nothing that it says; `end` looks."""

    def __init__(self, url: str, folder: Path, key: dict[str, str], **settings: str) -> None:
        folder.mkdir(exist_ok=True)
        self.queue = folder / "waiting"
        self._folder = folder
        self._key = key
        self._threads = ThreadPoolExecutor(4)
        self._programs: list[Program] = []
        self._settings = {
            **SETTINGS,
            "DATABASE_URL": url,
            "WEIGHBRIDGE_HOME": str(folder / "home"),
            "WEIGHBRIDGE_PORT": "0",
            "UPLOAD_QUEUE_DIR": str(self.queue),
            **settings,
        }

    @property
    def environment(self) -> dict[str, str]:
        """For a command on this machine."""
        return {**os.environ, **self._settings}

    def start(self, command: str = "worker", **settings: str) -> Program:
        """One more `worker`, or an `api`, once it listens."""
        log = self._folder / f"{command}-{len(self._programs)}.log"
        program = Program(command, {**self._settings, **settings}, log)
        self._programs.append(program)
        if command == "api":
            self._listening = program
            self._api = httpx.Client(base_url=program.url, headers=self._key, timeout=60)
        return program

    def kill(self) -> None:
        """SIGKILL for the API."""
        self._listening.kill()

    def stop(self) -> None:
        self._listening.stop()

    def send(self, content: bytes, path: str = "/upload_file", **fields: str) -> httpx.Response:
        answer = self._api.post(
            path, data={"platform": "meta", **fields}, files={"file": ("export.csv", content)}
        )
        assert str(self._folder) not in answer.text
        return answer

    def sending(self, content: bytes, path: str = "/upload_file") -> Future[httpx.Response]:
        """From another thread, while a test does something to it."""
        return self._threads.submit(self.send, content, path)

    def get(self, path: str) -> Any:
        answer = self._api.get(path)
        assert answer.status_code == 200, answer.text
        assert str(self._folder) not in answer.text
        return answer.json()

    def metric(self, sample: str) -> float:
        """`metric('storage_queue_depth')`, of the API's process."""
        scraped = self._api.get("/metrics", headers={"Authorization": "Bearer token"}).text
        found = re.search(rf"^{re.escape(sample)} (\S+)$", scraped, re.MULTILINE)
        return float(found[1]) if found else 0

    @property
    def waiting(self) -> list[Path]:
        """The files that wait."""
        return [each for each in self.queue.glob("*/*") if each.name != "spool-id"]

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of this name in all logs."""
        lines = [line for program in self._programs for line in program.log.splitlines()]
        return [
            found for line in lines if line.startswith("{") and (found := json.loads(line))["event"] == event
        ]

    def end(self) -> None:
        for program in self._programs:
            program.kill()
        self._threads.shutdown()
        for program in self._programs:
            assert str(self._folder) not in program.log
            assert "Traceback" not in program.log
            assert not re.search(r'"level": ?"(critical|exception)"|chore_failed', program.log), program.log


def check_deferred(answer: httpx.Response) -> dict[str, str]:
    """The contract's answer, and nothing but the upload's id beside it."""
    assert answer.status_code == 202, answer.text
    told: dict[str, str] = answer.json()
    assert told == {
        "status": "pending_retry",
        "queue_id": str(UUID(told["queue_id"])),
        "storage_status": "pending_retry",
        "upload_id": str(UUID(told["upload_id"])),
    }
    return told


class Program:
    """A process, seen from outside."""

    def __init__(self, command: str, environment: dict[str, str], log: Path) -> None:
        self._log = log
        self._process = PROCESSES.Process(target=_run, args=(command, environment, str(log)), daemon=True)
        self._process.start()

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def url(self) -> str:
        """Where an API listens."""

        def address() -> re.Match[str] | None:
            assert self._process.exitcode is None, self.log
            return re.search(r"listens on (http://\S+)", self.log)

        return str(until(address)[1])

    def kill(self) -> None:
        """SIGKILL: whatever it was doing."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Ask it to stop."""
        self._signal(signal.SIGTERM)
        self._process.join(20)
        assert self._process.exitcode == 0, self.log

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        until(lambda: psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, which)


def _run(command: str, environment: dict[str, str], log: str) -> None:
    """Inside the process."""
    from weighbridge.cli import main

    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    sys.argv = ["weighbridge", command]
    main()
