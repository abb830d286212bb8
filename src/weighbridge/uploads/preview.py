"""A staged upload that is on hold → the changes it would make; then it is promoted or discarded.

An upload on hold blocks nothing else. Its staged rows have the same retention period as any others (`staging_days`);
after that `expire` discards the upload.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from weighbridge.model.counts import counted
from weighbridge.model.errors import Refused, RequestRefused, did_you_mean
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Changes, Upload
from weighbridge.observe import journal
from weighbridge.observe.redact import quote_input
from weighbridge.postgres import clock, roles
from weighbridge.uploads import history, preview_queries, queue, staging, stored_file
from weighbridge.uploads import preview_rows as comparison
from weighbridge.uploads.context import Context
from weighbridge.uploads.history import RejectionReason
from weighbridge.uploads.preview_queries import Discard
from weighbridge.uploads.preview_rows import KINDS, Page, PreviewRow
from weighbridge.uploads.upsert_sql import StagingLost

REASONS = 20  # reasons for rejections that are shown, most frequent first
HOLDS = timedelta(seconds=10)  # minimum time a comparison is reused: it reads every row


@dataclass(frozen=True)
class Preview:
    """Changes that an upload on hold would make to production, as of one moment."""

    upload: Upload
    as_of: datetime
    expires_at: datetime  # then it is discarded automatically
    changes: dict[str, Changes]  # by entity, dimensions before facts
    reasons: tuple[RejectionReason, ...]  # why rows were rejected

    @property
    def rejected(self) -> int:
        return self.upload.bins.rejected

    @property
    def duplicate(self) -> int:
        """Records of the file that repeat another record."""
        return self.upload.bins.duplicate


async def preview(ctx: Context, upload: Upload, *, fresh: bool = False, operates: bool = True) -> Preview:
    """Compare all rows. RequestRefused(409) if the upload is not on hold, or must be parsed again first.

    The result is reused until the next promotion in the workspace, at least for `HOLDS`; `fresh` compares again
    in any case. A caller that may only read (`operates` is false) gets the stored result and never causes a new parse.
    """
    pipeline = known_pipeline(ctx, upload)
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, upload.id) or upload
        status = await preview_queries.status(tx, upload.id)
        reasons = await history.reasons(tx, upload.id, REASONS)
        now = await clock.now(tx)
    if status is None:
        raise _not_on_hold(upload, "compared")
    counts, as_of = status.counts, status.counted_at
    insists = fresh and operates
    wanted = fresh or status.outdated
    if counts is None or as_of is None or insists or (wanted and as_of <= now - HOLDS):
        counts, as_of = await _compare(ctx, pipeline, upload, operates=operates)
    expires_at = status.staged_at + timedelta(days=ctx.limits.staging_days)
    return Preview(upload, as_of, expires_at, counts, tuple(reasons))


async def _compare(
    ctx: Context, pipeline: Pipeline, upload: Upload, *, operates: bool
) -> tuple[dict[str, Changes], datetime]:
    try:
        async with ctx.db.tx(roles.PROMOTE, upload.workspace_id) as tx:
            as_of = await clock.now(tx)
            counts = await comparison.counts(tx, pipeline, upload)
    except StagingLost:
        raise await _read_again(ctx, upload, operates=operates) from None
    async with ctx.db.tx() as tx:
        await preview_queries.note(tx, upload.id, counts, as_of)
    return counts, as_of


async def page(ctx: Context, upload: Upload, wanted: Page) -> list[PreviewRow]:
    """Rows of one kind. RequestRefused as in `preview`, or for an unknown entity or kind."""
    pipeline = known_pipeline(ctx, upload)
    _one_of("entity", wanted.entity, [entity.name for entity in pipeline.entities])
    _one_of("kind", wanted.kind, KINDS)
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, upload.id) or upload
        status = await preview_queries.status(tx, upload.id)
    if status is None:
        raise _not_on_hold(upload, "compared")
    if (
        status.counts and not status.outdated and wanted.kind != "unchanged"
    ):  # some of these are known from receipts
        wanted = replace(wanted, known=getattr(status.counts[wanted.entity], wanted.kind))
    async with ctx.db.tx(roles.PROMOTE, upload.workspace_id) as tx:
        return await comparison.rows(tx, pipeline, upload, wanted)


async def promote_on_hold(ctx: Context, upload: Upload, *, actor: str) -> None:
    """Release the upload for promotion, audited. RequestRefused(409) if it is not on hold, or no longer.

    It counts as arrived now: a person has compared its rows with production as it is.
    """
    async with ctx.db.tx() as tx:
        if not await preview_queries.promote(tx, upload.id, actor):
            raise _not_on_hold(await queue.get(tx, upload.id) or upload, "promoted")
    journal.preview_promoted(upload)


async def discard(ctx: Context, upload: Upload, *, actor: str) -> None:
    """Discard the upload, audited: it fails, and its staged rows are deleted. RequestRefused(409) as above."""
    why = Discard("discarded", "Discarded at the preview. Nothing was written to production.", actor)
    if await _discard(ctx, upload.id, why) is None:
        async with ctx.db.tx() as tx:
            raise _not_on_hold(await queue.get(tx, upload.id) or upload, "discarded")
    journal.preview_discarded(upload, why.code)


async def expire(ctx: Context) -> int:
    """Discard previews whose retention period is over. Returns the number of deleted staged rows."""
    days = ctx.limits.staging_days
    async with ctx.db.tx() as tx:
        found = await queue.get_many(tx, await preview_queries.expired(tx, timedelta(days=days)))
    deleted = 0
    for upload in found:
        text = (
            f"This preview was neither promoted nor discarded within {counted(days, 'day')}. "
            f"Nothing was written to production. To see it again: weighbridge uploads retry {upload.id}."
        )
        rows = await _discard(ctx, upload.id, Discard("preview_expired", text, "clean", timedelta(days=days)))
        if rows is not None:
            journal.preview_discarded(upload, "preview_expired")
            deleted += rows
    return deleted


async def _discard(ctx: Context, upload_id: UUID, why: Discard) -> int | None:
    """The number of deleted staged rows; None if the upload is not on hold."""
    async with ctx.db.tx(roles.CLEAN) as tx:
        if not await preview_queries.discard(tx, upload_id, why):
            return None
        if not await staging.expire(tx, upload_id, days=0):
            return 0
        return await staging.purge(tx, list(ctx.pipelines.values()), upload_id)


def known_pipeline(ctx: Context, upload: Upload) -> Pipeline:
    """The pipeline of the upload; RequestRefused(409) if this process does not have it."""
    try:
        return stored_file.pipeline_of(upload, ctx)
    except Refused as refusal:
        raise RequestRefused(409, refusal.code, refusal.message) from refusal


def _one_of(name: str, value: str, known: list[str] | tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known) or "."
        message = f"{name}: expected one of {', '.join(known)}, got {quote_input(value)}{hint}"
        raise RequestRefused(422, f"unknown_{name}", message)


async def _read_again(ctx: Context, upload: Upload, *, operates: bool) -> RequestRefused:
    """The staged rows were lost in a crash, or rows that were skipped as unchanged have changed in production since."""
    if not operates:  # parsing a file again locks its project
        message = (
            "The preview is outdated and the file must be read again. "
            "This needs a key with the scope operate."
        )
        return RequestRefused(409, "read_again", message)
    async with ctx.db.tx() as tx:
        await preview_queries.restage(tx, upload.id)
    message = "The preview is outdated and the file is being read again. Try again in a moment."
    return RequestRefused(409, "read_again", message)


def _not_on_hold(upload: Upload, verb: str) -> RequestRefused:
    if upload.preview and upload.status in (Status.PENDING, Status.PROCESSING, Status.STAGING_COMPLETE):
        is_ = "is still being read"
    elif upload.set_aside:
        is_ = "was discarded"
        if upload.error_code != "discarded":
            is_ += " because its retention period is over"
    else:
        is_ = f"is {'' if upload.status in TERMINAL else 'in progress: '}{upload.status}"
    message = f"Only a preview that is on hold can be {verb}; this upload {is_}."
    return RequestRefused(409, "not_held", message)
