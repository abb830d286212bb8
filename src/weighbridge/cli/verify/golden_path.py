"""The golden path: load one generated judgment, send the same batch again, and delete both.

The file takes the path of every file: same intake, worker and tables. It has a separate workspace, so that all of
it can be deleted, also after an interrupted run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from weighbridge.app import App
from weighbridge.cli.serve import worker_options
from weighbridge.model.errors import ConfigError, RetryLater, WeighbridgeError
from weighbridge.postgres import clock
from weighbridge.postgres.errors import RowFault
from weighbridge.uploads import golden_path_queries, history
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive
from weighbridge.worker import run_until

WORKSPACE = UUID("00000000-0000-4000-8000-00000000901d")  # used only here
PIPELINE = "judgments"
LOAD_TIMEOUT = 300  # seconds; other files may be processed first
TRIES = 5  # to delete rows that workers still hold
DUPLICATE = "duplicate_completed"
_FAILURES = (WeighbridgeError, RowFault)


@dataclass(frozen=True)
class Step:
    """One step and its result."""

    name: str
    fault: str | None = None

    def __str__(self) -> str:
        return f"  {self.name + ':':<20}{'PASS' if self.fault is None else f'FAIL ({self.fault})'}"


@dataclass(frozen=True)
class TestBatch:
    """The file that is sent, and its batch name."""

    name: str

    @property
    def content(self) -> bytes:
        return (
            "Case Number,Plaintiff,Defendant,Judgment Amount,Filing Date,County\n"
            f"{self.name},Golden Path Plaintiff,Golden Path Defendant,1.00,2020-01-02,Nowhere\n"
        ).encode()

    @property
    def request(self) -> Request:
        return Request(WORKSPACE, pipeline=PIPELINE, filename="golden_path.csv", source_batch_id=self.name)


async def new_batch(app: App) -> TestBatch:
    async with app.db.tx() as tx:
        now = await clock.now(tx)
    return TestBatch(f"golden_path_test_{now:%Y%m%dT%H%M%SZ}_{secrets.token_hex(4)}")


async def verify(app: App, report: Callable[[Step], None]) -> list[Step]:
    """Run all steps and report each as soon as it has ended. Leftovers of an earlier run are deleted first."""
    steps: list[Step] = []

    def done(step: Step) -> None:
        steps.append(step)
        report(step)

    async with golden_path_queries.exclusive(app.db.url) as exclusive:
        if not exclusive:
            raise ConfigError(
                "Another golden path check is running on this database. Wait until it has ended."
            )
        await _delete_all(app)
        try:
            batch = await new_batch(app)
            completion = await _complete(app, batch)
            done(completion)
            if completion.fault is None:
                done(await _send_again(app, batch))
            else:
                done(Step("Duplicate Skip", "not tried: the first upload did not complete"))
        finally:
            done(await _clean_up(app))  # also after an interruption
    return steps


async def _complete(app: App, batch: TestBatch) -> Step:
    """Expect status completed and record_count 1."""
    name = "Initial Completion"
    try:
        received = await _send(app, batch)
        if received.duplicate:
            return Step(name, f"recognised as a duplicate: {received.reason}")
        ctx = replace(app.ctx, pipelines={PIPELINE: app.ctx.pipelines[PIPELINE]})  # process no other files
        options = replace(worker_options(app.settings), removes_history=False)
        async with asyncio.timeout(LOAD_TIMEOUT):
            await run_until(ctx, options, [received.upload_id])
    except TimeoutError:
        return Step(name, f"not finished after {LOAD_TIMEOUT} s")
    except _FAILURES as error:
        return Step(name, str(error))
    async with app.db.tx() as tx:
        run = await golden_path_queries.import_run(tx, WORKSPACE, batch.name)
        refused = await history.reasons(tx, received.upload_id, 1)  # read now: the cleanup deletes it
    if run is None:
        return Step(name, "ingest.import_runs has no run for the batch")
    if (run.status, run.record_count) != ("completed", 1):
        why = refused[0].example if refused else run.error_message or "no reason given"
        return Step(name, f"status {run.status}, record_count {run.record_count}: {why}")
    return Step(name)


async def _send_again(app: App, batch: TestBatch) -> Step:
    """Expect that the batch is skipped as a duplicate and nothing is updated."""
    name = "Duplicate Skip"
    before = await _snapshot(app)
    try:
        again = await _send(app, batch)
    except _FAILURES as error:
        return Step(name, str(error))
    if not again.duplicate or again.reason != DUPLICATE:
        return Step(name, f"expected {DUPLICATE}, got {again.reason or 'a new upload'}")
    if await _snapshot(app) != before:
        return Step(name, "the batch was skipped, but rows changed")
    return Step(name)


async def _clean_up(app: App) -> Step:
    try:
        await _delete_all(app)
        async with app.db.tx() as tx:
            left = await golden_path_queries.tables_with_rows(tx, WORKSPACE)
    except _FAILURES as error:
        return Step("Cleanup", str(error))
    return Step("Cleanup", f"rows are left in {', '.join(left)}" if left else None)


async def _delete_all(app: App) -> None:
    """Delete the rows first, so that no worker looks for the file."""
    for tries_left in reversed(range(TRIES)):
        try:
            async with app.db.tx() as tx:
                await golden_path_queries.delete_all(tx, WORKSPACE, app.ctx.pipelines[PIPELINE])
            break
        except RetryLater:
            if not tries_left:
                raise
    await app.ctx.blobs.remove(WORKSPACE)


async def _send(app: App, batch: TestBatch) -> Received:
    with TemporaryDirectory(prefix="golden-path-", dir=app.ctx.scratch) as folder:
        file = Path(folder) / "golden_path.csv"
        file.write_bytes(batch.content)
        return await receive(app.ctx, batch.request, file)


async def _snapshot(app: App) -> str:
    async with app.db.tx() as tx:
        return await golden_path_queries.snapshot(tx, WORKSPACE)
