"""A project waits for a file that is not stored yet, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.conftest import Clock
from tests.projects.conftest import Send, Work, keyword_file
from tests.projects.conftest import editor as editor
from tests.projects.conftest import groups as groups
from tests.projects.conftest import send as send
from tests.projects.conftest import standing as standing
from tests.projects.conftest import transaction as transaction
from tests.projects.conftest import work as work
from tests.storage.test_deferred_files import Query, Store
from tests.storage.test_deferred_files import store as store
from weighbridge.delivery.context import Context
from weighbridge.model.errors import ProcessingLocked, RetryLater
from weighbridge.projects.edits import Editor, merge_tokens
from weighbridge.storage import replay as step

RED = keyword_file([("red shoes", 10), ("shoes red", 20)])
BLUE = keyword_file([("blue hats", 5)])


async def test_a_project_is_grouped_when_its_last_file_is_stored(
    store: Store,
    send: Send,
    work: Work,
    standing: Any,
    groups: Any,
    editor: Editor,
    query: Query,
    clock: Clock,
) -> None:
    first = await send(RED, "red.csv")
    store.fails()
    waits = await send(BLUE, "blue.csv")
    told = (await standing()).as_dict()
    assert [(each["filename"], each["status"]) for each in told["files"]] == [
        ("red.csv", "queued"),
        ("blue.csv", "queued"),
    ]
    with pytest.raises(ProcessingLocked):
        await merge_tokens(editor, ["red"], "blue")
    store.works()
    clock.forward(seconds=31)
    await work(first, waits)
    assert query("SELECT groupings FROM projects") == [(1,)]
    assert await groups() == {"shoes red": ("red shoes", "shoes red"), "blue hats": ("blue hats",)}


async def test_a_file_that_is_given_up_does_not_block_its_project(
    ctx: Context, store: Store, send: Send, work: Work, groups: Any, editor: Editor, query: Query
) -> None:
    first = await send(RED, "red.csv")
    store.fails()
    waits = await send(BLUE, "blue.csv")
    store.works()
    assert waits.queue_id is not None
    await step.drop(ctx, waits.queue_id, "me")
    await work(first)
    assert await groups() == {"shoes red": ("red shoes", "shoes red")}
    await merge_tokens(editor, ["red"], "blue")


async def test_a_file_is_not_retried_during_an_edit(
    ctx: Context, store: Store, send: Send, query: Query, clock: Clock, transaction: Callable[..., Any]
) -> None:
    store.fails()
    waits = await send(BLUE, "blue.csv")
    assert waits.queue_id is not None
    for _ in range(5):
        clock.forward(days=1)
        [claimed] = await step.due(ctx, "me", timedelta(seconds=60), 1)
        await step.replay(ctx, claimed)
    edit = transaction("weighbridge_group", "SELECT weighbridge.lock_project(1, 'me', 'edit')")
    with edit, pytest.raises(RetryLater):
        await asyncio.wait_for(step.retry_now(ctx.db, waits.queue_id, "me"), 10)
    await step.retry_now(ctx.db, waits.queue_id, "me")
    assert query("SELECT status FROM data_uploads") == [("pending",)]
