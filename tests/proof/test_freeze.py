"""Workers frozen (SIGSTOP) past their lease: another worker takes over; the first one wakes and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGSTOP
from typing import Literal

import psycopg
import pytest

from tests.proof.scene import Scene, Stage, differences
from tests.proof.workers import LONG, Fleet, Moment, Worker, points, until

SHARES = 2


def _taken_over(scene: Scene, fleet: Fleet, stage: Stage, frozen: Worker, *, lease_lost: bool) -> None:
    """Another worker ends the load; then the frozen one goes on, changes nothing, and is still of use."""
    stage.forward(seconds=7)
    if not LONG:
        # A chore of the frozen one may be inside a transaction, too: Postgres would end that after a minute.
        stage.end_idle_transactions()
    other = fleet.start(stage.url)
    until(lambda: stage.ended, within=90)
    assert not differences(stage.snapshot(), scene.undisturbed)
    assert other.stop() == 0
    before = stage.everything()
    frozen.resume()
    if lease_lost:
        until(lambda: "Lease lost" in frozen.said)
    assert stage.everything() == before
    # It goes on with the next file, from claim to announcement.
    stage.send_again()
    until(lambda: stage.ended)
    assert frozen.stop() == 0
    assert not set(frozen.said) & {"Bug", "Job failed", "Job postponed"}


def _goes_on(scene: Scene, stage: Stage, frozen: Worker) -> None:
    """A claim that has not committed is nobody's lease: nothing to take over, and nothing lost when it wakes."""
    frozen.resume()
    until(lambda: stage.ended)
    assert not differences(stage.snapshot(), scene.undisturbed)
    assert frozen.stop() == 0


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_worker_frozen_around_a_commit_changes_nothing_when_it_wakes(
    scene: Scene, fleet: Fleet, at: Literal["before", "after"], share: int
) -> None:
    for commit in points(share, SHARES, every=3):
        with scene.stage() as stage:
            worker = fleet.start(stage.url, Moment(at, commit, SIGSTOP))
            until(lambda: worker.frozen or stage.ended)  # noqa: B023
            if not worker.frozen:
                break
            if at == "before" and not stage.fenced:
                _goes_on(scene, stage, worker)
            else:
                working = stage.holds("SELECT count(*) = 1 FROM data_uploads WHERE finished_at IS NULL")
                _taken_over(scene, fleet, stage, worker, lease_lost=working)
            fleet.kill()
    assert commit > 20, "the load has fewer commits than it should"


def test_a_claim_frozen_before_its_commit_does_not_block_other_workers(scene: Scene, fleet: Fleet) -> None:
    """Not even in its own workspace; its upload waits until Postgres ends the idle session, or the worker wakes."""
    with scene.stage() as stage:
        worker = fleet.start(stage.url, Moment("before", 1, SIGSTOP))
        until(lambda: worker.frozen)
        stage.send_again()
        other = fleet.start(stage.url)
        until(lambda: stage.holds("SELECT count(*) = 2 FROM data_uploads WHERE finished_at IS NOT NULL"))
        assert stage.holds("SELECT count(*) = 1 FROM data_uploads WHERE status = 'pending'")
        assert other.stop() == 0
        worker.resume()
        until(lambda: stage.ended)
        assert worker.stop() == 0


@pytest.mark.parametrize("piece", [1, 2, 3])
def test_a_worker_frozen_inside_a_copy_changes_nothing_when_it_wakes(
    scene: Scene, fleet: Fleet, piece: int
) -> None:
    """The header of the first COPY, its rows, its end: Postgres waits for the rest of a half-sent table."""
    with scene.stage() as stage:
        worker = fleet.start(stage.url, Moment("copy", piece, SIGSTOP))
        until(lambda: worker.frozen)
        assert stage.holds(
            "SELECT count(*) = 1 FROM pg_stat_progress_copy WHERE datname = current_database()"
        )
        _taken_over(scene, fleet, stage, worker, lease_lost=True)


@pytest.mark.parametrize("table", ["staging.ads_daily_metric", "ad_sets", "daily_metrics"])
def test_a_worker_frozen_while_it_waits_for_a_lock_changes_nothing_when_it_wakes(
    scene: Scene, fleet: Fleet, table: str
) -> None:
    with scene.stage() as stage:
        with _locked(stage, table):
            worker = fleet.start(stage.url)
            until(lambda: stage.waits_for(table))
            worker.freeze()
            stage.forward(seconds=7)
            # Taken over while its own session still waits: it is ended, or the lock would wake it later.
            until(lambda: _recovered(stage))
        _taken_over(scene, fleet, stage, worker, lease_lost=True)


@contextmanager
def _locked(stage: Stage, table: str) -> Iterator[None]:
    with psycopg.connect(stage.url, application_name="test") as connection:
        connection.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        yield


def _recovered(stage: Stage) -> bool:
    return bool(stage.query("SELECT * FROM weighbridge.recover(5)"))
