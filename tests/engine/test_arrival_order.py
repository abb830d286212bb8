"""Production is as if the files had been processed one by one, in the order in which they arrived."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.engine.conftest import CLAIM, HEADER, Put, Run, meta_line
from weighbridge import Entity, Field, Pipeline, n, upsert
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres import pipeline_tables
from weighbridge.uploads import queue
from weighbridge.uploads.operator_retry import reopen
from weighbridge.uploads.preview import promote_on_hold
from weighbridge.worker import run_until

Send = Callable[..., Awaitable[UUID]]


@pytest.fixture
def send(put: Put) -> Send:
    """`await send({("2026-01-31", 1): 100})`: receive a file with these impressions by day and ad."""

    async def send(rows: dict[tuple[str, int], int], *, invalid: int = 0, **options: Any) -> UUID:
        lines = [meta_line(day, ad, impressions=count) for (day, ad), count in rows.items()]
        lines += [meta_line("2026-01-01", 90 + n, impressions="many") for n in range(invalid)]
        return await put(("\n".join([HEADER, *lines]) + "\n").encode(), **options)

    return send


@pytest.fixture
def impressions(query: Callable[..., list[tuple[Any, ...]]]) -> Callable[[], dict[tuple[str, int], int]]:
    """What production has, by day and number of the ad."""

    def impressions() -> dict[tuple[str, int], int]:
        found = query(
            "SELECT m.metric_date::text, substring(a.name FROM 4)::int, m.impressions FROM daily_metrics m"
            " JOIN ads a ON a.workspace_id = m.workspace_id AND a.id = m.ad_id ORDER BY 1, 2"
        )
        return {(day, ad): count for day, ad, count in found}

    return impressions


async def work(ctx: Context, uploads: list[UUID], workers: int = 2) -> list[Upload]:
    """Several workers at once."""
    options = WorkerOptions(poll=timedelta(seconds=0.02))
    ran = await asyncio.gather(
        *(run_until(ctx, replace(options, name=f"worker {n}"), uploads) for n in range(workers))
    )
    return ran[0]


async def retry(ctx: Context, upload_id: UUID, *, newest: bool = False) -> None:
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, upload_id)
    assert upload is not None
    await reopen(ctx.db, upload, force_partial=True, actor="a person", newest=newest)


async def test_a_correction_that_arrives_after_its_month_wins(
    ctx: Context, send: Send, impressions: Callable[[], Any]
) -> None:
    month = {(f"2026-01-{day:02}", ad): 1 for day in range(1, 32) for ad in range(40)}
    correction = {("2026-01-31", ad): 2 for ad in range(3)}
    uploads = [await send(month), await send(correction)]
    ended = await work(replace(ctx, limits=replace(ctx.limits, batch_rows=100)), uploads)
    assert [each.status for each in ended] == [Status.COMPLETED, Status.COMPLETED]
    assert impressions() == month | correction


async def test_a_staged_file_waits_for_the_earlier_one_and_then_goes_on(
    ctx: Context, send: Send, impressions: Callable[[], Any], query: Callable[..., Any]
) -> None:
    first = await send({("2026-01-01", 1): 1})
    second = await send({("2026-01-01", 1): 2})
    async with ctx.db.tx() as tx:
        claimed = await queue.claim(tx, CLAIM)  # by a worker that now takes its time
    assert claimed.upload is not None
    assert claimed.upload.id == first
    waiting = asyncio.create_task(work(ctx, [second], 1))
    staged_and_free = (
        "SELECT count(*) FROM data_uploads d WHERE id = %s AND status = 'staging_complete'"
        " AND NOT weighbridge.has_live_attempt(id)"
    )
    async with asyncio.timeout(20):  # for a moment it waits in its slot
        while query(staged_and_free, (second,)) != [(1,)]:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)  # several polls
    assert query(staged_and_free, (second,)) == [(1,)]
    assert impressions() == {}
    assert claimed.lease is not None
    async with ctx.db.tx() as tx:
        await queue.release(tx, claimed.lease, queue.Release())
    await work(ctx, [first], 1)
    await waiting
    assert impressions() == {("2026-01-01", 1): 2}


@pytest.mark.parametrize("other", ["client_id", "workspace_id"])
async def test_a_file_that_cannot_have_the_same_rows_does_not_wait(
    ctx: Context, send: Send, other: str
) -> None:
    await send({("2026-01-01", 1): 1})
    async with ctx.db.tx() as tx:
        assert (await queue.claim(tx, CLAIM)).lease is not None
    [ended] = await work(ctx, [await send({("2026-01-01", 1): 2}, **{other: uuid4()})], 1)
    assert ended.status == Status.COMPLETED


async def test_an_old_file_that_is_retried_does_not_replace_rows_of_newer_files(
    ctx: Context, send: Send, impressions: Callable[[], Any], run: Run
) -> None:
    old = await send({("2026-01-01", 1): 1, ("2026-01-02", 1): 1}, invalid=2)
    assert (await run(old)).status == Status.FAILED
    await run(await send({("2026-01-01", 1): 2}))
    await retry(ctx, old)
    ended = await run(old)
    assert impressions() == {("2026-01-01", 1): 2, ("2026-01-02", 1): 1}
    assert ended.status == Status.PARTIAL
    counts = ended.promoted["daily_metric"]
    assert (counts["inserted"], counts["updated"], counts["superseded"]) == (1, 0, 1)


async def test_an_old_file_that_is_retried_as_the_newest_replaces_them(
    ctx: Context, send: Send, impressions: Callable[[], Any], run: Run
) -> None:
    old = await send({("2026-01-01", 1): 1}, invalid=1)
    await run(old)
    await run(await send({("2026-01-01", 1): 2}))
    await retry(ctx, old, newest=True)
    await run(old)
    assert impressions() == {("2026-01-01", 1): 1}


@pytest.mark.parametrize(
    "more", [{("2026-01-01", 2): 7}, {("2026-02-01", 1): 7}], ids=["same day", "other day"]
)
async def test_a_row_that_a_newer_file_left_as_it_was_is_not_replaced(
    ctx: Context, send: Send, impressions: Callable[[], Any], run: Run, more: dict[tuple[str, int], int]
) -> None:
    first = {("2026-01-01", 1): 1}
    await run(await send(first))
    old = await send({("2026-01-01", 1): 5}, invalid=1)
    assert (await run(old)).status == Status.FAILED
    await run(await send(first | more))  # the same row again; on another day it is known from its receipt
    await retry(ctx, old)
    ended = await run(old)
    assert impressions() == first | more
    assert ended.promoted["daily_metric"]["superseded"] == 1


async def test_a_preview_counts_as_arrived_when_it_is_promoted(
    ctx: Context, send: Send, impressions: Callable[[], Any], run: Run
) -> None:
    held = await run(await send({("2026-01-01", 1): 1}, preview=True))
    assert held.on_hold
    await run(await send({("2026-01-01", 1): 2}))
    await promote_on_hold(ctx, held, actor="a person")
    ended = await run(held.id)
    assert impressions() == {("2026-01-01", 1): 1}
    assert "superseded" not in ended.promoted["daily_metric"]


async def test_an_interrupted_promotion_goes_before_an_earlier_file(
    send: Send, query: Callable[..., Any]
) -> None:
    """The earlier file may have been away when it began."""
    first, second = await send({("2026-01-01", 1): 1}), await send({("2026-01-01", 1): 2})

    def waits() -> list[bool]:
        found = query("SELECT id, weighbridge.waits_for(d) IS NOT NULL FROM data_uploads d")
        return [dict(found)[each] for each in (first, second)]

    assert waits() == [False, True]
    query("UPDATE data_uploads SET watermark_entity = 'campaign' WHERE id = %s", (second,))
    assert waits() == [True, False]


async def test_two_files_that_are_retried_keep_their_order(
    ctx: Context, send: Send, impressions: Callable[[], Any], run: Run, query: Callable[..., Any]
) -> None:
    """The later one has rows in production from its first run, although a retry begins it again."""
    first = await send({("2026-01-01", 1): 1}, invalid=1)
    second = await send({("2026-01-01", 1): 2}, invalid=1)
    await work(ctx, [first, second])
    await retry(ctx, second)
    assert (await run(second)).status == Status.PARTIAL
    await retry(ctx, second)
    await retry(ctx, first)
    query("UPDATE data_uploads SET run_after = 'infinity' WHERE id = %s", (second,))
    await run(first)
    assert impressions() == {("2026-01-01", 1): 2}


async def test_uploads_of_an_earlier_version_get_their_lane(
    ctx: Context, send: Send, query: Callable[..., Any]
) -> None:
    uploads = [
        await send({("2026-01-01", 1): n}, client_id=client) for n, client in enumerate([None, uuid4()])
    ]
    lanes = query("SELECT id, lane FROM data_uploads ORDER BY position")
    assert [id_ for id_, _ in lanes] == uploads
    query("UPDATE data_uploads SET lane = NULL")
    async with ctx.db.tx() as tx:
        await pipeline_tables.fill_lanes(tx, list(ctx.pipelines.values()))
    assert query("SELECT id, lane FROM data_uploads ORDER BY position") == lanes


@pytest.mark.parametrize("seed", range(6))
async def test_random_files_and_workers_end_as_one_worker_would(
    ctx: Context, send: Send, impressions: Callable[[], Any], seed: int
) -> None:
    chosen = random.Random(seed)
    keys = [(f"2026-01-0{day}", ad) for day in (1, 2, 3) for ad in (1, 2, 3)]
    expected: dict[tuple[str, int], int] = {}
    uploads = []
    for _ in range(7):
        rows = {key: chosen.randrange(3) for key in chosen.sample(keys, chosen.randrange(1, 9))}
        held = chosen.random() < 0.2
        upload = await send(rows | {("2026-03-01", 1): len(uploads)}, preview=held)
        if not held:
            expected |= rows | {("2026-03-01", 1): len(uploads)}
        uploads.append(upload)
    small = replace(ctx, limits=replace(ctx.limits, batch_rows=2))
    ended = await work(small, uploads, workers=chosen.choice([1, 2, 3]))
    assert {each.status for each in ended} <= {Status.COMPLETED, Status.STAGING_COMPLETE}
    assert impressions() == expected


MODELS: dict[str, Callable[[int, int], int]] = {
    "replace": lambda old, new: new,
    "keep_known_values": lambda old, new: new,
    "insert_only": lambda old, new: old,
    "keep_greatest": max,
}


@pytest.mark.parametrize("kind", MODELS)
async def test_files_that_fail_and_are_retried_end_as_if_they_had_not_failed(
    ctx: Context, put: Put, query: Callable[..., Any], kind: str
) -> None:
    """Whatever the pipeline does with existing rows. Each round has five files; some are retried after all others."""
    amount = Field("amount", int, header=["Amount"], normalise=[n.integer], required=True)
    entity = Entity(
        table="stock",
        key=["sku"],
        fields=[Field("sku", header=["Sku"]), amount],
        upsert=getattr(upsert, kind),
    )
    pipeline = Pipeline(name="stock", entities=[entity])
    object.__setattr__(ctx, "pipelines", {"stock": pipeline})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, [pipeline])
    chosen = random.Random(kind)
    expected: dict[str, int] = {}
    for round_ in range(6):
        uploads, fails = [], []
        for number in range(5):
            rows = {
                f"{round_}{sku}": chosen.randrange(50)
                for sku in chosen.sample("abcdef", chosen.randrange(1, 6))
            }
            for sku, count in rows.items():
                expected[sku] = MODELS[kind](expected[sku], count) if sku in expected else count
            lines = [f"{sku},{count}" for sku, count in (rows | {f"{round_}own{number}": number}).items()]
            expected[f"{round_}own{number}"] = number
            fails.append(number < 4 and chosen.random() < 0.5)
            lines += [f"bad{each},many" for each in range(9 if fails[-1] else 0)]
            content = "\n".join(["Sku,Amount", *lines]).encode()
            uploads.append(await put(content, pipeline="stock", platform=None))
        ended = await work(ctx, uploads)
        assert [each.status == Status.FAILED for each in ended] == fails
        for upload_id, failed in zip(uploads, fails, strict=True):
            if failed:
                await retry(ctx, upload_id)
        await work(ctx, uploads)
    found = dict(query("SELECT sku, amount FROM stock"))
    assert found == expected
