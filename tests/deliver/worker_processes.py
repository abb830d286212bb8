"""Workers in processes of their own, that deliver and can be killed or frozen at an exact moment.

A worker runs `deliver` once, on everything that a service would read of its settings; or it stays, as the command
`weighbridge worker`. Nothing in it is replaced. It is forked from a server that has imported everything already. Where
a Moment is given, it sends the signal to itself around its n-th commit that wrote, so that a test hits the same commit
every time. For two groups with slots in Postgres these are: the claim, the slots, the slots given back, the settling.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from tests.prefork import PROCESSES
from tests.proof.workers import Moment, _at_commit, until


@dataclass(frozen=True)
class WorkerRequest:
    limit: int = 10_000
    moment: Moment | None = None
    # Of its slots and leases, where what it leaves behind is to be over soon: Redis has no clock that could be moved.
    ttl: timedelta | None = None
    stays: bool = False


class WorkerProcess:
    """One worker process, seen from outside."""

    def __init__(self, environment: Mapping[str, str], log: Path, request: WorkerRequest) -> None:
        self._log = log
        self._process = PROCESSES.Process(
            target=_run, args=(dict(environment), str(log), request), daemon=True
        )
        self._process.start()

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log.splitlines() if line.startswith("{") and line.endswith("}")]
        return [found for line in lines if (found := json.loads(line))["event"] == event]

    @property
    def frozen(self) -> bool:
        return (
            self._process.is_alive() and psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
        )

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        until(lambda: self.frozen)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: whatever it was doing."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def wait(self, *, within: float = 20) -> int:
        self._process.join(within)
        assert self.exit_code is not None, f"still running after {within} s; it said {self.log}"
        return self.exit_code

    def _signal(self, which: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, which)


class WorkerProcesses:
    """Starts worker processes; none outlives the test."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.environment = {"WEIGHBRIDGE_HOME": str(folder / "home"), **environment}
        self._folder = folder
        self._started: list[WorkerProcess] = []

    def start(self, request: WorkerRequest | None = None) -> WorkerProcess:
        log = self._folder / f"worker-{len(self._started)}.log"
        worker = WorkerProcess(self.environment, log, request or WorkerRequest())
        self._started.append(worker)
        return worker

    def deliver(self) -> None:
        """One run that nothing disturbs."""
        worker = self.start()
        assert worker.wait() == 0, worker.log

    @property
    def logs(self) -> str:
        return "".join(worker.log for worker in self._started)

    def close(self) -> None:
        for worker in self._started:
            worker.kill()


# Inside the process -----------------------------------------------------------------------------------------


def _run(environment: dict[str, str], log: str, request: WorkerRequest) -> None:
    from weighbridge.cli import main
    from weighbridge.observe import logs

    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    if request.stays:
        sys.argv = ["weighbridge", "worker"]
        main()
        return
    logs.configure()
    asyncio.run(_deliver(request))


async def _deliver(request: WorkerRequest) -> None:
    from weighbridge.app import open_app
    from weighbridge.delivery.deliver import deliver
    from weighbridge.settings import read

    async with open_app(read()) as app:
        ctx = replace(app.ctx, outbound=_shortened(app, request.ttl)) if request.ttl else app.ctx
        with _at_commit(request.moment) if request.moment else nullcontext():
            await deliver(ctx, f"worker {os.getpid()}", request.limit)


def _shortened(app: Any, ttl: timedelta) -> Any:
    from weighbridge.delivery.slots.postgres import PostgresSlots
    from weighbridge.delivery.slots.redis import RedisSlots

    limits = replace(app.ctx.outbound.limits, ttl=ttl)
    redis = app.settings.redis_url
    slots = RedisSlots(redis.get_secret_value(), limits) if redis else PostgresSlots(app.db, limits)
    return replace(app.ctx.outbound, limits=limits, slots=slots)
