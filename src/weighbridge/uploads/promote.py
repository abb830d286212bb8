"""Fourth step: staged rows → production rows, exactly once. Rows, counts, watermark and event commit together."""

from __future__ import annotations

import asyncio
from time import monotonic

from weighbridge.engine.announce import ALERTS
from weighbridge.model.errors import Refused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.observe import journal
from weighbridge.postgres import roles
from weighbridge.uploads import queue, rejections
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.late_files import LaterFiles, later_files
from weighbridge.uploads.parse import parts_of_sums
from weighbridge.uploads.promote_entity import PromotionWriter
from weighbridge.uploads.promotion_counts import PromotionCounts
from weighbridge.uploads.queue import Turn
from weighbridge.uploads.rejections import Rejection
from weighbridge.uploads.stored_file import pipeline_of, raw_records
from weighbridge.uploads.threshold import rejects_hint
from weighbridge.uploads.upsert_sql import StagingLost

PATIENCE = 1.0  # seconds to wait for a file before this one
ASK_AGAIN = 0.01


async def promote(attempt: Attempt, ctx: Context) -> bool:
    """Upsert the staged rows, dimensions before facts, starting where an earlier attempt stopped.

    False: an earlier file with the same rows comes first. The attempt is closed; the upload is claimed again after it.
    """
    upload = attempt.upload
    pipeline = pipeline_of(upload, ctx)
    if upload.staged.get(pipeline.grain.name) != upload.bins.accepted:
        raise StagingLost("other rows are staged than were accepted")
    turn, later = await _begin(attempt, ctx)
    if turn is Turn.RELEASED:
        return False
    writer = PromotionWriter(attempt, ctx, pipeline, later)
    for entity in _from_watermark(upload, pipeline):
        await writer.write(pipeline.entity(entity))
    if writer.counts.failed(pipeline.grain):
        await _complete_rejections(attempt, ctx)
    journal.row_errors(upload, writer.refused, len(writer.refused))
    if writer.counts.promoted_rows == 0:
        # The upload fails outside of this attempt's transactions. Its rejections must be on disk before: a crash of the
        # server would undo them, and the failure would remain.
        async with ctx.db.fenced(attempt.lease, roles.PROMOTE) as tx:
            await queue.begin_promotion(tx, attempt.lease, patient=False)
    result = _result(upload, pipeline, writer.counts)
    async with ctx.db.fenced(attempt.lease, roles.PROMOTE) as tx:
        await queue.finish(tx, attempt.lease, result, [name for name in ctx.consumers if name != ALERTS])
    return True


async def _begin(attempt: Attempt, ctx: Context) -> tuple[Turn, LaterFiles | None]:
    """Wait a moment for a file before it that a worker is busy with; after that, the attempt gives up its slot."""
    give_up = monotonic() + PATIENCE
    while True:
        async with ctx.db.fenced(attempt.lease, roles.PROMOTE, durable=False) as tx:
            turn = await queue.begin_promotion(tx, attempt.lease, patient=monotonic() < give_up)
            later = await later_files(tx, attempt.upload) if turn is Turn.LATE else None
        if turn is not Turn.WAIT:
            return turn, later
        attempt.check()
        await asyncio.sleep(ASK_AGAIN)


def _from_watermark(upload: Upload, pipeline: Pipeline) -> list[str]:
    names = [entity.name for entity in pipeline.entities]
    watermark = upload.watermark.entity
    return names[names.index(watermark) :] if watermark else names


async def _complete_rejections(attempt: Attempt, ctx: Context) -> None:
    """Add the cells from the file to rows that failed in promotion, as rows that failed in parsing have them."""
    async with ctx.db.fenced(attempt.lease, roles.PROMOTE, durable=False) as tx:
        without_raw = await rejections.without_raw(tx, attempt.upload.id)
    if not without_raw:
        return
    if attempt.upload.read_as.sum_breakdowns:
        without_raw += await _reject_parts(attempt, ctx, set(without_raw))
    raw = await raw_records(attempt.upload, ctx, set(without_raw))
    async with ctx.db.fenced(attempt.lease, roles.PROMOTE, durable=False) as tx:
        for row_index, cells in raw.items():
            await rejections.set_raw(tx, attempt.upload.id, row_index, cells)


async def _reject_parts(attempt: Attempt, ctx: Context, failed: set[int]) -> list[int]:
    """Reject the other parts of sums that were not written: from one part alone the sum could not be made again."""
    others = [part for part in await parts_of_sums(attempt, ctx, failed) if part.row_index not in failed]
    async with ctx.db.fenced(attempt.lease, roles.PROMOTE, durable=False) as tx:
        for part in others:
            message = (
                f"The sum of this record and others was not written (see line {part.line}). Load all of these "
                "records together."
            )
            await rejections.add_rejection(
                tx,
                attempt.lease,
                Rejection(part.row_index, part.line, "promote", None, "sum_not_written", message, None),
            )
    return [part.row_index for part in others]


def _result(upload: Upload, pipeline: Pipeline, counts: PromotionCounts) -> queue.UploadResult:
    """completed: every valid row is in production. partial: one failed, or force_partial accepted the file."""
    if counts.promoted_rows == 0 and not counts.superseded:
        raise Refused("nothing_promoted", f"No row could be written to production. {rejects_hint(upload)}")
    failed_rows = upload.bins.rejected + counts.failed(pipeline.grain)
    if counts.all_failed:
        text = f"{counts.all_failed} valid rows could not be written to production. {rejects_hint(upload)}"
        return queue.UploadResult(Status.PARTIAL, failed_rows, "rows_failed", text)
    if upload.bins.valid_share < pipeline.min_valid:
        text = f"Only {upload.bins.valid_share:.1%} of the rows are valid; force_partial accepted the file."
        return queue.UploadResult(Status.PARTIAL, failed_rows, "forced_partial", text)
    return queue.UploadResult(Status.COMPLETED, failed_rows)
