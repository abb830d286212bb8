"""Workers killed (SIGKILL) around every commit of a load: the next worker ends it as if nothing had happened."""

from __future__ import annotations

from signal import SIGKILL
from typing import Literal

import pytest

from tests.proof.scene import Scene, Stage
from tests.proof.workers import Fleet, Moment, Worker, until

SHARES = 4  # the commits are dealt out to so many tests, so that they can run side by side


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
def test_a_load_that_is_killed_around_a_commit_ends_like_an_undisturbed_one(
    scene: Scene, fleet: Fleet, at: Literal["before", "after"], share: int
) -> None:
    commit = share + 1
    while True:
        with scene.stage() as stage:
            first = fleet.start(stage.url, Moment(at, commit, SIGKILL))
            if not _killed(stage, first):
                first.kill()
                break
            stage.forward(seconds=7)
            second = fleet.start(stage.url)
            until(lambda stage=stage: stage.ended)  # type: ignore[misc]
            second.kill()
            assert stage.snapshot() == scene.undisturbed, f"killed {at} commit {commit}"
        commit += SHARES
    assert commit > 20, "the load has fewer commits than it should"
