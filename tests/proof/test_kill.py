"""Workers killed (SIGKILL) around every commit of a load: the next worker completes it with the same result."""

from __future__ import annotations

from signal import SIGKILL
from typing import Literal

import pytest

from tests.proof.scene import Scene, Stage, differences
from tests.proof.workers import Fleet, Moment, Worker, points, until

SHARES = 2  # the commits are dealt out to so many tests, so that they can run side by side


def _killed(stage: Stage, worker: Worker) -> bool:
    """Wait for the end of the worker, or of its work."""
    until(lambda: worker.exit_code is not None or stage.ended)
    if worker.exit_code is None:
        return False
    assert worker.exit_code == -SIGKILL, worker.said
    until(lambda: stage.deserted)
    return True


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_load_killed_around_a_commit_ends_with_the_same_rows(
    scene: Scene, fleet: Fleet, at: Literal["before", "after"], share: int
) -> None:
    # Each commit from one side, and from both where there is time (make soak).
    for commit in points(share, SHARES, every=2, first=1 if at == "before" else 2):
        with scene.stage() as stage:
            first = fleet.start(stage.url, Moment(at, commit, SIGKILL))
            if not _killed(stage, first):
                break
            stage.forward(seconds=7)
            fleet.start(stage.url)
            until(lambda: stage.ended)
            assert not differences(stage.snapshot(), scene.undisturbed), f"killed {at} commit {commit}"
            fleet.kill()
    assert commit > 20, "the load has fewer commits than it should"


def test_a_load_whose_workers_are_killed_one_after_another_ends_with_the_same_rows(
    scene: Scene, fleet: Fleet
) -> None:
    """Each one after its ninth commit, of which some three get the load on."""
    with scene.stage() as stage:
        deaths = 0
        while _killed(
            stage, fleet.start(stage.url, Moment("after", 9, SIGKILL), WEIGHBRIDGE_MAX_CRASHES="99")
        ):
            stage.forward(seconds=7)
            deaths += 1
        assert deaths >= 3
        assert not differences(stage.snapshot(), scene.undisturbed)


def test_an_upload_whose_workers_are_always_killed_fails_after_the_last_attempt(
    scene: Scene, fleet: Fleet
) -> None:
    gave_up = "EXISTS (SELECT FROM data_uploads WHERE status = 'failed')"
    with scene.stage() as stage:
        deaths = 0
        while not stage.holds(gave_up):
            worker = fleet.start(stage.url, Moment("after", 2, SIGKILL), WEIGHBRIDGE_MAX_CRASHES="3")
            until(lambda worker=worker: worker.exit_code is not None or stage.holds(gave_up))  # type: ignore[misc]
            if not stage.holds(gave_up):
                stage.forward(seconds=7)
                deaths += 1
        fleet.kill()
        assert deaths >= 3  # some die over the alerts that the others' deaths made
        failed = stage.query("SELECT error_code, crashes FROM data_uploads WHERE status = 'failed'")
        assert failed == [("worker_crashed", 3)]
        assert stage.holds(
            "NOT EXISTS (SELECT FROM weighbridge.attempts WHERE queue = 'uploads' AND closed_at IS NULL)"
        )
