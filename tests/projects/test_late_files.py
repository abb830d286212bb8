"""A file that is received while a run groups, releases or stops is processed and grouped by some worker.

Leases run for a minute here: nothing that is seen within seconds has waited for one to run out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.projects.conftest import Send, Transaction, keyword_file
from tests.proof.workers import LONG_LEASE, Fleet, Worker

Query = Callable[..., list[tuple[Any, ...]]]
Eventually = Callable[..., Awaitable[Any]]
WaitedFor = Callable[..., bool]

FIRST = keyword_file([("red hat", 1), ("hats red", 2)])
SECOND = keyword_file([("red hats", 3), ("red shoe", 1)])
BOTH = {"red hats": ("hats red", "red hat", "red hats"), "red shoe": ("red shoe",)}

# The group of the first file, as if another had just made it and not yet committed: grouping waits for it.
SAME_GROUP = """
INSERT INTO keyword_groups (workspace_id, project_id, signature) VALUES (weighbridge.workspace(), 1, 'hat red')
"""
NO_KEYWORD = "LOCK TABLE keywords IN SHARE ROW EXCLUSIVE MODE"  # no file gets a keyword in
# The second file again, now of project 1: by itself, which calls nobody, and by way of intake.
BY_ITSELF = """
INSERT INTO data_uploads (workspace_id, project_id, source, pipeline, filename, file_url, file_kind, content_sha256,
                          byte_size)
SELECT workspace_id, 1, source, pipeline, filename, file_url, file_kind, content_sha256, byte_size
FROM data_uploads WHERE project_id = 2
"""
BY_INTAKE = """
SELECT weighbridge.receive_upload(workspace_id, NULL, NULL, 1, source, pipeline, filename, file_url, file_kind,
                                  content_sha256, byte_size, NULL, false, false, NULL, NULL)
FROM data_uploads WHERE project_id = 2
"""
RUNS = (
    "SELECT a.outcome FROM weighbridge.attempts a JOIN projects p ON p.key = a.subject"
    " WHERE p.id = 1 ORDER BY a.opened_at"
)


@pytest.fixture
def start(home: Path, tmp_path: Path, database_url: str) -> Iterator[Callable[[], Worker]]:
    """`start()`: a worker in a process of its own."""
    fleet = Fleet(home, tmp_path)
    yield lambda: fleet.start(database_url, **LONG_LEASE)
    fleet.kill()


@pytest.fixture
def landed(standing: Any, groups: Any, query: Query, eventually: Eventually) -> Callable[[], Awaitable[None]]:
    """`await landed()`: both files, each by one claim, and the groups of both; no lease ran out."""

    async def landed() -> None:
        async def complete() -> bool:
            now = await standing()
            return bool(now.status == "complete" and not now.locked and len(now.files) == 2)

        await eventually(complete)
        assert [file.status for file in (await standing()).files] == ["succeeded", "succeeded"]
        assert await groups() == BOTH
        assert set(query(RUNS)) == {("done",)}

    return landed


async def test_a_file_received_while_the_run_groups(
    send: Send, start: Any, landed: Any, query: Query, standing: Any,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually,
) -> None:  # fmt: skip
    await send(FIRST)
    with transaction("none", SAME_GROUP) as other:
        start()
        await eventually(lambda: waited_for(other))
        await send(SECOND, "b.csv")
        now = await standing()
        assert (now.count("succeeded"), now.count("queued"), now.groupings) == (1, 1, 0)
    await landed()
    assert query(RUNS) == [("done",)]  # the same run went on, and grouped again
    assert (await standing()).groupings == 2


async def test_a_file_received_between_the_last_poll_and_the_release(
    send: Send, start: Any, landed: Any, query: Query, standing: Any,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually,
) -> None:  # fmt: skip
    """Nobody is called: it is the run that is about to end which finds it."""
    await send(FIRST)
    await send(SECOND, "b.csv", project=2)
    with transaction("none", BY_ITSELF) as sender:
        start()
        await eventually(lambda: waited_for(sender))
        now = await standing()
        assert (now.locked, len(now.files), now.groupings) == (True, 1, 1)  # nothing left that it could see
        sender.commit()
    await landed()
    assert query(RUNS) == [("done",)]


async def test_a_file_recorded_between_the_grouping_and_the_release(
    send: Send, start: Any, landed: Any, query: Query,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually,
) -> None:  # fmt: skip
    await send(FIRST)
    await send(SECOND, "b.csv", project=2)
    with transaction("none", SAME_GROUP) as other:
        start()
        await eventually(lambda: waited_for(other))
        with transaction("none", BY_INTAKE) as sender:
            other.rollback()
            await eventually(lambda: waited_for(sender))
            sender.commit()
    await landed()
    assert query(RUNS) == [("done",)]


@pytest.mark.parametrize("at", ["a file", "its grouping", "its release"])
async def test_a_file_received_when_the_runner_is_stopped(
    send: Send, start: Any, landed: Any, at: str,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually,
) -> None:  # fmt: skip
    """The worker is told to stop in the middle; another one stands by and takes up what it hands back."""
    in_the_way = {"a file": NO_KEYWORD, "its grouping": SAME_GROUP, "its release": BY_ITSELF}[at]
    await send(FIRST)
    await send(SECOND, "b.csv", project=2)
    with transaction("none", in_the_way) as other:
        runner = start()
        await eventually(lambda: waited_for(other))
        start()
        runner.terminate()
        if at == "its release":
            other.commit()
        else:
            await send(SECOND, "b.csv")
    assert runner.wait(within=15) == 0
    await landed()
