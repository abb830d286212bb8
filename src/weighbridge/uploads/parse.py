"""Second step: stored file → staged rows and rejections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from weighbridge.model.errors import FileRefused, WeighbridgeError
from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.progress import Progress
from weighbridge.model.sheet import Sheet
from weighbridge.model.upload import Upload
from weighbridge.observe import journal
from weighbridge.postgres import clock, production_columns, roles
from weighbridge.postgres.pipeline_tables import fingerprint
from weighbridge.postgres.transactions import Tx
from weighbridge.rules.check_result import CheckResult
from weighbridge.rules.row_digests import group_digests, rows_digest, skip_ranges
from weighbridge.rules.run_checks import check
from weighbridge.uploads import fixed_rows, queue, rejections, staging, unchanged_groups
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.reload_rejects import Inherited, inherited, refuse_without_original
from weighbridge.uploads.stored_file import pipeline_of, sheet_of, stored_file

WHOLE_FILE = -1  # row index of a warning about the whole file


@dataclass(frozen=True)
class SummedRecord:
    """A record that was added to others, and the first of them: the row in production has its line number."""

    first: int
    row_index: int
    line: int


async def parse(attempt: Attempt, ctx: Context) -> None:
    """Read, check and stage the file. Rows that an earlier attempt staged are not staged again."""
    upload = attempt.upload
    pipeline = pipeline_of(upload, ctx)
    async with stored_file(upload, ctx) as (path, scratch):
        checked = await _checked(attempt, ctx, pipeline, path, scratch)
        try:
            whole = await asyncio.to_thread(rows_digest, checked)
            resumed, grouped = await _begin(attempt, ctx, pipeline, checked, whole)
            rows = _to_stage(pipeline, checked, upload.staged if resumed else {}, grouped)
            last = await _stage(attempt, ctx, pipeline, rows)
            await _finish(attempt, ctx, checked, _Parsed(last, grouped, whole))
        except BaseException:
            await asyncio.to_thread(
                checked.db.discard
            )  # after a cancellation, a thread may still be using it
            raise
        await asyncio.to_thread(checked.close)


async def parts_of_sums(attempt: Attempt, ctx: Context, firsts: set[int]) -> list[SummedRecord]:
    """The records that were added up into these rows, found by checking the file again."""
    upload = attempt.upload
    pipeline = pipeline_of(upload, ctx)

    def collect(checked: CheckResult) -> list[SummedRecord]:
        with checked:
            rows = [SummedRecord(**row) for batch in checked.parts() for row in batch.to_pylist()]
        return [row for row in rows if row.first in firsts]

    async with stored_file(upload, ctx) as (path, scratch):
        sheet = await asyncio.to_thread(sheet_of, upload, pipeline, path, scratch)
        opened = _OpenedFile(upload, sheet, await inherited(ctx, upload, sheet))
        checked = await _check(opened, ctx, scratch, attempt.progress)
        return await asyncio.to_thread(collect, checked)


async def _checked(
    attempt: Attempt, ctx: Context, pipeline: Pipeline, path: Path, scratch: Path
) -> CheckResult:
    """Check the file in its own thread and record progress meanwhile."""

    async def work() -> CheckResult:
        sheet = await asyncio.to_thread(sheet_of, attempt.upload, pipeline, path, scratch)
        how = await inherited(ctx, attempt.upload, sheet)
        await refuse_without_original(ctx, attempt.upload, how.originals)
        return await _check(_OpenedFile(attempt.upload, sheet, how), ctx, scratch, attempt.progress)

    checking = asyncio.create_task(work())
    try:
        await _record_progress(attempt, ctx, checking)
    except FileRefused as refusal:
        if refusal.column_report is not None:
            headers = [each.header for each in refusal.column_report.columns]
            async with ctx.db.fenced(attempt.lease, roles.PARSE) as tx:
                await queue.note_columns(tx, attempt.lease, headers, refusal.column_report)
        raise
    except WeighbridgeError as failure:
        # The caller no longer waits: the check stops at its next batch, before its scratch folder is removed.
        attempt.interrupt(failure)
        with suppress(WeighbridgeError):
            await asyncio.to_thread((await checking).close)
        raise
    return checking.result()


@dataclass(frozen=True)
class _OpenedFile:
    upload: Upload
    sheet: Sheet
    how: Inherited


async def _check(opened: _OpenedFile, ctx: Context, scratch: Path, progress: Progress) -> CheckResult:
    pipeline = pipeline_of(opened.upload, ctx)
    async with ctx.db.tx() as tx:
        today = (await clock.now(tx)).date()
        limits = await production_columns.column_limits(tx, pipeline)
    return await asyncio.to_thread(
        check,
        pipeline,
        opened.sheet,
        opened.upload.scope,
        scratch=scratch,
        memory_limit=f"{ctx.limits.parse_memory_mb}MB",
        progress=progress,
        today=today,
        options=opened.how.options,
        column_limits=limits,
        exponents=opened.how.exponents,
        indian=opened.how.indian,
    )


async def _record_progress(attempt: Attempt, ctx: Context, checking: asyncio.Task[CheckResult]) -> None:
    """Record every second how many rows have been read, until the check ends."""
    recorded = 0
    while not (await asyncio.wait({checking}, timeout=1))[0]:
        if attempt.progress.rows > recorded:
            recorded = attempt.progress.rows
            async with ctx.db.fenced(attempt.lease, roles.PARSE, durable=False) as tx:
                await queue.note_rows_read(tx, attempt.lease, recorded)


@dataclass(frozen=True)
class _Grouped:
    """Groups of the grain's rows, and the ranges of seq that are in production unchanged according to receipts."""

    batches: list[Any]
    known: list[tuple[int, int]]


async def _begin(
    attempt: Attempt, ctx: Context, pipeline: Pipeline, checked: CheckResult, whole: bytes
) -> tuple[bool, _Grouped]:
    """Whether the rows that an earlier attempt staged are kept, and the groups of the grain's rows."""
    batches = await asyncio.to_thread(lambda: list(group_digests(checked, fingerprint(pipeline))))
    rows = [row for batch in batches for row in batch.to_pylist()]
    digests = {row["group_key"]: row["digest"] for row in rows}
    async with ctx.db.fenced(attempt.lease, roles.PARSE, durable=False) as tx:
        resumed = await queue.begin_staging(tx, attempt.lease, whole)
        known = await unchanged_groups.known_groups(tx, pipeline, attempt.upload.scope, digests)
    ranges = [(row["first_seq"], row["last_seq"]) for row in rows if row["group_key"] in known]
    batches = [_with_skipped(batch, known) for batch in batches]
    return resumed, _Grouped(batches, ranges)


def _with_skipped(groups: Any, known: set[str]) -> Any:
    """The groups with a column that says which of them are not staged."""
    skipped = [key in known for key in groups.column("group_key").to_pylist()]
    return groups.append_column("skipped", pa.array(skipped, pa.bool_()))


@dataclass(frozen=True)
class _Rows:
    """A batch of an entity's rows, and its last seq."""

    entity: Entity
    seq: int
    batch: Any

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)


def _to_stage(
    pipeline: Pipeline, checked: CheckResult, staged: Mapping[str, int], grouped: _Grouped
) -> Iterator[_Rows]:
    """The rows of every entity, except rows already staged and rows already in production."""
    for entity in pipeline.entities:
        rows = checked.staged(entity.name, staged.get(entity.name, 0))
        for seq, batch in skip_ranges(rows, grouped.known if entity is pipeline.grain else []):
            yield _Rows(entity, seq, batch)


async def _stage(attempt: Attempt, ctx: Context, pipeline: Pipeline, rows: Iterator[_Rows]) -> list[_Rows]:
    """Write the rows in chunks, of several entities where these are small. Chunk and watermark commit together.

    Returns the last rows: they are written with the end of the parsing, for a small file all of them.
    """
    while chunk := await asyncio.to_thread(_take, rows, ctx.limits.stage_rows):
        attempt.check()
        if sum(each.num_rows for each in chunk) < ctx.limits.stage_rows:
            return chunk
        async with ctx.db.fenced(attempt.lease, roles.PARSE, durable=False) as tx:
            await queue.note_staged(tx, attempt.lease, await _add(tx, pipeline, chunk))
    return []


async def _add(tx: Tx, pipeline: Pipeline, chunk: list[_Rows]) -> dict[str, int]:
    """Append rows to the staging tables; returns the last seq of each entity."""
    for name, part in groupby(chunk, key=lambda each: each.entity.name):
        await staging.add(tx, pipeline, pipeline.entity(name), [each.batch for each in part])
    return {each.entity.name: each.seq for each in chunk}


@dataclass(frozen=True)
class _Parsed:
    """What remains to be written at the end of the parsing."""

    last: list[_Rows]
    grouped: _Grouped
    whole: bytes  # the digest of all rows


async def _finish(attempt: Attempt, ctx: Context, checked: CheckResult, parsed: _Parsed) -> None:
    """Last rows, rejected rows, links, id resolution, groups, the new status and warnings, all in one transaction."""
    pipeline = checked.plan.pipeline
    found = queue.Staged(
        bins=checked.bins,
        columns=checked.plan.layout.header,
        mapping=dict(checked.mapping),
        affected_dates=tuple(checked.affected_dates),
        digest=parsed.whole,
        column_report=checked.column_report,
        read_as=checked.read_as,
    )
    rejected = checked.rejections()
    async with ctx.db.fenced(attempt.lease, roles.PARSE) as tx:
        last = await _add(tx, pipeline, parsed.last)
        first: list[tuple[int, str]] = []  # lines and codes, for the log
        while chunk := await asyncio.to_thread(_take, rejected, 20_000):
            await staging.add_rejected_rows(tx, attempt.upload.scope, chunk)
            if not first:
                few = chunk[0].slice(0, journal.ROW_ERRORS)
                first = list(zip(few["line"].to_pylist(), few["code"].to_pylist(), strict=True))
        links = checked.fixes()
        while chunk := await asyncio.to_thread(_take, links, 20_000):
            await fixed_rows.add(tx, attempt.upload.scope, pipeline.name, chunk)
        for entity in pipeline.dimensions:
            await staging.resolve_ids(tx, pipeline, entity, attempt.upload.scope)
        await staging.add_groups(tx, parsed.grouped.batches)
        await queue.finish_staging(tx, attempt.lease, replace(found, last_rows=last))
        for code, message in checked.warnings.items():
            await rejections.add_warning(tx, attempt.lease, (WHOLE_FILE, checked.header_line), code, message)
    journal.row_errors(attempt.upload, first, checked.bins.rejected)


def _take(batches: Iterator[Any], rows: int) -> list[Any]:
    """Batches with about this many rows together; empty at the end."""
    taken: list[Any] = []
    while rows > 0 and (batch := next(batches, None)) is not None:
        taken.append(batch)
        rows -= batch.num_rows
    return taken
