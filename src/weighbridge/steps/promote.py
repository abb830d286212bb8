"""Third step: staged rows → production rows, exactly once. Rows, counts, watermark and event commit together."""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.db import history, rejections, uploads
from weighbridge.db.production import StagingGone
from weighbridge.db.rejections import Rejection
from weighbridge.model.errors import Refused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.observe import journal
from weighbridge.steps.announce import ALERTS
from weighbridge.steps.attempt import Attempt
from weighbridge.steps.context import Context
from weighbridge.steps.parse import parts_of_sums, pipeline_of, raw_records
from weighbridge.steps.tally import Tally
from weighbridge.steps.write import ROLE, Writer

REASONS = 3  # shown of a file that is refused


async def promote(attempt: Attempt, ctx: Context) -> None:
    """Upsert what is staged, dimensions before facts, from where an earlier attempt left off."""
    upload = attempt.upload
    pipeline = pipeline_of(upload, ctx)
    await judge(attempt, ctx)
    if upload.staged.get(pipeline.grain.name) != upload.bins.accepted:
        raise StagingGone("other rows are staged than were accepted")
    async with ctx.db.fenced(attempt.lease, ROLE) as tx:
        await uploads.begin_promotion(tx, attempt.lease)
    writer = Writer(attempt, ctx, pipeline)
    for entity in _from_watermark(upload, pipeline):
        await writer.write(pipeline.entity(entity))
    await _complete_rejections(attempt, ctx)
    journal.row_errors(upload, writer.refused, len(writer.refused))
    verdict = _verdict(upload, pipeline, writer.tally)
    async with ctx.db.fenced(attempt.lease, ROLE) as tx:
        await uploads.finish(tx, attempt.lease, verdict, [name for name in ctx.consumers if name != ALERTS])


async def judge(attempt: Attempt, ctx: Context) -> None:
    """Refuse a file with too few valid rows, and say why most of them are not."""
    upload, pipeline = attempt.upload, pipeline_of(attempt.upload, ctx)
    bins = upload.bins
    enough = bins.valid_share >= pipeline.min_valid or upload.force_partial
    if bins.accepted and enough:
        return
    async with ctx.db.fenced(attempt.lease, ROLE, durable=False) as tx:
        why = _most_common(await history.reasons(tx, upload.id, REASONS))
    if not bins.accepted:
        none = (
            "The only row is not valid."
            if bins.data_rows == 1
            else f"None of the {bins.data_rows} rows is valid."
        )
        raise Refused("no_valid_rows", f"{none} {why}{_see_rejects(upload)}")
    raise Refused(
        "too_many_invalid_rows",
        f"Only {bins.valid_share:.1%} of {bins.data_rows} rows are valid, expected at least "
        f"{pipeline.min_valid:.0%}. {why}{_see_rejects(upload)} Nothing of this file was loaded. "
        "Correct the complete file and load it again; or load the valid rows with force_partial, and then the "
        "corrected rejects.",
    )


def _most_common(reasons: Sequence[history.Reason]) -> str:
    """`Most common: bad_date in 'Filed', 120 rows (…); …`, each with an example."""
    if not reasons:
        return ""
    shown = []
    for reason in reasons:
        column = f" in {reason.column_name!r}" if reason.column_name else ""
        rows = "1 row" if reason.rows == 1 else f"{reason.rows:,} rows"
        shown.append(f"{reason.code}{column}, {rows} ({reason.example.rstrip('.')})")
    return f"Most common: {'; '.join(shown)}. "


def _from_watermark(upload: Upload, pipeline: Pipeline) -> list[str]:
    names = [entity.name for entity in pipeline.entities]
    mark = upload.watermark.entity
    return names[names.index(mark) :] if mark else names


async def _complete_rejections(attempt: Attempt, ctx: Context) -> None:
    """Rows that failed here get their cells from the file, as rows that failed in parsing have them."""
    async with ctx.db.fenced(attempt.lease, ROLE, durable=False) as tx:
        bare = await rejections.without_raw(tx, attempt.upload.id)
    if not bare:
        return
    if attempt.upload.read_as.sum_breakdowns:
        bare += await _reject_parts(attempt, ctx, set(bare))
    raw = await raw_records(attempt.upload, ctx, set(bare))
    async with ctx.db.fenced(attempt.lease, ROLE, durable=False) as tx:
        for row_index, cells in raw.items():
            await rejections.set_raw(tx, attempt.upload.id, row_index, cells)


async def _reject_parts(attempt: Attempt, ctx: Context, failed: set[int]) -> list[int]:
    """The other parts of sums that were not written: with one part alone the sum could not be made again."""
    others = [part for part in await parts_of_sums(attempt, ctx, failed) if part.row_index not in failed]
    async with ctx.db.fenced(attempt.lease, ROLE, durable=False) as tx:
        for part in others:
            message = (
                f"Its sum with other records was not written (line {part.line}). Load all of them together."
            )
            await rejections.add(
                tx,
                attempt.lease,
                Rejection(part.row_index, part.line, "promote", None, "sum_not_written", message, None),
            )
    return [part.row_index for part in others]


def _verdict(upload: Upload, pipeline: Pipeline, tally: Tally) -> uploads.Verdict:
    """completed: every valid row is in production. partial: one failed, or force_partial let the file through."""
    if tally.promoted_rows == 0:
        raise Refused("nothing_promoted", f"No row could be written to production. {_see_rejects(upload)}")
    failed_rows = upload.bins.rejected + tally.failed(pipeline.grain)
    if tally.all_failed:
        text = f"{tally.all_failed} valid rows could not be written to production. {_see_rejects(upload)}"
        return uploads.Verdict(Status.PARTIAL, failed_rows, "rows_failed", text)
    if upload.bins.valid_share < pipeline.min_valid:
        text = f"Only {upload.bins.valid_share:.1%} of the rows are valid; force_partial let them through."
        return uploads.Verdict(Status.PARTIAL, failed_rows, "forced_partial", text)
    return uploads.Verdict(Status.COMPLETED, failed_rows)


def _see_rejects(upload: Upload) -> str:
    return f"See why: GET /api/uploads/{upload.id}/rejects, or weighbridge uploads rejects {upload.id}."
