"""Claim, lease, heartbeat, fence, takeover."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.engine.conftest import CLAIM, Put
from weighbridge.engine import recover
from weighbridge.model.errors import LeaseLost
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import queue


async def _claim(db: Database, **overrides: Any) -> Any:
    async with db.tx() as tx:
        claimed = await queue.claim(tx, replace(CLAIM, **overrides))
    return (claimed.lease, claimed.upload) if claimed.lease else None


async def test_the_oldest_upload_is_claimed_first(db: Database, put: Put) -> None:
    first = await put(b"a")
    await put(b"b")
    lease, upload = await _claim(db)
    assert upload.id == first == lease.subject
    assert upload.status == Status.PROCESSING


async def test_a_claimed_upload_cannot_be_claimed_again(db: Database, put: Put) -> None:
    await put(b"a")
    assert await _claim(db) is not None
    assert await _claim(db) is None


async def test_at_most_three_uploads_of_a_workspace_are_claimed(db: Database, put: Put) -> None:
    for content in (b"a", b"b", b"c", b"d"):
        await put(content)
    claims = await asyncio.gather(*(_claim(db) for _ in range(8)))
    assert sum(claim is not None for claim in claims) == 3


async def test_a_workspace_at_its_limit_does_not_delay_another_workspace(db: Database, put: Put) -> None:
    for content in (b"a", b"b", b"c", b"d"):
        await put(content)
    for _ in range(3):
        await _claim(db)
    other = uuid4()
    theirs = await put(b"e", workspace_id=other)
    _, upload = await _claim(db)
    assert upload.id == theirs


async def test_a_worker_does_not_claim_uploads_of_unknown_pipelines(db: Database, put: Put) -> None:
    await put(b"a")
    assert await _claim(db, pipelines=("other",)) is None


async def test_a_staged_upload_with_a_live_attempt_is_not_claimed(db: Database, put: Put, query: Any) -> None:
    await put(b"a")
    await _claim(db)
    query("UPDATE data_uploads SET status = 'staging_complete'")
    assert await _claim(db) is None


async def test_a_postponed_upload_is_not_claimed_before_its_time(db: Database, put: Put, clock: Any) -> None:
    await put(b"a")
    lease, _ = await _claim(db)
    async with db.tx() as tx:
        await queue.release(tx, lease, queue.Release(timedelta(seconds=4), failed=True, error="away"))
    assert await _claim(db) is None
    clock.forward(seconds=4)
    _, upload = await _claim(db)
    assert upload.failures == 1


async def test_a_heartbeat_renews_leases_and_returns_the_lost_ones(
    db: Database, put: Put, clock: Any, query: Any
) -> None:
    await put(b"a")
    lease, _ = await _claim(db)
    clock.forward(seconds=50)
    beat = "SELECT weighbridge.heartbeat(%s, '60 seconds', '1 hour')"
    assert query(beat, ([lease.token, uuid4()],)) == [(lease.token,)]
    clock.forward(seconds=50)
    async with db.tx() as tx:
        assert await recover.recover(tx, 5) == []


async def test_an_attempt_that_renews_its_lease_without_progress_is_taken_over_after_the_maximum_time(
    db: Database, put: Put, clock: Any, query: Any
) -> None:
    await put(b"a")
    lease, upload = await _claim(db)
    clock.forward(minutes=59, seconds=30)
    query("SELECT weighbridge.heartbeat(%s, '60 seconds', '1 hour')", ([lease.token],))
    clock.forward(seconds=31)
    async with db.tx() as tx:
        assert [each.subject for each in await recover.recover(tx, 5)] == [upload.id]


async def test_an_expired_lease_is_taken_over_and_its_holder_can_change_nothing(
    db: Database, put: Put, clock: Any
) -> None:
    await put(b"a")
    old, upload = await _claim(db)
    clock.forward(seconds=61)
    async with db.tx() as tx:
        assert [each.subject for each in await recover.recover(tx, 5)] == [upload.id]
    new, _ = await _claim(db)
    assert new.token != old.token
    with pytest.raises(LeaseLost):
        async with db.fenced(old, "weighbridge_parse"):
            raise AssertionError("the fence let a lost lease in")
    for verdict in (queue.release_staged, queue.restage):
        with pytest.raises(LeaseLost):
            async with db.tx() as tx:
                await verdict(tx, old)
    with pytest.raises(LeaseLost):
        async with db.tx() as tx:
            await queue.fail(tx, old, "code", "text")


async def test_no_attempt_is_taken_over_in_the_middle_of_a_fenced_transaction(
    db: Database, put: Put, clock: Any
) -> None:
    await put(b"a")
    lease, _ = await _claim(db)
    async with db.fenced(lease, "weighbridge_parse") as tx:
        # The holder of the fence is not frozen, so its session must not be ended: it uses another application name.
        await tx.execute("SELECT set_config('application_name', 'busy', true)")
        clock.forward(seconds=61)
        async with db.tx() as sweep:
            assert await recover.recover(sweep, 5) == []
    async with db.tx() as sweep:
        assert len(await recover.recover(sweep, 5)) == 1


async def test_a_heartbeat_passes_while_its_own_attempt_is_in_a_fenced_transaction(
    db: Database, put: Put, query: Any
) -> None:
    await put(b"a")
    lease, _ = await _claim(db)
    async with db.fenced(lease, "weighbridge_parse"):
        beat = asyncio.to_thread(
            query, "SELECT weighbridge.heartbeat(%s, '60 s', '1 hour')", ([lease.token],)
        )
        assert await asyncio.wait_for(beat, 5) == [(lease.token,)]


async def test_an_upload_that_crashes_its_workers_fails_after_the_last_attempt(
    db: Database, put: Put, clock: Any, query: Any
) -> None:
    await put(b"a")
    for crash in range(1, 4):
        await _claim(db)
        clock.forward(seconds=61)
        async with db.tx() as tx:
            [dead] = await recover.recover(tx, 3)
        assert dead.gave_up == (crash == 3)
    [(status, code)] = query("SELECT status, error_code FROM data_uploads")
    assert (status, code) == ("failed", "worker_crashed")


async def test_a_promotion_that_lost_its_worker_can_be_claimed_again(
    db: Database, put: Put, clock: Any, query: Any
) -> None:
    await put(b"a")
    await _claim(db)
    query("UPDATE data_uploads SET status = 'staging_complete'")
    query("UPDATE data_uploads SET status = 'promoting'")
    clock.forward(seconds=61)
    async with db.tx() as tx:
        await recover.recover(tx, 5)
    _, upload = await _claim(db)
    assert upload.status == Status.PROMOTING


async def test_a_dead_attempt_does_not_count_against_the_limit(db: Database, put: Put, clock: Any) -> None:
    for content in (b"a", b"b", b"c", b"d"):
        await put(content)
    for _ in range(3):
        await _claim(db)
    assert await _claim(db) is None
    clock.forward(seconds=61)
    async with db.tx() as tx:
        await recover.recover(tx, 5)
    assert await _claim(db) is not None
