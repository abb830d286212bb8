"""Runs a command; how long it took and how much memory it and its children held at most."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_SECONDS = 0.01


@dataclass(frozen=True)
class Run:
    """One finished command."""

    seconds: float  # from its start to its end, interpreter start included
    peak_mb: float  # resident memory of the process and its children, the Postgres server not among them
    output: str


class Failed(Exception):
    """A contender's command ended badly; the message has the end of what it printed."""


def measure(command: Sequence[str | Path], *, env: Mapping[str, str], stdin: Path | None = None) -> Run:
    """Run to the end, sampling memory on the way. Raises Failed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source = stdin.open("rb") if stdin else None
        try:
            started = time.perf_counter()
            process = subprocess.Popen(command, stdin=source, stdout=out, stderr=err, env=dict(env))
            memory = _Memory(process.pid)
            code = process.wait()
            seconds = time.perf_counter() - started
        finally:
            if source:
                source.close()
        peak = memory.stop()
        out.seek(0)
        err.seek(0)
        output, errors = out.read().decode(), err.read().decode()
    if code:
        raise Failed(f"{Path(command[0]).name} exited with {code}: {(errors + output).strip()[-800:]}")
    return Run(seconds, peak / 1e6, output)


class _Memory(threading.Thread):
    """Adds up the resident memory of a process tree, again and again, and keeps the largest sum."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._peak = 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self._peak = max(self._peak, _resident(self._pid))

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self._peak


def _resident(pid: int) -> int:
    total = 0
    try:
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    except psutil.NoSuchProcess:
        pass  # it ended while we looked: the sum so far is a fair sample
    return total
