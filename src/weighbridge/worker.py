"""The worker of the service: the loop over its queues, its chores, and the files that wait for the store.

`engine.loop` claims and runs; this module selects what. `weighbridge worker` and `weighbridge up` run `Worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import structlog

from weighbridge import retention
from weighbridge.engine import recover
from weighbridge.engine.announce import announce
from weighbridge.engine.chores import Chore, repeated
from weighbridge.engine.leases import Leases
from weighbridge.engine.loop import Loop, Queue
from weighbridge.engine.options import WorkerOptions
from weighbridge.engine.signals import Signals
from weighbridge.model.project import Project
from weighbridge.model.states import TERMINAL
from weighbridge.model.upload import Upload
from weighbridge.observe import journal
from weighbridge.projects import queue as projects_queue
from weighbridge.projects.project_run import ProjectQueue
from weighbridge.storage import parts, quota
from weighbridge.storage import queue as storage_queue
from weighbridge.storage.replay_loop import SHORTEST_POLL, Replayer
from weighbridge.storage.retention import retain
from weighbridge.uploads import figures, resumable
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.claim import UploadQueue
from weighbridge.uploads.context import Context
from weighbridge.uploads.retention import clean, sweep

log = structlog.get_logger()

DEFERRED_ALERT_AFTER = timedelta(minutes=15)  # files that wait longer for the store raise an alert
RESUMABLE_SWEEP = timedelta(minutes=5)


class Worker:
    """Claims uploads and projects, recovers abandoned work, watches the queues and removes expired data."""

    def __init__(self, ctx: Context, options: WorkerOptions) -> None:
        leases = Leases(ctx.db.url, options.lease, options.ceiling)
        queues: list[Queue] = []
        self.signals = Signals()
        if options.only_project is None:
            queues.append(UploadQueue(ctx, options))
        if options.parses and options.promotes:  # a project run both parses and promotes its files
            queues.append(ProjectQueue(ctx, options, leases, self.signals))
        self._loop = Loop(ctx, options, leases, self.signals, queues)
        self._ctx = ctx
        self._chores = replace(ctx, db=ctx.db.in_turns())
        self._options = options

    @property
    def busy(self) -> bool:
        return self._loop.busy

    async def run(self, stop: asyncio.Event) -> None:
        """Work until stopped. `stop` is set at the end, also after an error."""
        storing = asyncio.create_task(store_waiting_files(self._ctx, self._options, stop))
        try:
            async with repeated(
                Chore(self._recover, self._options.lease / 3),
                Chore(self._watch, self._options.lease / 3),
                Chore(self._count, self._options.lease / 3),
                Chore(self._clean, self._options.clean_every),
            ):
                await self._loop.run(stop)
        finally:
            stop.set()  # the loop may have failed
            await storing

    async def run_once(self) -> bool:
        """Claim one unit of work, finish it, and end. False: there was none."""
        return await self._loop.run_once()

    async def _recover(self) -> None:
        """Recovery notifies all workers, this one too."""
        await recover.run(self._chores.db, self._options.max_crashes)

    async def _watch(self) -> None:
        """Raise and withdraw the alerts about all uploads together."""
        async with self._chores.db.tx() as tx:
            await figures.watch_queues(tx, self._options.alert_dead_letters, self._options.alert_backlog)
            await storage_queue.watch(tx, self._options.alert_storage_queue, DEFERRED_ALERT_AFTER)

    async def _count(self) -> None:
        await quota.count_again(self._chores.db)

    async def _clean(self) -> None:
        rows = await clean(self._chores)
        files = await asyncio.to_thread(sweep, self._ctx.scratch)
        blobs = await retain(self._chores)
        records = await self._remove_history() if self._options.removes_history else 0
        log.info("staging.cleaned", rows=rows, scratch_files=files, blobs=blobs, records=records)

    async def _remove_history(self) -> int:
        return sum((await retention.expire(self._chores.db, self._chores.limits)).values())


async def store_waiting_files(ctx: Context, options: WorkerOptions, stop: asyncio.Event) -> None:
    """Store files that wait on this machine, and finish its resumable uploads. An API process can run it too."""

    async def finish_resumable() -> None:
        if parts.any_files(ctx.spool):  # otherwise the database is not queried
            await resumable.finish_waiting(ctx)

    async def sweep_resumable() -> None:
        expired = await resumable.sweep(replace(ctx, db=ctx.db.in_turns()))
        if expired:
            log.info("resumable.swept", expired=expired)

    async with repeated(
        Chore(finish_resumable, max(options.poll, SHORTEST_POLL), backs_off=True),
        Chore(sweep_resumable, RESUMABLE_SWEEP),
    ):
        await Replayer(ctx, options).run(stop)


async def kick(ctx: Context, options: WorkerOptions, project: Project) -> bool:
    """Run a project in this process until it has nothing left to do. Any number of processes may call it at once.

    False: another process has its lease, or there is nothing to do.
    """
    ran = await Worker(ctx, replace(options, only_project=project.key)).run_once()
    if not ran:
        async with ctx.db.tx() as tx:
            runner = await projects_queue.runner(tx, project)
        if runner is not None:
            journal.lease_refused(project, runner.worker)
    while await announce(ctx, options.name, options.lease):
        pass
    return ran


async def run_until(ctx: Context, options: WorkerOptions, upload_ids: Sequence[UUID]) -> list[Upload]:
    """Work in this process until these uploads have ended, or are on hold for a preview; returns them in that state."""
    latest: dict[UUID, Upload] = {}
    async with aclosing(run_with_progress(ctx, options, upload_ids)) as steps:
        async for step in steps:
            latest |= {upload.id: upload for upload in step.uploads}
    return [latest[each] for each in upload_ids]


@dataclass(frozen=True)
class WorkProgress:
    """The uploads that a process waits for, at one moment."""

    uploads: list[Upload]  # those that had not ended before
    leased_by_others: list[uploads_queue.Holder]  # processed by other workers; this one has nothing to do
    earlier: dict[UUID, UUID]  # uploads that wait for an earlier one, which has the same rows
    grouping: bool  # all have ended, and their projects are being grouped


async def run_with_progress(
    ctx: Context, options: WorkerOptions, upload_ids: Sequence[UUID]
) -> AsyncGenerator[WorkProgress, None]:
    """Like `run_until`, and yields the progress. Close it if you leave early: the work then goes back to its queue.

    Other workers may process the uploads as well.
    """
    stop = asyncio.Event()
    worker = Worker(ctx, options)
    work_ended = worker.signals.listener()
    running = asyncio.create_task(worker.run(stop))
    ended: dict[UUID, Upload] = {}
    try:
        grouped = False
        while not grouped:
            work_ended.clear()
            async with ctx.db.tx() as tx:
                started = await uploads_queue.started(tx, [each for each in upload_ids if each not in ended])
                found = await uploads_queue.get_many(tx, started)
                holders = [] if worker.busy else await uploads_queue.holders(tx, started)
                earlier = {} if worker.busy else await uploads_queue.waits_for(tx, started)
            for upload in found:
                if upload.status in TERMINAL or upload.on_hold:
                    ended[upload.id] = upload
            all_ended = len(ended) == len(set(upload_ids))
            grouped = all_ended and await _grouped(
                ctx, [each.id for each in ended.values() if not each.on_hold]
            )
            others = [each for each in holders if each.worker != options.name]
            yield WorkProgress(found, others, earlier, grouping=all_ended and not grouped)
            if not grouped:
                await _wait(work_ended, running)
    finally:
        stop.set()
        await running
    while await announce(ctx, options.name, options.lease):
        pass


async def _wait(work_ended: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Until work ends, or 0.2 seconds. Raises what ended the worker."""
    next_event = asyncio.create_task(work_ended.wait())
    done, _ = await asyncio.wait({next_event, running}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
    next_event.cancel()
    if running in done:
        running.result()


async def _grouped(ctx: Context, upload_ids: list[UUID]) -> bool:
    """Whether the projects of these uploads have been grouped since, or cannot be waited for."""
    async with ctx.db.tx() as tx:
        return len(await projects_queue.grouped_since(tx, upload_ids, ctx.pipelines)) == len(upload_ids)
