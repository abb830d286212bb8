"""Real worker processes, and the exact moments at which one is killed or frozen.

A worker runs the command `weighbridge worker` in a process of its own, forked from a server that has imported
everything already: 30 ms instead of a second. Nothing in it is replaced. Where a Moment is given, the worker sends
the signal to itself there, so that a test hits the same commit every time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil

from tests.prefork import PROCESSES

T = TypeVar("T")

# make soak: every commit, where otherwise a part of them must do.
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

SETTINGS = {
    "WEIGHBRIDGE_BATCH_ROWS": "4",  # a small file has many commits
    "WEIGHBRIDGE_LEASE_SECONDS": "6",  # looks for lost work every two seconds
    "WEIGHBRIDGE_POLL_SECONDS": "0.05",
    "WEIGHBRIDGE_WORKER_SLOTS": "1",
}
LONG_LEASE = {"WEIGHBRIDGE_LEASE_SECONDS": "60"}  # no takeover, however busy the machine is


def until(question: Callable[[], T], *, within: float = 30) -> T:
    """The first true answer; fails after so many seconds."""
    give_up = time.monotonic() + within
    while not (answer := question()):
        assert time.monotonic() < give_up, f"still {answer!r} after {within} s"
        time.sleep(0.005)
    return answer


def points(share: int, shares: int, *, every: int = 1, first: int = 1) -> Iterator[int]:
    """The commits that one of several tests looks at: they are dealt out, so that the tests run side by side."""
    step = 1 if LONG else every
    return count((1 if LONG else first) + share * step, shares * step)


@dataclass(frozen=True)
class Moment:
    """Before or after the worker's n-th commit of a transaction that wrote, or before the n-th piece of a COPY."""

    at: Literal["before", "after", "copy"]
    count: int
    signal: signal.Signals


class Worker:
    """A worker process, seen from outside."""

    def __init__(
        self, url: str, home: Path, log: Path, moment: Moment | None, settings: dict[str, str]
    ) -> None:
        environment = {"DATABASE_URL": url, "WEIGHBRIDGE_HOME": str(home), **SETTINGS, **settings}
        self._log = log
        self._process = PROCESSES.Process(target=_run, args=(environment, str(log), moment), daemon=True)
        self._process.start()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def frozen(self) -> bool:
        return (
            self._process.is_alive() and psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
        )

    @property
    def said(self) -> list[str]:
        """The events in its log so far."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line)["event"] for line in lines if line.startswith("{") and line.endswith("}")]

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        until(lambda: self.frozen)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        until(lambda: self.said)  # it logs its first chore: it listens to signals by now
        self._signal(signal.SIGTERM)

    def stop(self, *, within: float = 15) -> int:
        """Ask it to stop; its exit code."""
        self.terminate()
        return self.wait(within=within)

    def wait(self, *, within: float = 15) -> int:
        self._process.join(within)
        assert self.exit_code is not None, f"still running after {within} s; it said {self.said}"
        return self.exit_code

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def _signal(self, which: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, which)


class Fleet:
    """Starts workers; none outlives the test."""

    def __init__(self, home: Path, logs: Path) -> None:
        self._home, self._logs = home, logs
        self.started: list[Worker] = []

    def start(self, url: str, moment: Moment | None = None, **settings: str) -> Worker:
        log = self._logs / f"worker-{len(self.started)}.log"
        worker = Worker(url, self._home, log, moment, settings)
        self.started.append(worker)
        return worker

    def kill(self) -> None:
        for worker in self.started:
            worker.kill()


# Inside the process -----------------------------------------------------------------------------------------


def _run(environment: dict[str, str], log: str, moment: Moment | None) -> None:
    from weighbridge.cli import main

    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    sys.argv = ["weighbridge", "worker"]
    if moment is None:
        main()
        return
    with _in_copy(moment) if moment.at == "copy" else _at_commit(moment):
        main()


@contextmanager
def _at_commit(moment: Moment) -> Iterator[None]:
    """Count the transactions that wrote: those that Postgres gave an id. A poll that found nothing has none."""
    from weighbridge.postgres.transactions import Database

    begin = Database._begin
    commits = 0

    @asynccontextmanager
    async def counted(self: Database) -> AsyncIterator[Any]:
        nonlocal commits
        mine = 0
        async with begin(self) as tx:
            yield tx
            row = await (await tx.execute("SELECT pg_current_xact_id_if_assigned()")).fetchone()
            if row and row[0] is not None:
                mine = commits = commits + 1
            if (moment.at, moment.count) == ("before", mine):
                os.kill(os.getpid(), moment.signal)
        if (moment.at, moment.count) == ("after", mine):
            os.kill(os.getpid(), moment.signal)

    Database._begin = counted  # type: ignore[method-assign]
    yield


@contextmanager
def _in_copy(moment: Moment) -> Iterator[None]:
    from psycopg import AsyncCopy

    write = AsyncCopy.write
    pieces = 0

    async def counted(self: AsyncCopy, buffer: Any) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == moment.count:
            os.kill(os.getpid(), moment.signal)
        await write(self, buffer)

    AsyncCopy.write = counted  # type: ignore[method-assign]
    yield
