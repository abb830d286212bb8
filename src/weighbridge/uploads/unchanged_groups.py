"""Groups of staged rows that are already in production unchanged, and are skipped."""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.pipeline import Pipeline
from weighbridge.model.upload import Scope
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all
from weighbridge.uploads.upsert_sql import SeqRange

_SQL = load(__name__)


async def matching_groups(tx: Tx, pipeline: Pipeline, scope: Scope, after: int) -> list[tuple[int, int]]:
    """Ranges of seq, (after, upto], whose groups all match their receipts. They keep matching until commit."""
    groups = await fetch_all(tx, _SQL["matching_groups"], {**_names(pipeline, scope), "after": after})
    return _ranges(groups)


async def current_groups(tx: Tx, pipeline: Pipeline, scope: Scope) -> list[tuple[int, int]]:
    """The same ranges as of now, without locks, for previews."""
    return _ranges(await fetch_all(tx, _SQL["current_groups"], _names(pipeline, scope)))


def _ranges(groups: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Merge adjacent groups into one range."""
    ranges: list[tuple[int, int]] = []
    for first, last in groups:
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first - 1, last))
    return ranges


async def known_groups(tx: Tx, pipeline: Pipeline, scope: Scope, digests: dict[str, bytes]) -> set[str]:
    """The groups that are already in production, according to their receipts."""
    rows = await fetch_all(
        tx,
        _SQL["known_groups"],
        {**_names(pipeline, scope), "groups": list(digests), "digests": list(digests.values())},
    )
    return {row[0] for row in rows}


async def touch(tx: Tx, pipeline: Pipeline, batch: SeqRange, *, incomplete: bool = False) -> None:
    """Record that this upload writes to the groups of the batch. An incomplete group never becomes a receipt."""
    if not pipeline.grouped:
        await tx.execute(_SQL["void_receipts"], _names(pipeline, batch.scope))
        return
    await tx.execute(
        _SQL["touch_receipts"],
        {**_names(pipeline, batch.scope), "after": batch.after, "upto": batch.upto, "incomplete": incomplete},
    )


def _names(pipeline: Pipeline, scope: Scope) -> dict[str, object]:
    return {
        "upload": scope.upload_id,
        "workspace": scope.workspace_id,
        "target": pipeline.grain.table,
        "scope": "|".join(scope.value(s) or "" for s in pipeline.scope),
    }
