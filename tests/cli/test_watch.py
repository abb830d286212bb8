"""`weighbridge watch`: a failing file or database does not stop the other files."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import prefork

HEADER = "Day,Campaign name,Amount spent (USD)\n"


class Watching:
    """`weighbridge watch` in a process of its own, and what it says."""

    def __init__(self, folder: Path, environment: dict[str, str], pipeline: str) -> None:
        command = [prefork.command(), "watch", str(folder), "--pipeline", pipeline]
        self.process = subprocess.Popen(
            [*command, "--platform", "meta", "--settle", "0.2", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(json.loads(line))

    def hears(self, count: int, event: str, within: float = 60) -> list[dict[str, Any]]:
        """Everything it says until it has said `event` so often."""
        said: list[dict[str, Any]] = []
        give_up = time.monotonic() + within
        while sum(each["event"] == event for each in said) < count:
            assert self.process.poll() is None, self.process.stderr.read() if self.process.stderr else ""
            try:
                said.append(self._said.get(timeout=1))
            except queue.Empty:
                assert time.monotonic() < give_up, f"heard only {said}"
        return said


@pytest.fixture
def watching(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., Watching]]:
    started: list[Watching] = []

    def watching(pipeline: str = "ads") -> Watching:
        (tmp_path / "drop").mkdir()
        started.append(Watching(tmp_path / "drop", environment, pipeline))
        return started[-1]

    yield watching
    for each in started:
        each.process.terminate()
        each.process.wait(20)


def drop(folder: Path, number: int) -> None:
    (folder / f"{number}.csv").write_text(f"{HEADER}2025-01-01,Spring {number},{number}.5\n")


def test_files_that_come_while_others_end_are_all_taken_in(
    watching: Callable[[], Watching], tmp_path: Path, query: Callable[..., Any]
) -> None:
    watched, said = watching(), []
    for number in range(12):
        drop(tmp_path / "drop", number)
        said += watched.hears(1, "received")  # and on to the next, while this one is worked on
    watched.hears(12 - sum(each["event"] == "completed" for each in said), "completed")
    assert query("SELECT count(*) FROM daily_metrics") == [(12,)]


def test_files_of_several_kinds_are_recognised_in_one_folder(
    watching: Callable[..., Watching], tmp_path: Path, query: Callable[..., Any]
) -> None:
    watched = watching("auto")
    drop(tmp_path / "drop", 1)
    (tmp_path / "drop" / "cases.csv").write_text("File #,Plaintiff,Defendant,Amount\nCV-1,Ada,Ben,$5.00\n")
    watched.hears(2, "completed")
    assert query("SELECT pipeline FROM data_uploads ORDER BY pipeline") == [("ads",), ("judgments",)]


def test_watch_continues_after_a_database_outage(
    watching: Callable[[], Watching], tmp_path: Path, database_url: str, query: Callable[..., Any]
) -> None:
    watched = watching()
    drop(tmp_path / "drop", 1)
    watched.hears(1, "completed")
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    admin = psycopg.conninfo.make_conninfo(database_url, dbname="postgres")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        drop(tmp_path / "drop", 2)
        [*_, waiting] = watched.hears(1, "waiting")
        assert waiting["file"] == "2.csv"
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    watched.hears(1, "completed")
    assert query("SELECT count(*) FROM daily_metrics") == [(2,)]


def test_an_unreadable_file_does_not_block_the_others(
    watching: Callable[[], Watching], tmp_path: Path, query: Callable[..., Any]
) -> None:
    watched = watching()
    (tmp_path / "drop" / "0.csv").symlink_to("/proc/self/mem")  # reading its beginning fails, even for root
    drop(tmp_path / "drop", 1)
    said = watched.hears(1, "completed")
    refused = next(each for each in said if each["event"] == "refused")
    assert (refused["file"], refused["error"]) == ("0.csv", "unreadable_file")
    assert refused["message"].startswith("file ('0.csv'): it cannot be read: ")
    assert query("SELECT count(*) FROM daily_metrics") == [(1,)]
