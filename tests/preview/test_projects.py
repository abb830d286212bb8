"""A preview of a project counts as one of its files while it is parsed, and blocks nothing once it is on hold."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.preview.conftest import QUICK, Look, Query, Send
from tests.projects.conftest import keyword_file
from weighbridge.delivery.context import Context
from weighbridge.model.errors import RetryLater
from weighbridge.model.states import Status
from weighbridge.model.upload import Changes
from weighbridge.projects import queue
from weighbridge.projects.create import retry_failed
from weighbridge.projects.edits import Editor, regroup
from weighbridge.uploads import preview
from weighbridge.worker import kick

OF = {"pipeline": "keywords", "platform": None, "project_id": 1}
SHOES = keyword_file([("red shoe", 10), ("shoes red", 4)])
BOOTS = keyword_file([("blue boot", 7), ("red shoe", 12)])


async def the_project(ctx: Context, workspace: UUID) -> Any:
    async with ctx.db.tx() as tx:
        return await queue.get_project(tx, workspace, 1)


async def test_a_held_preview_locks_no_project_and_is_none_of_its_files(
    ctx: Context,
    load: Send,
    standing: Any,
    editor: Editor,
    query: Query,
) -> None:
    await load(SHOES, **OF)
    held = await load(BOOTS, preview=True, **OF)
    assert (await preview.preview(ctx, held)).changes["keyword"] == Changes(inserted=1, updated=1)
    now = await standing()
    assert (now.status, now.locked, len(now.files), now.groupings) == ("complete", False, 1, 1)
    assert query("SELECT count(*) FROM csv_processing_jobs") == [(1,)]
    await regroup(editor)


async def test_other_files_of_the_project_go_on_and_are_grouped(
    ctx: Context,
    load: Send,
    standing: Any,
) -> None:
    held = await load(BOOTS, preview=True, **OF)
    loaded = await load(SHOES, **OF)  # waits for the grouping, not for the other file
    now = await standing()
    assert (held.on_hold, loaded.status, now.status, now.groupings) == (True, Status.COMPLETED, "complete", 1)


async def test_a_run_ends_with_a_preview_that_is_held(
    ctx: Context, workspace: UUID, send: Send, look: Look, query: Query
) -> None:
    sent = await send(BOOTS, preview=True, **OF)
    project = await the_project(ctx, workspace)
    assert await kick(ctx, QUICK, project)
    assert (await look(sent.id)).on_hold
    assert not await kick(ctx, QUICK, project)  # there is nothing left to do
    assert query("SELECT count(*) FROM project_processing_leases") == [(0,)]


async def test_while_it_is_read_it_is_a_job_that_locks_its_project(
    send: Send,
    standing: Any,
) -> None:
    await send(BOOTS, preview=True, **OF)
    now = await standing()
    assert (now.status, now.locked, now.count("queued")) == ("queued", True, 1)


async def test_what_is_promoted_is_a_job_and_is_grouped_once(
    ctx: Context,
    load: Send,
    finish: Look,
    standing: Any,
) -> None:
    held = await load(BOOTS, preview=True, **OF)
    assert (await standing()).groupings == 0  # nothing has changed
    await preview.promote_on_hold(ctx, held, actor="test")
    waiting = await standing()
    assert (waiting.locked, waiting.count("queued")) == (True, 1)
    await finish(held.id)
    now = await standing()
    assert (now.status, now.count("succeeded"), now.groupings) == ("complete", 1, 1)


async def test_what_is_discarded_is_none_of_its_files_and_is_not_opened_again_with_the_failed_ones(
    ctx: Context,
    workspace: UUID,
    load: Send,
    look: Look,
    standing: Any,
) -> None:
    held = await load(BOOTS, preview=True, **OF)
    await preview.discard(ctx, held, actor="test")
    retried = await retry_failed(ctx.db, await the_project(ctx, workspace), force_partial=False, actor="test")
    assert (retried.retried, (await look(held.id)).status) == ((), Status.FAILED)
    assert len((await standing()).files) == 0


@pytest.mark.parametrize("decides", [preview.promote_on_hold, preview.discard])
async def test_a_decision_waits_for_an_edit_of_the_groups_and_gives_up_in_time(
    ctx: Context, load: Send, database_url: str, decides: Any
) -> None:
    held = await load(BOOTS, preview=True, **OF)
    with psycopg.connect(database_url) as edit:
        edit.execute("SELECT FROM projects FOR UPDATE")
        with pytest.raises(RetryLater):
            await decides(ctx, held, actor="test")
    await decides(ctx, held, actor="test")
