"""The counts of a preview are those of its promotion."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.engine.conftest import HEADER, meta_line
from tests.preview.conftest import Look, Send
from tests.preview.files import MAKERS
from weighbridge.delivery import sites
from weighbridge.delivery.context import Context
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes, Upload
from weighbridge.uploads import preview
from weighbridge.uploads.preview_rows import KINDS, Page


def promoted(upload: Upload) -> dict[str, Changes]:
    return {entity: Changes(*(counts[kind] for kind in KINDS)) for entity, counts in upload.promoted.items()}


async def scope(ctx: Context, workspace: UUID, said: dict[str, Any]) -> dict[str, Any]:
    """A file of conversions belongs to a site."""
    if said.get("pipeline") != "conversions":
        return said
    async with ctx.db.tx("weighbridge_intake", workspace) as tx:
        return {**said, "client_id": (await sites.make(tx, workspace, "Shop", ("webhook",))).id}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", MAKERS)
async def test_the_counts_of_a_preview_are_those_of_its_promotion(
    ctx: Context, workspace: UUID, load: Send, finish: Look, maker: str, seed: int
) -> None:
    chance = Random(seed)
    make, said = MAKERS[maker]
    said = await scope(ctx, workspace, dict(said))
    kinds = set()
    for _ in range(3):
        held = await load(make(chance), preview=True, force=True, **said)
        assert held.on_hold, held.error_text
        seen = await preview.preview(ctx, held)
        await listed_as_counted(ctx, held, seen.changes)
        await preview.promote_on_hold(ctx, held, actor="test")
        ended = await finish(held.id)
        assert ended.status == Status.COMPLETED, ended.error_text
        assert seen.changes == promoted(ended)
        assert (seen.rejected, seen.duplicate) == (ended.failed_rows, ended.bins.duplicate)
        grain = seen.changes[ctx.pipelines[ended.pipeline].grain.name]
        kinds |= {kind for kind in KINDS if getattr(grain, kind)}
    assert kinds == set(KINDS)  # else it has shown little


async def listed_as_counted(ctx: Context, held: Upload, counted: dict[str, Changes]) -> None:
    """The pages of each kind have as many rows as were counted, but for days that receipts know."""
    for entity, changes in counted.items():
        for kind in KINDS:
            rows, after = 0, 0
            while found := await preview.page(ctx, held, Page(entity, kind, after, 7)):
                rows, after = rows + len(found), found[-1].seq
                assert all(row.changes for row in found) or kind == "unchanged" or entity != "daily_metric"
                assert kind != "unchanged" or not any(row.changes for row in found)
            if kind == "unchanged" and entity == "daily_metric":
                assert rows <= changes.unchanged
            else:
                assert rows == getattr(changes, kind), (entity, kind)


async def test_an_updated_row_shows_old_and_new_values(ctx: Context, load: Send) -> None:
    await load("\n".join([HEADER, meta_line("2026-01-01", 1), meta_line("2026-01-01", 2)]).encode())
    changed = [meta_line("2026-01-01", 1, impressions=7, spend="2.25"), meta_line("2026-01-01", 2)]
    held = await load("\n".join([HEADER, *changed]).encode(), preview=True)
    assert (await preview.preview(ctx, held)).changes["daily_metric"] == Changes(updated=1, unchanged=1)
    (row,) = await preview.page(ctx, held, Page("daily_metric", "updated"))
    assert row.line == 2
    assert row.key == {
        "metric_date": "2026-01-01", "campaign_id": "Campaign 0", "ad_set_id": "Ad set 0", "ad_id": "Ad 1"
    }  # fmt: skip
    assert {(c.column, c.old, c.new) for c in row.changes} == {
        ("impressions", "100", "7"), ("spend", "1.500000", "2.250000")
    }  # fmt: skip
