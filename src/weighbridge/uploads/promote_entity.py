"""Inside promote: the staged rows of one entity → its table, batch by batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.retry import POLICIES
from weighbridge.model.upload import Changes, Watermark
from weighbridge.postgres import roles
from weighbridge.postgres.errors import Contention, RowFault
from weighbridge.postgres.transactions import Tx
from weighbridge.uploads import late_files, queue, rejections, upsert_sql
from weighbridge.uploads import unchanged_groups as uploads_unchanged
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.late_files import LaterFiles
from weighbridge.uploads.new_rows import Gaps
from weighbridge.uploads.promotion_counts import PromotionCounts
from weighbridge.uploads.rejections import Rejection
from weighbridge.uploads.upsert_sql import SeqRange

PARENT_NOT_WRITTEN = RowFault("parent_not_found", "a row that it belongs to could not be written")


@dataclass(frozen=True)
class Segment:
    """A range of staged rows, (after, upto], and whether it is in production unchanged according to receipts."""

    after: int
    upto: int
    unchanged: bool


@dataclass(frozen=True)
class Survey:
    """What is known about an entity's rows before the first one is written."""

    lost: tuple[UUID, ...] = ()  # referenced parents that production does not have
    faults: Mapping[int, RowFault] = field(default_factory=dict)  # rows that must not be written, by seq
    ranges: tuple[tuple[int, int], ...] = ()  # (after, upto] that are in production unchanged


class PromotionWriter:
    """One promotion in progress. Its counts are of what has been committed."""

    def __init__(self, attempt: Attempt, ctx: Context, pipeline: Pipeline, later: LaterFiles | None) -> None:
        self.attempt = attempt
        self.ctx = ctx
        self.pipeline = pipeline
        self.scope = attempt.upload.scope
        self.counts = PromotionCounts.of(attempt.upload, pipeline)
        self.later = later  # where the file is late
        self.confirmed: frozenset[int] = (
            frozenset()
        )  # seqs of rows that later files have as well, of one entity
        self.fresh = True  # the next rows are probably new
        self.gaps = Gaps(pipeline)
        self.planned: set[tuple[str, int]] = set()  # entity and connection: see `_plan_anew`
        self.refused: list[tuple[int, str]] = []  # line and code of records that this attempt could not write

    async def write(self, entity: Entity) -> None:
        """All rows of the entity after the watermark."""
        watermark = self.attempt.upload.watermark
        after = watermark.seq if watermark.entity == entity.name else 0
        last = self.attempt.upload.staged.get(entity.name, 0)
        survey = await self._survey(entity, after)
        if self.later is not None:
            async with self.ctx.db.fenced(self.attempt.lease, roles.PROMOTE, durable=False) as tx:
                self.confirmed = await late_files.confirmed(tx, self.pipeline, entity, self.scope, self.later)
        for segment in _segments(after, last, survey.ranges):
            if segment.unchanged and await self._skip_unchanged(entity, segment):
                continue
            for start in range(segment.after, segment.upto, self.ctx.limits.batch_rows):
                self.attempt.check()
                upto = min(start + self.ctx.limits.batch_rows, segment.upto)
                report = self.attempt.upload.column_report
                await self._write(
                    entity, SeqRange(self.scope, start, upto, survey.lost, report, survey.faults)
                )

    async def _survey(self, entity: Entity, after: int) -> Survey:
        grain = entity is self.pipeline.grain
        if not entity.refs and not grain:
            return Survey()
        async with self.ctx.db.fenced(self.attempt.lease, roles.PROMOTE, durable=False) as tx:
            lost: set[UUID] = set()
            for ref in entity.refs:
                lost |= await upsert_sql.missing(tx, self.pipeline.entity(ref.entity), self.scope)
            faults: dict[int, RowFault] = {}
            if lost:
                rows = await upsert_sql.rows_without_parent(tx, self.pipeline, entity, self.scope, lost)
                faults |= dict.fromkeys(rows, PARENT_NOT_WRITTEN)
            ranges: list[tuple[int, int]] = []
            if grain:
                if self.attempt.upload.read_as.linked and not entity.upsert.repeats:
                    faults |= await self._overwriting(tx, entity)
                ranges = await uploads_unchanged.matching_groups(tx, self.pipeline, self.scope, after)
        return Survey(tuple(lost), faults, tuple(ranges))

    async def _overwriting(self, tx: Tx, entity: Entity) -> dict[int, RowFault]:
        """Records of a fixed rejects file that would replace another record of their original file."""
        filled = self.attempt.upload.column_report.filled_of(entity.name)
        others = await upsert_sql.overwriting(tx, self.pipeline, self.scope, filled)
        return {
            seq: RowFault(
                "conflicting_repeat",
                f"its original upload {original} has loaded another row with the same key and other values. "
                "Correct the key; or correct the original file and load it again",
            )
            for seq, original in others.items()
        }

    async def _skip_unchanged(self, entity: Entity, segment: Segment) -> bool:
        """Count the rows as unchanged if the receipts still match; this stays true until commit."""
        async with self.ctx.db.fenced(self.attempt.lease, roles.PROMOTE, durable=False) as tx:
            ranges = await uploads_unchanged.matching_groups(tx, self.pipeline, self.scope, segment.after)
            if not ranges or ranges[0][0] != segment.after or ranges[0][1] < segment.upto:
                return False
            counts = self.counts.unchanged(entity, segment.upto - segment.after)
            await self._advance(tx, entity, segment.upto, counts)
        self.counts = counts
        return True

    async def _write(self, entity: Entity, batch: SeqRange) -> None:
        """Write a batch. If a row breaks it, split it until that row is alone, and skip the row."""
        failures = 0
        while True:
            try:
                return await self._commit(entity, batch)
            except RowFault as fault:
                if not self.gaps.covers(entity, batch):
                    return await self._split(entity, batch, fault)
                self.fresh = False  # another upload has written there just now
                self.gaps.forget()
            except Contention as contention:
                failures += 1
                pause = POLICIES["deadlock"].wait(failures)
                if pause is None:
                    return await self._give_up(entity, batch, contention)
                await asyncio.sleep(pause.total_seconds())

    async def _commit(self, entity: Entity, batch: SeqRange) -> None:
        async with self.ctx.db.fenced(self.attempt.lease, roles.PROMOTE, durable=False) as tx:
            if entity is self.pipeline.grain:
                await uploads_unchanged.touch(
                    tx, self.pipeline, batch, incomplete=bool(batch.lost or batch.skipped or self.later)
                )
            await self._plan_anew(tx, entity)
            counts = self.counts
            if batch.lost:
                await self._note_lost(tx, entity, batch)
            if batch.skipped:
                counts = await self._note_faults(tx, entity, batch)
            changes = await self._upsert(tx, entity, batch)
            counts = counts.add(entity, changes)
            await self._advance(tx, entity, batch.upto, counts)
        self.counts = counts
        self.fresh = changes.inserted == batch.size

    async def _upsert(self, tx: Tx, entity: Entity, batch: SeqRange) -> Changes:
        if self.later is not None:
            return await late_files.upsert_late(
                tx,
                self.pipeline,
                entity,
                batch,
                position=self.attempt.upload.position,
                later=self.later,
                confirmed=self.confirmed,
            )
        last = self.attempt.upload.staged.get(entity.name, batch.upto)
        fresh = self.fresh and await self.gaps.search(tx, entity, batch, last)
        return await upsert_sql.upsert(tx, self.pipeline, entity, batch, fresh=fresh)

    async def _plan_anew(self, tx: Tx, entity: Entity) -> None:
        """Before many rows with foreign keys: a connection keeps the plans of their checks, perhaps of empty parents.

        Each check would then read all parents of the workspace. Now the parents are there, and the planner sees them.
        """
        rows = self.attempt.upload.staged.get(entity.name, 0)
        connection = (entity.name, tx.info.backend_pid)
        if entity.refs and rows > self.ctx.limits.batch_rows and connection not in self.planned:
            await tx.execute("DISCARD PLANS")
            self.planned.add(connection)

    async def _split(self, entity: Entity, batch: SeqRange, fault: RowFault) -> None:
        if batch.size == 1:
            await self._skip(entity, batch, fault)
        else:
            middle = batch.after + batch.size // 2
            await self._write(entity, replace(batch, upto=middle))
            await self._write(entity, replace(batch, after=middle))

    async def _give_up(self, entity: Entity, batch: SeqRange, contention: Contention) -> None:
        """After the last retry, a deadlock fails its batch and a missing parent fails its rows."""
        if contention.parent:
            await self._split(entity, batch, RowFault("parent_not_found", "its parent is not in production"))
        else:
            await self._skip(entity, batch, RowFault("deadlock", "its batch had a deadlock on every attempt"))

    async def _skip(self, entity: Entity, batch: SeqRange, fault: RowFault) -> None:
        """Record the batch's rows as failed and continue after them."""
        async with self.ctx.db.fenced(self.attempt.lease, roles.PROMOTE, durable=False) as tx:
            if entity is self.pipeline.grain:
                await uploads_unchanged.touch(tx, self.pipeline, batch, incomplete=True)
            for _, row_index, line in await upsert_sql.staged_lines(tx, self.pipeline, entity, batch):
                await self._note_failure(tx, entity, (row_index, line), fault)
            counts = self.counts.fail(entity, batch.size)
            await self._advance(tx, entity, batch.upto, counts)
        self.counts = counts

    async def _note_lost(self, tx: Tx, entity: Entity, batch: SeqRange) -> None:
        """A reference to a missing parent becomes NULL, with a warning; if it is in the key, the row fails instead."""
        for row_index, line, ref in await upsert_sql.rows_naming(tx, self.pipeline, entity, batch):
            message = f"{ref}: the referenced row is not in production; the reference is empty (line {line})."
            await rejections.add_warning(
                tx, self.attempt.lease, (row_index, line), f"{ref}_not_found", message
            )

    async def _note_faults(self, tx: Tx, entity: Entity, batch: SeqRange) -> PromotionCounts:
        for seq, row_index, line in await upsert_sql.staged_lines(tx, self.pipeline, entity, batch):
            if seq in batch.faults:
                await self._note_failure(tx, entity, (row_index, line), batch.faults[seq])
        return self.counts.fail(entity, len(batch.skipped))

    async def _note_failure(
        self, tx: Tx, entity: Entity, row_and_line: tuple[int, int], fault: RowFault
    ) -> None:
        """A failed fact is a rejected record of the file; a failed dimension row is a warning on its record."""
        message = f"{entity.name}: not written, {fault.message} (line {row_and_line[1]})."
        if entity is self.pipeline.grain:
            self.refused.append((row_and_line[1], fault.code))
            await rejections.add_rejection(
                tx, self.attempt.lease, Rejection(*row_and_line, "promote", None, fault.code, message, None)
            )
        else:
            await rejections.add_warning(
                tx, self.attempt.lease, row_and_line, f"{entity.name}_{fault.code}", message
            )

    async def _advance(self, tx: Tx, entity: Entity, seq: int, counts: PromotionCounts) -> None:
        watermark = Watermark(entity.name, seq)
        await queue.advance(tx, self.attempt.lease, watermark, counts.as_dict(), counts.promoted_rows)


def _segments(after: int, last: int, ranges: Sequence[tuple[int, int]]) -> Iterator[Segment]:
    """Cut (after, last] into ranges that receipts cover and ranges that must be written."""
    for start, end in ranges:
        if after < start:
            yield Segment(after, start, unchanged=False)
        yield Segment(start, end, unchanged=True)
        after = end
    if after < last:
        yield Segment(after, last, unchanged=False)
