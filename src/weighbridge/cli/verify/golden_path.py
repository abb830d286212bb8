"""The golden path (S3 §4): one generated judgment all the way, the same batch again, and all of it removed.

It goes the way of every file: the same intake, the same worker, the same tables. A workspace of its own keeps it apart,
so that it can be removed whole, whatever state it was left in.
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
from weighbridge.uploads import golden, history
from weighbridge.uploads.receive import Received, receive
from weighbridge.uploads.request import Request
from weighbridge.worker import run_until

WORKSPACE = UUID("00000000-0000-4000-8000-00000000901d")  # nobody else's
PIPELINE = "judgments"
PATIENCE = 300  # seconds; others' files may come first
TRIES = 5  # at removing what workers still hold
DUPLICATE = "duplicate_completed"
_TROUBLE = (WeighbridgeError, RowFault)


@dataclass(frozen=True)
class Step:
    """One line of the result."""

    name: str
    fault: str | None = None

    def __str__(self) -> str:
        return f"  {self.name + ':':<20}{'PASS' if self.fault is None else f'FAIL ({self.fault})'}"


@dataclass(frozen=True)
class Batch:
    """The file that is sent, and what its sender calls it."""

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


async def new_batch(app: App) -> Batch:
    async with app.db.tx() as tx:
        now = await clock.now(tx)
    return Batch(f"golden_path_test_{now:%Y%m%dT%H%M%SZ}_{secrets.token_hex(4)}")


async def verify(app: App, say: Callable[[Step], None]) -> list[Step]:
    """All steps, each said as soon as it is known. What an earlier check left behind is removed first."""
    steps: list[Step] = []

    def done(step: Step) -> None:
        steps.append(step)
        say(step)

    async with golden.alone(app.db.url) as alone:
        if not alone:
            raise ConfigError("Another golden path check runs on this database. Wait until it has ended.")
        await _remove(app)
        try:
            batch = await new_batch(app)
            completion = await _complete(app, batch)
            done(completion)
            if completion.fault is None:
                done(await _send_again(app, batch))
            else:
                done(Step("Duplicate Skip", "not tried, as nothing was completed"))
        finally:
            done(await _clean_up(app))  # also when it is interrupted
    return steps


async def _complete(app: App, batch: Batch) -> Step:
    """S3 §4.1: status completed, record_count 1."""
    name = "Initial Completion"
    try:
        received = await _send(app, batch)
        if received.duplicate:
            return Step(name, f"taken for a duplicate: {received.reason}")
        ctx = replace(app.ctx, pipelines={PIPELINE: app.ctx.pipelines[PIPELINE]})  # no other files here
        async with asyncio.timeout(PATIENCE):
            await run_until(ctx, worker_options(app.settings), [received.upload_id], lambda upload: None)
    except TimeoutError:
        return Step(name, f"not ended after {PATIENCE} s")
    except _TROUBLE as error:
        return Step(name, str(error))
    async with app.db.tx() as tx:
        run = await golden.run(tx, WORKSPACE, batch.name)
        refused = await history.reasons(tx, received.upload_id, 1)  # here, as nobody can look later
    if run is None:
        return Step(name, "ingest.import_runs has no such run")
    if (run.status, run.record_count) != ("completed", 1):
        why = refused[0].example if refused else run.error_message or "no reason given"
        return Step(name, f"status {run.status}, record_count {run.record_count}: {why}")
    return Step(name)


async def _send_again(app: App, batch: Batch) -> Step:
    """S3 §4.1: no update, skipped as a duplicate."""
    name = "Duplicate Skip"
    before = await _picture(app)
    try:
        again = await _send(app, batch)
    except _TROUBLE as error:
        return Step(name, str(error))
    if not again.duplicate or again.reason != DUPLICATE:
        return Step(name, f"expected {DUPLICATE}, got {again.reason or 'a new upload'}")
    if await _picture(app) != before:
        return Step(name, "it was skipped, but something changed")
    return Step(name)


async def _clean_up(app: App) -> Step:
    try:
        await _remove(app)
        async with app.db.tx() as tx:
            left = await golden.left(tx, WORKSPACE)
    except _TROUBLE as error:
        return Step("Cleanup", str(error))
    return Step("Cleanup", f"rows are left in {', '.join(left)}" if left else None)


async def _remove(app: App) -> None:
    """Rows first: then no worker looks for the file any more."""
    for tries_left in reversed(range(TRIES)):
        try:
            async with app.db.tx() as tx:
                await golden.forget(tx, WORKSPACE, app.ctx.pipelines[PIPELINE])
            break
        except RetryLater:
            if not tries_left:
                raise
    await app.ctx.blobs.remove(WORKSPACE)


async def _send(app: App, batch: Batch) -> Received:
    with TemporaryDirectory(prefix="golden-path-", dir=app.ctx.scratch) as folder:
        file = Path(folder) / "golden_path.csv"
        file.write_bytes(batch.content)
        return await receive(app.ctx, batch.request, file)


async def _picture(app: App) -> str:
    async with app.db.tx() as tx:
        return await golden.picture(tx, WORKSPACE)
