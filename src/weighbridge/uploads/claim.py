"""The queue of uploads, as a worker claims from it: one upload at a time, with a lease on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from structlog.contextvars import bound_contextvars

from weighbridge.engine import recover
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import WeighbridgeError
from weighbridge.observe import journal, traces
from weighbridge.postgres.transactions import Lease
from weighbridge.uploads import queue
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.queue import ClaimRequest
from weighbridge.uploads.run_attempt import work


@dataclass(frozen=True)
class UploadWork:
    """One attempt at one upload."""

    attempt: Attempt
    ctx: Context
    options: WorkerOptions

    @property
    def lease(self) -> Lease:
        return self.attempt.lease

    def interrupt(self, reason: WeighbridgeError) -> None:
        self.attempt.interrupt(reason)

    async def run(self) -> None:
        upload = self.attempt.upload
        with (
            bound_contextvars(upload_id=str(upload.id), worker_id=self.options.name),
            traces.span("upload", upload.traceparent, upload_id=str(upload.id), pipeline=upload.pipeline),
        ):
            journal.job_started(upload, self.options.name)
            await work(self.attempt, self.ctx, promotes=self.options.promotes)


@dataclass(frozen=True)
class UploadQueue:
    ctx: Context
    options: WorkerOptions

    async def claim(self, skip: frozenset[UUID]) -> UploadWork | None:
        async with self.ctx.db.tx() as tx:
            claimed = await queue.claim(tx, replace(claim_request(self.ctx, self.options), skip=skip))
        recover.log_recovered(claimed.abandoned)
        if claimed.lease is None or claimed.upload is None:
            return None
        return UploadWork(Attempt(claimed.lease, claimed.upload), self.ctx, self.options)


def claim_request(ctx: Context, options: WorkerOptions) -> ClaimRequest:
    return ClaimRequest(
        worker=options.name,
        sources=options.sources,
        pipelines=tuple(ctx.pipelines),
        lease=options.lease,
        per_workspace=options.per_workspace,
        max_crashes=options.max_crashes,
    )
