"""Dry run of the golden path: checks its preconditions without writing to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from weighbridge.app import App
from weighbridge.cli.doctor import database
from weighbridge.cli.doctor.check import Check, CheckStatus
from weighbridge.cli.doctor.database import Question
from weighbridge.cli.verify.golden_path import PIPELINE, WORKSPACE, Step, TestBatch, new_batch
from weighbridge.formats import open_sheet
from weighbridge.model.errors import WeighbridgeError
from weighbridge.model.upload import Bins, Scope
from weighbridge.rules.headers import field_counter
from weighbridge.rules.run_checks import check
from weighbridge.uploads import check_request, receive

_SCHEMA: dict[str, tuple[Question, ...]] = {
    "Migrations": (database.migrations, database.tables),
    "Constraints": (database.constraints,),
}


async def check_preconditions(app: App, say: Callable[[Step], None]) -> list[Step]:
    """Check the preconditions of the golden path in order, up to the first that fails."""
    steps = []
    for name, questions in _SCHEMA.items():
        steps.append(await _asked(app, name, questions))
        say(steps[-1])
        if steps[-1].fault:
            return steps
    steps.append(await _accepted(app, await new_batch(app)))
    say(steps[-1])
    return steps


async def _asked(app: App, name: str, questions: tuple[Question, ...]) -> Step:
    for question in questions:
        async with app.db.tx() as tx:
            found: Check = await question(tx, list(app.ctx.pipelines.values()))
        if found.status == CheckStatus.FAILED:
            return Step(name, f"{found.found} {found.fix or ''}".strip())
    return Step(name)


async def _accepted(app: App, batch: TestBatch) -> Step:
    """Receive the file up to the scratch file and check its row: the code of an upload, without the upload."""
    name = "File Accepted"
    with TemporaryDirectory(prefix="golden-path-", dir=app.ctx.scratch) as folder:
        path = Path(folder) / "golden_path.csv"
        path.write_bytes(batch.content)
        try:
            checked = check_request.check(app.ctx, batch.request)
            file = await receive.save_to_scratch(app.ctx, checked, path, path.name)
            try:
                bins = await asyncio.to_thread(_check_rows, app, file, Path(folder))
            finally:
                file.discard()
        except WeighbridgeError as error:
            return Step(name, str(error))
    return Step(
        name, None if bins.accepted == 1 else f"{bins.accepted} rows accepted, {bins.rejected} rejected"
    )


def _check_rows(app: App, file: receive.ReceivedFile, scratch: Path) -> Bins:
    pipeline = app.ctx.pipelines[PIPELINE]
    sheet = open_sheet(file.path, file.kind, count_fields=field_counter(pipeline, None), scratch=scratch)
    checked = check(pipeline, sheet, Scope(uuid4(), WORKSPACE), scratch=scratch)
    try:
        return checked.bins
    finally:
        checked.close()
