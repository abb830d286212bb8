"""Inside the parse step: a fixed rejects file is read as the file that its rows are from.

Few rows show less than many: 3/4/2025 alone does not say whether the day comes first, and the original file did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from weighbridge.db import uploads
from weighbridge.model.errors import FileRefused
from weighbridge.model.reading import ReadOptions
from weighbridge.model.sheet import Linked, Sheet
from weighbridge.model.upload import Upload
from weighbridge.steps.context import Context


async def inherited_options(ctx: Context, upload: Upload, sheet: Sheet) -> ReadOptions:
    """The options that the sender gave; for a fixed rejects file also those of the original uploads.

    Raises FileRefused: `mixed_rejects`.
    """
    if not isinstance(sheet, Linked):
        return upload.reading
    ids = [UUID(each) for each in await asyncio.to_thread(sheet.originals)]
    async with ctx.db.tx("weighbridge_tenant", upload.workspace_id) as tx:
        found = await uploads.get_many(tx, ids)
    originals = [each for each in found if each.pipeline == upload.pipeline]
    given = upload.reading
    return replace(
        given,
        decimal=given.decimal or _only([each.read_as.decimal for each in originals], "decimal marks"),
        date_order=given.date_order or _only([each.read_as.date_order for each in originals], "date orders"),
        sum_breakdowns=given.sum_breakdowns or any(each.reading.sum_breakdowns for each in originals),
    )


def _only(values: Sequence[str], what: str) -> str:
    found = sorted(set(filter(None, values)))
    if len(found) > 1:
        raise FileRefused(
            "mixed_rejects",
            f"Expected rejected rows of files that were read in the same way, got rows of files with different {what}: "
            f"{' and '.join(map(repr, found))}. Load the rejects of each upload as a file of its own.",
        )
    return next(iter(found), "")
