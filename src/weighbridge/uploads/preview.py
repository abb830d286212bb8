"""A staged upload that is on hold → the changes it would make; then it is promoted or discarded.

Nobody's work waits for a held upload. Its staged rows are kept for as long as those of any other (`staging_days`);
then it is discarded by itself, as nobody wanted it: `expire`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from weighbridge.model.errors import RequestRefused, did_you_mean
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Changes, Upload
from weighbridge.observe import journal
from weighbridge.observe.redact import said_back
from weighbridge.postgres import clock
from weighbridge.uploads import history, on_hold, queue, staging
from weighbridge.uploads import preview_rows as comparison
from weighbridge.uploads.context import Context
from weighbridge.uploads.history import Reason
from weighbridge.uploads.on_hold import Discard
from weighbridge.uploads.preview_rows import KINDS, Page, Row
from weighbridge.uploads.promote_entity import ROLE
from weighbridge.uploads.upsert_sql import StagingGone

CLEAN = "weighbridge_clean"
REASONS = 20  # why rows were refused, the most frequent first
HOLDS = timedelta(seconds=10)  # a comparison, whatever is promoted meanwhile: it reads every row


@dataclass(frozen=True)
class Preview:
    """What a held upload would do to production, as it was at one moment."""

    upload: Upload
    as_of: datetime
    expires_at: datetime  # discarded by itself then
    changes: dict[str, Changes]  # by entity, dimensions before facts
    reasons: tuple[Reason, ...]  # why rows were refused

    @property
    def rejected(self) -> int:
        return self.upload.bins.rejected

    @property
    def duplicate(self) -> int:
        """Records of the file that say what another one said."""
        return self.upload.bins.duplicate


async def preview(ctx: Context, upload: Upload, *, fresh: bool = False, operates: bool = True) -> Preview:
    """The comparison of all rows. RequestRefused(409) where it is not held, or has to be read again first.

    It is kept, and holds until something of the workspace is promoted, but for `HOLDS` at least; `fresh` compares again
    in any case. To whoever only reads (not `operates`) it holds as long all the same, and no file is read again.
    """
    pipeline = pipeline_of(ctx, upload)
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, upload.id) or upload
        standing = await on_hold.standing(tx, upload.id)
        reasons = await history.reasons(tx, upload.id, REASONS)
        now = await clock.now(tx)
    if standing is None:
        raise _not_held(upload, "compared")
    counts, as_of = standing.counts, standing.counted_at
    insists = fresh and operates
    wanted = fresh or standing.outdated
    if counts is None or as_of is None or insists or (wanted and as_of <= now - HOLDS):
        counts, as_of = await _compare(ctx, pipeline, upload, operates=operates)
    expires_at = standing.staged_at + timedelta(days=ctx.limits.staging_days)
    return Preview(upload, as_of, expires_at, counts, tuple(reasons))


async def _compare(
    ctx: Context, pipeline: Pipeline, upload: Upload, *, operates: bool
) -> tuple[dict[str, Changes], datetime]:
    try:
        async with ctx.db.tx(ROLE, upload.workspace_id) as tx:
            as_of = await clock.now(tx)
            counts = await comparison.counts(tx, pipeline, upload)
    except StagingGone:
        raise await _read_again(ctx, upload, operates=operates) from None
    async with ctx.db.tx() as tx:
        await on_hold.note(tx, upload.id, counts, as_of)
    return counts, as_of


async def page(ctx: Context, upload: Upload, wanted: Page) -> list[Row]:
    """Some of the rows, one kind at a time. RequestRefused as above, or for what there is not."""
    pipeline = pipeline_of(ctx, upload)
    _one_of("entity", wanted.entity, [entity.name for entity in pipeline.entities])
    _one_of("kind", wanted.kind, KINDS)
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, upload.id) or upload
        standing = await on_hold.standing(tx, upload.id)
    if standing is None:
        raise _not_held(upload, "compared")
    if (
        standing.counts and not standing.outdated and wanted.kind != "unchanged"
    ):  # receipts know some of those
        wanted = replace(wanted, known=getattr(standing.counts[wanted.entity], wanted.kind))
    async with ctx.db.tx(ROLE, upload.workspace_id) as tx:
        return await comparison.rows(tx, pipeline, upload, wanted)


async def promote_held(ctx: Context, upload: Upload, *, actor: str) -> None:
    """Let it go on, audited. RequestRefused(409) where it is not held, or another was quicker."""
    async with ctx.db.tx() as tx:
        if not await on_hold.promote(tx, upload.id, actor):
            raise _not_held(await queue.get(tx, upload.id) or upload, "promoted")
    journal.preview_promoted(upload)


async def discard(ctx: Context, upload: Upload, *, actor: str) -> None:
    """Give it up, audited: it fails, and its staged rows go. RequestRefused(409) as above."""
    why = Discard("discarded", "It was looked at and discarded. Nothing of it was written.", actor)
    if await _discard(ctx, upload.id, why) is None:
        async with ctx.db.tx() as tx:
            raise _not_held(await queue.get(tx, upload.id) or upload, "discarded")
    journal.preview_discarded(upload, why.code)


async def expire(ctx: Context) -> int:
    """Discard what nobody has decided on for too long. Returns how many staged rows went."""
    days = ctx.limits.staging_days
    async with ctx.db.tx() as tx:
        found = await queue.get_many(tx, await on_hold.expired(tx, timedelta(days=days)))
    gone = 0
    for upload in found:
        told = (
            f"Nobody promoted or discarded this preview within {days} {'day' if days == 1 else 'days'}. "
            f"Nothing of it was written. To see it again: weighbridge uploads retry {upload.id}."
        )
        rows = await _discard(ctx, upload.id, Discard("preview_expired", told, "clean", timedelta(days=days)))
        if rows is not None:
            journal.preview_discarded(upload, "preview_expired")
            gone += rows
    return gone


async def _discard(ctx: Context, upload_id: UUID, why: Discard) -> int | None:
    """How many staged rows went with it; None where it is not held."""
    async with ctx.db.tx(CLEAN) as tx:
        if not await on_hold.discard(tx, upload_id, why):
            return None
        if not await staging.expire(tx, upload_id, days=0):
            return 0
        return await staging.purge(tx, list(ctx.pipelines.values()), upload_id)


def pipeline_of(ctx: Context, upload: Upload) -> Pipeline:
    if upload.pipeline not in ctx.pipelines:
        message = f"No pipeline is called {upload.pipeline!r} here. Is its module in the settings?"
        raise RequestRefused(409, "unknown_pipeline", message)
    return ctx.pipelines[upload.pipeline]


def _one_of(name: str, value: str, known: list[str] | tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known) or "."
        message = f"{name}: expected one of {', '.join(known)}, got {said_back(value)}{hint}"
        raise RequestRefused(422, f"unknown_{name}", message)


async def _read_again(ctx: Context, upload: Upload, *, operates: bool) -> RequestRefused:
    """Its rows are gone with a crash, or days that were as in production are not any more and were never staged."""
    if not operates:  # to read a file again locks its project
        message = (
            "What it would change has to be found out anew, and the file read again for that. "
            "Someone whose key has the scope operate must look at the preview."
        )
        return RequestRefused(409, "read_again", message)
    async with ctx.db.tx() as tx:
        await on_hold.restage(tx, upload.id)
    message = (
        "What it would change has to be found out anew: the file is being read again. Ask again in a moment."
    )
    return RequestRefused(409, "read_again", message)


def _not_held(upload: Upload, verb: str) -> RequestRefused:
    if upload.preview and upload.status in (Status.PENDING, Status.PROCESSING, Status.STAGING_COMPLETE):
        is_ = "is still being read"
    elif upload.set_aside:
        is_ = "was discarded" if upload.error_code == "discarded" else "was kept long enough, and discarded"
    else:
        is_ = f"is {'' if upload.status in TERMINAL else 'on its way: '}{upload.status}"
    message = f"Only a preview that is held can be {verb}; this upload {is_}."
    return RequestRefused(409, "not_held", message)
