"""The worker: claim while there is room, work, run projects, recover, announce, clean; stop when asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from structlog.contextvars import bound_contextvars

from weighbridge.db import alerts, projects, storage, uploads
from weighbridge.db.events import Delivery
from weighbridge.db.heartbeat import Heartbeat
from weighbridge.db.listen import notifications
from weighbridge.model.errors import HandBack, LeaseLost, RetryLater
from weighbridge.model.project import Project
from weighbridge.model.states import TERMINAL
from weighbridge.model.upload import Upload
from weighbridge.observe import journal, traces
from weighbridge.steps.announce import announce, due, tell
from weighbridge.steps.attempt import Attempt
from weighbridge.steps.clean import clean, sweep
from weighbridge.steps.context import Context
from weighbridge.steps.retain import retain
from weighbridge.worker.attempt import work
from weighbridge.worker.options import WorkerOptions
from weighbridge.worker.replayer import Replayer
from weighbridge.worker.runner import Runner

log = structlog.get_logger()

DELIVERIES_AT_ONCE = 20
STORE_PATIENCE = timedelta(minutes=15)  # files that wait longer for the store are alerted (S5)


class Worker:
    """Works until told to stop. On stop, attempts end at their next safe point and hand their upload back."""

    def __init__(self, ctx: Context, options: WorkerOptions) -> None:
        self.ctx = ctx
        self.options = options
        self.ended = asyncio.Event()  # set whenever an attempt ends, for whoever waits for uploads
        self._news = {name: asyncio.Event() for name in ctx.consumers}  # the same, for the announcers
        self._running: set[asyncio.Task[None]] = set()
        self._held: dict[UUID, Attempt | Runner] = {}  # by the token of its lease
        self._projects_first = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeat = Heartbeat(ctx.db.url, options.lease, options.ceiling, self._lost)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    async def run(self, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeat.start()
        chores = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._every(self.options.lease / 3, self._recover)),
            asyncio.create_task(self._every(self.options.lease / 3, self._watch)),
            asyncio.create_task(self._every(self.options.clean_every, self._clean)),
        ]
        ending = asyncio.Event()
        announcing = [asyncio.create_task(self._announce(name, ending)) for name in self.ctx.consumers]
        replaying = asyncio.create_task(replayer(self.ctx, self.options).run(ending))
        try:
            await self._claim_until(stop)
        finally:
            ending.set()
            await self._hand_back()
            await _end(chores)
            await replaying
            self._tell_announcers()
            await asyncio.gather(*announcing)  # never cancelled: a delivery that was claimed is also settled
            self._heartbeat.stop()

    async def run_once(self) -> bool:
        """Take on one thing, see it through, and end. False: there was none to take on."""
        self._heartbeat.start()
        try:
            if not await self._claim():
                return False
            await asyncio.gather(*self._running)
            return True
        finally:
            await self._hand_back()
            self._heartbeat.stop()

    async def _claim_until(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            self._wake.clear()
            while len(self._running) < self.options.slots and not stop.is_set() and await self._claim():
                pass
            waking = asyncio.create_task(self._wake.wait())
            # Jitter: workers that started together must not poll together.
            pause = self.options.poll.total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311
            await asyncio.wait({waking, stopping}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            waking.cancel()
        stopping.cancel()

    async def _claim(self) -> bool:
        """Start on the next upload, or on the next project; neither always first."""
        claims = [self._claim_upload, self._claim_project]
        if self._projects_first:
            claims.reverse()
        self._projects_first = not self._projects_first
        try:
            return await claims[0]() or await claims[1]()
        except RetryLater as trouble:
            log.warning("worker.database_away", reason=trouble.message)
            return False

    async def _claim_upload(self) -> bool:
        if self.options.only_project is not None:
            return False
        async with self.ctx.db.tx() as tx:
            claimed = await uploads.claim(tx, self._wish)
        self._say_abandoned(claimed.abandoned)
        if claimed.lease is None or claimed.upload is None:
            return False
        self._start(self._work(Attempt(claimed.lease, claimed.upload)))
        return True

    async def _claim_project(self) -> bool:
        if not (self.options.parses and self.options.promotes):  # a run takes its files all the way
            return False
        async with self.ctx.db.tx() as tx:
            claimed = await projects.claim(tx, self._wish, self.options.only_project)
        self._say_abandoned(claimed.abandoned)
        if claimed.lease is None or claimed.project is None:
            return False
        self._start(self._run(Runner(self.ctx, claimed.lease, claimed.project, self._wish, self._work)))
        return True

    @property
    def _wish(self) -> uploads.Claim:
        options = self.options
        return uploads.Claim(
            worker=options.name,
            sources=options.sources,
            pipelines=tuple(self.ctx.pipelines),
            lease=options.lease,
            per_workspace=options.per_workspace,
            max_crashes=options.max_crashes,
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.ended.set()
        self._wake.set()

    async def _work(self, attempt: Attempt) -> None:
        upload = attempt.upload
        with (
            bound_contextvars(upload_id=str(upload.id), worker_id=self.options.name),
            self._holding(attempt),
            traces.span("upload", upload.traceparent, upload_id=str(upload.id), pipeline=upload.pipeline),
        ):
            journal.job_started(upload, self.options.name)
            await work(attempt, self.ctx, promotes=self.options.promotes)
        self.ended.set()
        self._tell_announcers()

    async def _run(self, runner: Runner) -> None:
        with (
            bound_contextvars(worker_id=self.options.name, project_id=runner.project.id),
            self._holding(runner),
        ):
            await runner.run()

    @contextmanager
    def _holding(self, work: Attempt | Runner) -> Iterator[None]:
        """Keep its lease alive, and let it be told to end."""
        token = work.lease.token
        self._held[token] = work
        self._heartbeat.hold(token)
        try:
            yield
        finally:
            self._heartbeat.drop(token)
            del self._held[token]

    def _lost(self, token: UUID) -> None:
        """From the heartbeat's thread: another attempt owns this work now."""
        found = self._held.get(token)
        if found:
            found.interrupt(LeaseLost("the lease ran out"))

    async def _hand_back(self) -> None:
        for held in list(self._held.values()):
            held.interrupt(HandBack("the worker is stopping"))
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _listen(self) -> None:
        async for _ in notifications(self.ctx.db.url, "weighbridge_work"):
            self._wake.set()

    async def _recover(self) -> None:
        async with self.ctx.db.tx() as tx:
            abandoned = await uploads.recover(tx, self.options.max_crashes)
        self._say_abandoned(abandoned)
        if abandoned:
            self._wake.set()

    def _say_abandoned(self, abandoned: Sequence[uploads.Recovered]) -> None:
        for each in abandoned:
            if each.queue == "projects":
                journal.lease_taken_back(each.subject, each.worker)
                continue
            if each.queue == "storage":
                journal.replay_taken_back(each.subject, each.worker)
                continue
            if each.queue == "deliveries":
                journal.delivery_taken_back(each.subject, each.worker)
                continue
            if each.batch is None:
                log.warning("Announcement taken back", subject=str(each.subject), worker_id=each.worker)
                continue
            journal.stale_takeover(each.batch, each.hours, each.opened_at, each.worker)
            if each.gave_up:
                journal.job_failed(each.batch, "worker_crashed", "Its workers stopped too often.")

    async def _watch(self) -> None:
        """Raise and withdraw the alerts that are about all uploads together."""
        async with self.ctx.db.tx() as tx:
            await alerts.watch_queues(tx, self.options.alert_dead_letters, self.options.alert_backlog)
            await storage.watch(tx, self.options.alert_storage_queue, STORE_PATIENCE)

    async def _clean(self) -> None:
        gone = await clean(self.ctx)
        files = await asyncio.to_thread(sweep, self.ctx.scratch)
        blobs = await retain(self.ctx)
        log.info("staging.cleaned", rows=gone, scratch_files=files, blobs=blobs)

    async def _announce(self, consumer: str, ending: asyncio.Event) -> None:
        """Deliver events as they come, each in a task of its own: a slow consumer holds up only itself."""
        under_way: set[asyncio.Task[None]] = set()
        news = self._news[consumer]
        while not ending.is_set():
            news.clear()
            claimed: list[Delivery] = []
            try:
                room = DELIVERIES_AT_ONCE - len(under_way)
                if room:
                    claimed = await due(self.ctx, self.options.name, self.options.lease, room, [consumer])
            except RetryLater as trouble:
                log.warning("worker.database_away", reason=trouble.message)
            under_way |= {asyncio.create_task(tell(self.ctx, each, self.options.lease)) for each in claimed}
            if not claimed:
                waking = asyncio.create_task(news.wait())
                pause = self.options.poll.total_seconds()
                await asyncio.wait({waking, *under_way}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
            under_way = {task for task in under_way if not task.done()}
        await asyncio.gather(*under_way)

    def _tell_announcers(self) -> None:
        for news in self._news.values():
            news.set()

    async def _every(self, pause: timedelta, chore: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await chore()
            except RetryLater as trouble:
                log.warning("worker.database_away", reason=trouble.message)
            except Exception:  # a chore that went wrong once must be done again all the same
                log.exception("worker.chore_failed", chore=chore.__name__)
            await asyncio.sleep(pause.total_seconds())


def replayer(ctx: Context, options: WorkerOptions) -> Replayer:
    return Replayer(ctx, options.name, options.lease, options.poll)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel until all have ended: what they call may take one cancellation for its own, and go on."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    await asyncio.gather(*tasks, return_exceptions=True)


async def kick(ctx: Context, options: WorkerOptions, project: Project) -> bool:
    """Run a project in this process until it has nothing left to do (S2 §4.1). Any number may call it at once.

    False: another has its lease, or there is nothing to do.
    """
    ran = await Worker(ctx, replace(options, only_project=project.key)).run_once()
    if not ran:
        async with ctx.db.tx() as tx:
            holder = await projects.holder(tx, project)
        if holder is not None:
            journal.lease_refused(project, holder.worker)
    while await announce(ctx, options.name, options.lease):
        pass
    return ran


async def run_until(
    ctx: Context,
    options: WorkerOptions,
    upload_ids: Sequence[UUID],
    on_progress: Callable[[Upload], None],
    on_held: Callable[[uploads.Holder], None] = lambda holder: None,
    on_grouping: Callable[[], None] = lambda: None,
) -> list[Upload]:
    """Work in this process until these uploads have ended, or are held for preview, whoever does it; returns them so.

    `on_held` hears of uploads that others hold, while there is nothing to do here but to wait for them; `on_grouping`
    that all have ended, and the groups of their projects are being made.
    """
    stop = asyncio.Event()
    worker = Worker(ctx, options)
    running = asyncio.create_task(worker.run(stop))
    ended: dict[UUID, Upload] = {}
    try:
        while True:
            worker.ended.clear()
            async with ctx.db.tx() as tx:
                begun = await uploads.begun(tx, [each for each in upload_ids if each not in ended])
                found = await uploads.get_many(tx, begun)
                held = [] if worker.busy else await uploads.holders(tx, begun)
            for holder in held:
                if holder.worker != options.name:
                    on_held(holder)
            for upload in found:
                on_progress(upload)
                if upload.status in TERMINAL or upload.held:
                    ended[upload.id] = upload
            if len(ended) == len(set(upload_ids)):
                if await _grouped(ctx, [each.id for each in ended.values() if not each.held]):
                    break
                on_grouping()
            news = asyncio.create_task(worker.ended.wait())
            done, _ = await asyncio.wait({news, running}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if running in done:
                running.result()
    finally:
        stop.set()
        await running
    while await announce(ctx, options.name, options.lease):
        pass
    return [ended[each] for each in upload_ids]


async def _grouped(ctx: Context, upload_ids: list[UUID]) -> bool:
    """Have the projects of these uploads been grouped since they ended, or can that not be waited for?"""
    async with ctx.db.tx() as tx:
        return len(await projects.grouped_since(tx, upload_ids, ctx.pipelines)) == len(upload_ids)
