"""Inside parse: a fixed rejects file is read with the decimal mark, date order and options of its original file.

A few rows show less than many: 3/4/2025 alone does not show whether the day comes first, but the original file did. The
other rows of the original must be in production: the fixed rows alone would look like the complete file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from weighbridge.model.counts import counted
from weighbridge.model.errors import FileRefused
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.sheet import Linked, Sheet
from weighbridge.model.states import TERMINAL, Status
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.uploads import fixed_rows, queue
from weighbridge.uploads.context import Context
from weighbridge.uploads.fixed_rows import NO_REJECTS, Rejects


@dataclass(frozen=True)
class Inherited:
    """How to read a file: as its sender specified, and for a fixed rejects file like its original uploads."""

    options: ReadOptions
    exponents: bool = False  # numbers may have exponents: all originals are JSON
    indian: bool = False  # digits may be grouped as in 12,34,567: all originals have this
    originals: tuple[Upload, ...] = ()


async def inherited(ctx: Context, upload: Upload, sheet: Sheet) -> Inherited:
    """The options that the sender gave; for a fixed rejects file also those of the original uploads.

    Raises FileRefused: `mixed_rejects`.
    """
    originals = await _originals(ctx, upload, sheet)
    given = upload.reading
    options = replace(
        given,
        decimal=given.decimal or _only([each.read_as.decimal for each in originals], "decimal marks"),
        date_order=given.date_order or _only([each.read_as.date_order for each in originals], "date orders"),
        sum_breakdowns=given.sum_breakdowns or any(_sums(each) for each in originals),
    )
    exponents = bool(originals) and all(_has_exponents(each) for each in originals)
    indian = bool(originals) and all(each.read_as.indian for each in originals)
    return Inherited(options, exponents, indian, tuple(originals))


async def refuse_without_original(ctx: Context, upload: Upload, originals: Sequence[Upload]) -> None:
    """Raises FileRefused: `original_not_loaded`, where valid rows of an original upload are not in production."""
    if not originals:
        return
    async with ctx.db.tx(roles.TENANT, upload.workspace_id) as tx:
        rejects = await fixed_rows.rejects(tx, [each.id for each in originals])
    for original in originals:
        if original.status not in TERMINAL:
            raise FileRefused(
                "original_not_loaded",
                f"The upload that these rows are from ({original.id}) is {original.status.value}: its other rows are "
                f"not loaded yet. When it has ended, run: weighbridge uploads retry {upload.id}.",
            )
        lost = _not_loaded(original, rejects.get(original.id, NO_REJECTS))
        if lost:
            raise FileRefused(
                "original_not_loaded",
                f"The upload that these rows are from ({original.id}) failed, and its valid rows were not loaded: "
                f"{counted(lost, 'row')} would be missing. Correct the complete file and load it; "
                f"or load the valid rows first (weighbridge uploads retry {original.id} --force-partial) and then "
                f"these (weighbridge uploads retry {upload.id}).",
            )


async def _originals(ctx: Context, upload: Upload, sheet: Sheet) -> list[Upload]:
    """The uploads that the rows of a fixed rejects file are from; none for any other file."""
    if not isinstance(sheet, Linked):
        return []
    ids = [UUID(each) for each in await asyncio.to_thread(sheet.originals)]
    async with ctx.db.tx(roles.TENANT, upload.workspace_id) as tx:
        found = await queue.get_many(tx, ids)
    return [each for each in found if each.pipeline == upload.pipeline and each.id != upload.id]


def _not_loaded(original: Upload, rejects: Rejects) -> int:
    """How many rows of a failed upload are neither in production nor in its rejects file."""
    if original.status != Status.FAILED:
        return 0
    rows = original.bins.accepted + original.bins.rejected
    return max(0, rows - original.promoted_rows - rejects.open - rejects.fixed)


def _sums(original: Upload) -> bool:
    return original.reading.sum_breakdowns or original.read_as.sum_breakdowns


def _has_exponents(original: Upload) -> bool:
    return original.file_kind == "json" or original.read_as.exponents


def _only(values: Sequence[str], what: str) -> str:
    found = sorted(set(filter(None, values)))
    if len(found) > 1:
        raise FileRefused(
            "mixed_rejects",
            f"Expected rejected rows of files that were read in the same way, got rows of files with different {what}: "
            f"{' and '.join(map(repr, found))}. Load the rejects of each upload as a file of its own.",
        )
    return next(iter(found), "")
