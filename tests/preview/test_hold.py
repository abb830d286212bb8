"""A preview stops when it is staged, and goes on by a person's word alone."""

from __future__ import annotations

from tests.engine.conftest import meta_file
from tests.preview.conftest import Look, Query, Send
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes
from weighbridge.steps import preview
from weighbridge.steps.context import Context


async def test_a_preview_stops_when_it_is_staged_and_writes_nothing(
    ctx: Context, load: Send, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    assert (held.status, held.preview, held.held) == (Status.STAGING_COMPLETE, True, True)
    assert query("SELECT count(*) FROM daily_metrics") == [(0,)]
    assert query("SELECT count(*) FROM weighbridge.events") == [(0,)]
    seen = await preview.preview(ctx, held)
    assert seen.changes["daily_metric"] == Changes(inserted=12)


async def test_what_is_promoted_goes_on_like_any_other(
    ctx: Context, load: Send, finish: Look, query: Query
) -> None:
    held = await load(meta_file(), preview=True)
    await preview.promote_held(ctx, held, actor="test")
    ended = await finish(held.id)
    assert (ended.status, ended.promoted_rows, ended.preview) == (Status.COMPLETED, 12, False)
    assert query("SELECT type FROM weighbridge.events") == [("IngestionCompleteEvent",)]
