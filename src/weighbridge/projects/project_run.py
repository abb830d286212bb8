"""One run over a project: its jobs in order of arrival until none is queued, then one grouping.

lease → [job → job → …] → group → release
          ↑                          │ a file arrived meanwhile
          └──────────────────────────┘
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

import structlog
from structlog.contextvars import bound_contextvars

from weighbridge.engine import recover
from weighbridge.engine.leases import Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.engine.signals import Signals
from weighbridge.model.errors import LeaseLost, RetryLater, StopRequested, WeighbridgeError
from weighbridge.model.project import Project
from weighbridge.model.retry import GROUPING, NEXT_FILE
from weighbridge.observe import journal
from weighbridge.postgres.transactions import Lease
from weighbridge.projects import queue
from weighbridge.projects.grouping import group_keywords
from weighbridge.projects.groups import Grouped
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.claim import UploadWork, claim_request
from weighbridge.uploads.context import Context
from weighbridge.uploads.queue import ClaimRequest

log = structlog.get_logger()


@dataclass(frozen=True)
class ProjectQueue:
    """The queue of projects, as a worker claims from it."""

    ctx: Context
    options: WorkerOptions
    leases: Leases
    signals: Signals

    async def claim(self, skip: frozenset[UUID]) -> ProjectRun | None:
        request = claim_request(self.ctx, self.options)
        async with self.ctx.db.tx() as tx:
            claimed = await queue.claim(tx, replace(request, skip=skip), self.options.only_project)
        recover.log_recovered(claimed.abandoned)
        if claimed.lease is None or claimed.project is None:
            return None
        return ProjectRun(
            self.ctx, claimed.lease, claimed.project, request, self.options, self.leases, self.signals
        )


@dataclass
class ProjectRun:
    """Holds a project's lease from claim to release."""

    ctx: Context
    lease: Lease
    project: Project
    request: ClaimRequest
    options: WorkerOptions
    leases: Leases
    signals: Signals
    _job: UploadWork | None = None
    _grouping: asyncio.Future[Grouped | None] | None = None
    _interrupt: WeighbridgeError | None = field(default=None, repr=False)
    _interrupted: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)  # of `run`

    def interrupt(self, reason: WeighbridgeError) -> None:
        """Ask the run to end, from any thread: the current job at its next safe point, a grouping at once."""
        if self._interrupt is None:
            self._interrupt = reason
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._interrupted.set)
        if self._job is not None:
            self._job.interrupt(StopRequested("its run is ending"))
        grouping = self._grouping
        if grouping is not None:
            grouping.get_loop().call_soon_threadsafe(grouping.cancel)

    async def run(self) -> None:
        """Never raises: failures are logged, and the project can be leased again."""
        self._loop = asyncio.get_running_loop()
        with bound_contextvars(worker_id=self.options.name, project_id=self.project.id):
            await self._run_until_released()

    async def _run_until_released(self) -> None:
        journal.lease_acquired(self.project, self.request.worker)
        try:
            await self._run()
        except LeaseLost:
            journal.lease_lost_of(self.project)
        except StopRequested:
            await self._try_release()
        except RetryLater as failure:
            log.warning("worker.database_unavailable", reason=failure.message)
            await self._fail(failure.kind)
        except Exception as error:
            log.exception("Bug", project_id=self.project.id)
            await self._fail(type(error).__name__)

    async def _run(self) -> None:
        pauses = NEXT_FILE.pauses()
        while True:
            while await self._next_job():
                pauses = NEXT_FILE.pauses()
            await self._group()
            if await self._release(anyway=False):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._interrupted.wait(), next(pauses))

    async def _next_job(self) -> bool:
        self._check()
        async with self.ctx.db.tx() as tx:
            claimed = await queue.claim_job(tx, self.lease, self.request)
        if claimed.lease is None or claimed.upload is None:
            return False
        self._job = UploadWork(Attempt(claimed.lease, claimed.upload), self.ctx, self.options)
        if self._interrupt is not None:  # interrupted between the check and the claim
            self._job.interrupt(StopRequested("its run is ending"))
        try:
            with self.leases.holding(self._job):
                await self._job.run()
        finally:
            self._job = None
        self.signals.work_ended()
        return True

    async def _group(self) -> None:
        self._check()
        with journal.timed_grouping(self.project) as counted:
            self._grouping = asyncio.ensure_future(group_keywords(self.ctx, self.lease, self.project))
            try:
                grouped = await self._grouping
            except asyncio.CancelledError:
                self._check()  # the run must end; Postgres has rolled the grouping back
                raise
            finally:
                self._grouping = None
            if grouped is not None:
                counted(grouped.keywords, grouped.groups)

    async def _release(self, *, anyway: bool) -> bool:
        async with self.ctx.db.tx() as tx:
            released = await queue.release(tx, self.lease, self.request, anyway=anyway)
        if released:
            journal.lease_released(self.project, self.request.worker)
        return released

    async def _try_release(self) -> None:
        with suppress(RetryLater, LeaseLost):  # if this fails, the lease expires
            await self._release(anyway=True)

    async def _fail(self, error: str) -> None:
        pause = GROUPING.wait(self.project.failures + 1)
        assert pause is not None  # grouping is retried until it succeeds
        with suppress(RetryLater, LeaseLost):
            async with self.ctx.db.tx() as tx:
                await queue.fail(tx, self.lease, pause, error)
            journal.run_failed(self.project, error, pause)

    def _check(self) -> None:
        if self._interrupt is not None:
            raise self._interrupt
