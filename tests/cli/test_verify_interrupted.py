"""`weighbridge verify golden-path` stopped half way, or with others at work beside it: nothing of it stays."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import prefork
from tests.conftest import WAITING
from tests.proof.workers import until
from weighbridge.app import App
from weighbridge.cli.verify import golden_path

from .conftest import Command
from .test_verify import PASSED, VERIFY, leftovers

Query = Callable[..., list[tuple[Any, ...]]]

HELD_UP = (
    "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$;"
    " CREATE TRIGGER hold_up BEFORE INSERT ON judgments FOR EACH ROW EXECUTE FUNCTION hold_up()"
)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """`start("worker")`: the command in a process of its own, which does not outlive the test."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [prefork.command(), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # Where the tests run in the background of a shell, SIGINT is ignored, and children would inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            started.append(subprocess.Popen(command, env=environment, text=True, **pipes))  # type: ignore[call-overload]
        finally:
            signal.signal(signal.SIGINT, before)
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate(timeout=10)


@pytest.fixture
def obstacle(query: Query, database_url: str) -> Iterator[psycopg.Connection]:
    """Nobody can write a judgment until this connection's transaction ends; deleting them is free."""
    query(HELD_UP)
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT pg_advisory_lock(4711)")
        connection.commit()
        yield connection


def held_up(query: Query, processes: int = 1) -> Callable[[], bool]:
    return lambda: len(query(WAITING)) == processes


def clear(obstacle: psycopg.Connection) -> None:
    obstacle.execute("SELECT pg_advisory_unlock_all()")
    obstacle.commit()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_is_interrupted_cleans_up(
    start: Start, obstacle: psycopg.Connection, query: Query, home: Path, sent: signal.Signals, code: int
) -> None:
    check = start(*VERIFY, "dev")
    until(held_up(query))
    check.send_signal(sent)
    clear(obstacle)
    out, err = check.communicate(timeout=60)
    assert (check.returncode, out, err) == (code, "  Cleanup:            PASS\n", "")
    assert leftovers(query, home) == []


def test_what_a_killed_check_leaves_is_removed_by_the_next(
    start: Start,
    obstacle: psycopg.Connection,
    query: Query,
    home: Path,
    main: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golden_path, "LOAD_TIMEOUT", 20)  # shorter than the lease of the killed one
    check = start(*VERIFY, "dev")
    until(held_up(query))
    check.kill()
    check.wait(10)
    clear(obstacle)
    assert query("SELECT status FROM data_uploads") == [("promoting",)]
    assert query("SELECT count(*) FROM weighbridge.attempts WHERE closed_at IS NULL") == [(1,)]
    # Its place is the only one: whoever waits for it waits for the lease.
    assert main(*VERIFY, "dev", WEIGHBRIDGE_UPLOADS_PER_WORKSPACE="1").out == PASSED
    assert leftovers(query, home) == []


async def test_a_concurrent_claim_is_undone_too(
    app: App, query: Query, database_url: str, home: Path, eventually: Callable[..., Awaitable[Any]]
) -> None:
    await golden_path._send(app, await golden_path.new_batch(app))
    with psycopg.connect(database_url) as other:
        other.execute("SELECT weighbridge.claim_upload('other', '{pending}', '{judgments}', '60 s', 3, 5)")
        removing = asyncio.create_task(golden_path._delete_all(app))
        await eventually(lambda: query(WAITING))
        other.commit()
        await removing
    assert leftovers(query, home) == []


def test_it_works_while_another_worker_does(start: Start, main: Command, query: Query, home: Path) -> None:
    other = start("worker")
    until(
        lambda: query(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query ~ 'LISTEN'"
        )
    )
    ended = [main(*VERIFY, "dev").out for _ in range(3)]
    other.terminate()
    _, said = other.communicate(timeout=30)
    assert ended == [PASSED] * 3
    assert leftovers(query, home) == []
    assert "Bug" not in said


def test_a_file_claimed_by_another_worker_is_taken_over(
    start: Start, obstacle: psycopg.Connection, query: Query, home: Path
) -> None:
    """A check was killed, and a live worker has taken its upload over: it loses it, and changes nothing more."""
    killed = start(*VERIFY, "dev")
    until(held_up(query))
    killed.kill()
    killed.wait(10)
    query("SELECT pg_terminate_backend(pid) FROM (" + WAITING + ") AS dead (pid)")
    query("UPDATE weighbridge.attempts SET lease_until = now() - interval '1 second' WHERE closed_at IS NULL")
    other = start("worker")
    until(held_up(query))
    check = start(*VERIFY, "dev")
    with suppress(AssertionError):  # after ten seconds the worker gives up the lock, and only the check waits
        until(held_up(query, 2), within=8)  # it waits for the worker's transaction
    clear(obstacle)
    out, _ = check.communicate(timeout=60)
    assert (check.returncode, out) == (0, PASSED)
    other.terminate()
    _, said = other.communicate(timeout=30)
    assert "Bug" not in said
    assert leftovers(query, home) == []
