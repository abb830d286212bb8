"""The thread that renews the leases of a process, while its event loop is blocked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.conftest import CLAIM, Put
from weighbridge.engine.leases import Leases
from weighbridge.model.errors import LeaseLost, WeighbridgeError
from weighbridge.postgres.transactions import Database, Lease
from weighbridge.uploads import queue

SOON = 20.0  # seconds, for a machine under load
LEASE = timedelta(seconds=0.3)  # renewed every 0.1 s


@dataclass
class Work:
    lease: Lease
    reasons: list[WeighbridgeError] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)

    def interrupt(self, reason: WeighbridgeError) -> None:
        self.reasons.append(reason)
        self.interrupted.set()


@pytest.fixture
def leases(database_url: str) -> Iterator[Leases]:
    leases = Leases(database_url, LEASE, timedelta(hours=1))
    leases.start()
    yield leases
    leases.stop()


async def _claimed(db: Database, put: Put, content: bytes) -> Work:
    await put(content)
    async with db.tx() as tx:
        claimed = await queue.claim(tx, CLAIM)
    assert claimed.lease is not None
    return Work(claimed.lease)


def _lose(query: Any, work: Work) -> None:
    query(
        "UPDATE weighbridge.attempts SET closed_at = weighbridge.now(), outcome = 'expired' WHERE lease_token = %s",
        (work.lease.token,),
    )


async def test_a_lost_lease_interrupts_only_its_own_work_and_only_once(
    db: Database, put: Put, query: Any, leases: Leases
) -> None:
    lost, live = await _claimed(db, put, b"a"), await _claimed(db, put, b"b")
    with leases.holding(lost), leases.holding(live):
        _lose(query, lost)
        assert lost.interrupted.wait(SOON)  # meanwhile the event loop is blocked
        leases.request_stop()
    assert [type(each) for each in lost.reasons] == [LeaseLost]
    assert [str(each) for each in live.reasons] == ["the worker is stopping"]


async def test_work_that_has_just_ended_is_not_interrupted(
    db: Database, put: Put, query: Any, leases: Leases
) -> None:
    """Its attempt is closed, and its worker has not let go of it yet. Another one is lost, so that a beat is seen."""
    ended, lost = await _claimed(db, put, b"a"), await _claimed(db, put, b"b")
    query(
        "UPDATE weighbridge.attempts SET closed_at = weighbridge.now(), outcome = 'done' WHERE lease_token = %s",
        (ended.lease.token,),
    )
    with leases.holding(ended), leases.holding(lost):
        _lose(query, lost)
        assert lost.interrupted.wait(SOON)
    assert ended.reasons == []


async def test_leases_are_renewed_only_while_their_work_runs(
    db: Database, put: Put, query: Any, leases: Leases
) -> None:
    ended, running, lost = [await _claimed(db, put, content) for content in (b"a", b"b", b"c")]
    with leases.holding(ended):
        pass
    with leases.holding(running), leases.holding(lost):
        _lose(query, ended)
        _lose(query, lost)
        assert lost.interrupted.wait(SOON)
    assert ended.reasons == []
    renewed = query("SELECT lease_token FROM weighbridge.attempts WHERE renewed_at IS NOT NULL")
    assert (running.lease.token,) in renewed
