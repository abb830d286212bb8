"""The six tests of the specification's checklist for projects, under their names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.conftest import Clock
from tests.projects.conftest import Send, Transaction, keyword_file, numbered, wish
from weighbridge.delivery.context import Context
from weighbridge.projects import queue as projects_queue
from weighbridge.uploads import queue as uploads_queue

Query = Callable[..., list[tuple[Any, ...]]]
Eventually = Callable[..., Awaitable[Any]]

GATE = "LOCK TABLE keywords IN SHARE ROW EXCLUSIVE MODE"  # nobody gets a keyword in
LOCKED = {
    "error": "processing_locked",
    "message": "CSV processing in progress. Grouping is temporarily locked until import completes.",
    "project_id": 1,
}

# Kicks project 1 for every line it is told, and says whether it ran it.
KICKER = """
import asyncio, sys
from uuid import UUID
from weighbridge.app import open_app
from weighbridge.observe.logs import configure
from weighbridge.settings import read
from weighbridge.projects.create import find_project
from weighbridge.worker import kick
from weighbridge.engine.options import WorkerOptions

async def main():
    async with open_app(read()) as app:
        project = await find_project(app.db, UUID(sys.argv[1]), 1)
        print("ready", flush=True)
        while sys.stdin.readline():
            print(await kick(app.ctx, WorkerOptions(), project), flush=True)

configure("warning")
asyncio.run(main())
"""
KICKERS = 4


@pytest.fixture
def kickers(database_url: str, home: Path, workspace: UUID) -> Iterator[list[subprocess.Popen[str]]]:
    environment = {**os.environ, "DATABASE_URL": database_url, "WEIGHBRIDGE_HOME": str(home)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", KICKER, str(workspace)],
            env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for _ in range(KICKERS)
    ]  # fmt: skip
    yield started
    for kicker in started:
        with kicker:
            kicker.kill()


def _tell(kicker: subprocess.Popen[str]) -> None:
    assert kicker.stdin is not None
    kicker.stdin.write("kick\n")
    kicker.stdin.flush()


def _said(kicker: subprocess.Popen[str]) -> str:
    assert kicker.stdout is not None
    return kicker.stdout.readline().strip()


async def test_concurrent_kick_one_lease_owner(
    send: Send, query: Query, standing: Any, transaction: Transaction, eventually: Eventually, request: Any
) -> None:
    await send(numbered(0, 10), "0.csv")
    kickers = request.getfixturevalue("kickers")  # now that there is a project to find
    assert [_said(kicker) for kicker in kickers] == ["ready"] * KICKERS

    with transaction("weighbridge_promote", GATE):
        for kicker in kickers:
            _tell(kicker)
        [(owner,)] = await eventually(lambda: query("SELECT lease_owner FROM project_processing_leases"))
        pid = int(owner.split(":")[1])
        losers = [kicker for kicker in kickers if kicker.pid != pid]
        assert len(losers) == KICKERS - 1
        assert [_said(loser) for loser in losers] == ["False"] * len(losers)
        assert query("SELECT count(*) FROM weighbridge.attempts WHERE queue = 'projects'") == [(1,)]
    [winner] = [kicker for kicker in kickers if kicker.pid == pid]
    assert _said(winner) == "True"
    assert ((now := await standing()).status, now.groupings) == ("complete", 1)

    # Any number of times, while files come.
    for number in range(1, 7):
        await send(numbered(10 * number, 10), f"{number}.csv")
        for kicker in kickers:
            _tell(kicker)
    assert "True" in [_said(kicker) for _ in range(6) for kicker in kickers]
    now = await standing()
    assert (now.status, now.count("succeeded"), {f.attempts for f in now.files}) == ("complete", 7, {1})
    assert _apart(query, "projects") <= 7
    assert _apart(query, "uploads") == 7


def _apart(query: Query, queue: str) -> int:
    """How many attempts there were; no two overlap."""
    rows = query(
        "SELECT opened_at >= lag(closed_at) OVER (ORDER BY opened_at) FROM weighbridge.attempts"
        " WHERE queue = %s ORDER BY opened_at",
        (queue,),
    )
    assert all(apart for (apart,) in rows[1:])
    return len(rows)


async def test_multi_file_all_jobs_processed(
    send: Send, work: Any, standing: Any, groups: Any, query: Query
) -> None:
    """Good ones, one that has nothing to offer, and one that fails: none is lost, and one grouping follows."""
    files = [numbered(20 * number, 20) for number in range(5)]
    files.insert(2, numbered(0, 10))  # all known from the first one
    files.insert(4, keyword_file([("wrong", "many")]))
    await work(*[await send(content, f"{number}.csv") for number, content in enumerate(files)])
    now = await standing()
    assert [file.status for file in now.files] == ["succeeded"] * 4 + ["failed"] + ["succeeded"] * 2
    assert [(f.inserted, f.duplicate, f.invalid) for f in now.files] == [
        (20, 0, 0), (20, 0, 0), (0, 10, 0), (20, 0, 0), (0, 0, 1), (20, 0, 0), (20, 0, 0),
    ]  # fmt: skip
    told = now.as_dict()
    assert (told["uploadedFileCount"], told["processedFileCount"]) == (7, 7)
    assert [(e["filename"], e["error"]) for e in told["fileErrors"]] == [("4.csv", "no_valid_rows")]
    assert told["progress"] == {"rows_total": 111, "rows_processed": 111}
    assert (now.locked, now.groupings, len(await groups())) == (False, 1, 100)
    assert query("SELECT count(*) FROM weighbridge.attempts WHERE queue = 'projects'") == [(1,)]


async def test_retry_idempotency_no_duplicate_keywords(
    send: Send, work: Any, standing: Any, groups: Any, query: Query, http: httpx.AsyncClient
) -> None:
    """Opened again after a row was refused, after the whole file was, and sent again on purpose: each keyword once."""
    query("ALTER TABLE keywords ADD CONSTRAINT not_yet CHECK (keyword_normalized !~ '^thing (35|60|61) ')")
    most = await send(numbered(0, 50), "most.csv")
    none = await send(numbered(60, 2) + b",1\n", "none.csv")
    await work(most, none)
    first, second = (await standing()).files
    assert (first.status, first.inserted, first.invalid) == ("succeeded", 49, 1)
    assert (second.status, second.inserted, second.error) == ("failed", 0, "nothing_promoted")

    query("ALTER TABLE keywords DROP CONSTRAINT not_yet")
    assert (await http.post(f"/api/uploads/{most.upload_id}/retry")).status_code == 200
    retried = await http.post("/api/projects/1/jobs/retry-failed")
    assert retried.json() == {"project_id": 1, "retried": [str(none.upload_id)], "skipped": []}
    await work(most, none)
    assert await _counts(standing) == [("succeeded", 1, 49, 0), ("succeeded", 2, 0, 1)]
    again = await http.post("/api/projects/1/jobs/retry-failed")
    assert again.json() == {"project_id": 1, "retried": [], "skipped": []}

    await work(await send(numbered(0, 50), "again.csv", force=True))
    assert (await _counts(standing))[-1] == ("succeeded", 0, 50, 0)
    assert query("SELECT count(*), count(DISTINCT keyword_normalized) FROM keywords") == [(52, 52)]
    assert query("SELECT count(*) FROM group_keywords") == [(52,)]
    assert len(await groups()) == 52


async def _counts(standing: Any) -> list[tuple[Any, ...]]:
    return [(file.status, file.inserted, file.duplicate, file.invalid) for file in (await standing()).files]


def _mutations(group: str) -> list[tuple[str, str, Any]]:
    """Everything that changes groups, in an order in which all of it can be done."""
    return [
        ("POST", "tokens/merge", {"tokens": ["sneaker"], "into": "shoe"}),
        ("POST", "tokens/unmerge", {"tokens": ["sneaker"]}),
        ("PATCH", f"groups/{group}", {"name": "Shoes"}),
        ("POST", f"groups/{group}/confirm", None),
        ("POST", f"groups/{group}/unconfirm", None),
        ("POST", "keywords/move", {"keywords": ["red hat"], "group_id": group}),
        ("POST", "regroup", {"by_hand": True}),
    ]


async def test_409_grouping_mutations_during_processing(
    send: Send, work: Any, query: Query, http: httpx.AsyncClient, ctx: Context, take_up: Any, standing: Any
) -> None:
    """While a file is queued, while it is running, while the run has yet to group: each is refused, then none is."""
    await work(await send(keyword_file([("red shoe", 9), ("red sneaker", 5), ("red hat", 4)])))
    [(group,)] = query("SELECT id::text FROM keyword_groups WHERE parent = 'red shoe'")
    before = query(GROUPS)

    second = await send(keyword_file([("green shoe", 1)]), "b.csv")
    assert (await standing()).status == "queued"
    await _all_refused(http, group)
    run = await take_up()
    async with ctx.db.tx() as tx:
        await projects_queue.claim_job(tx, run.lease, wish(ctx))
    assert (await standing()).status == "processing"
    await _all_refused(http, group)
    query("UPDATE data_uploads SET status = 'failed', finished_at = now() WHERE id = %s", (second.upload_id,))
    assert (await standing()).status == "grouping"
    await _all_refused(http, group)
    assert query(GROUPS) == before

    async with ctx.db.tx() as tx:
        await projects_queue.release(tx, run.lease, wish(ctx), anyway=True)
    for method, path, body in _mutations(group):
        answer = await http.request(method, f"/api/projects/1/{path}", json=body)
        assert answer.status_code == 200, answer.text


GROUPS = "SELECT to_jsonb(g)::text, xmin::text FROM keyword_groups g ORDER BY 1"


async def _all_refused(http: httpx.AsyncClient, group: str) -> None:
    for method, path, body in _mutations(group):
        answer = await http.request(method, f"/api/projects/1/{path}", json=body)
        assert (answer.status_code, answer.json()) == (409, LOCKED), path


async def test_every_mutation_is_among_them(http: httpx.AsyncClient) -> None:
    inside = "/api/projects/{project_id}/"
    described = (await http.get("/api/openapi.json")).json()["paths"]
    edits = {
        (method.upper(), path.removeprefix(inside))
        for path, methods in described.items()
        for method in methods
        if path.startswith(inside) and method != "get"
    }
    assert edits - {("POST", "kick"), ("POST", "jobs/retry-failed")} == {
        (method, path) for method, path, _ in _mutations("{group_id}")
    }


@pytest.mark.parametrize("crashed_while", ["processing", "promoting"])
async def test_recovery_sweep_requeues_stale_running_jobs(
    send: Send,
    work: Any,
    standing: Any,
    query: Query,
    ctx: Context,
    take_up: Any,
    clock: Clock,
    crashed_while: str,
) -> None:
    """Each start of a run sweeps; a job that has lost its runner three times is given up, and the rest goes on."""
    stale = await send(numbered(0, 5), "a.csv")
    other = await send(numbered(5, 5), "b.csv")
    for crash in (1, 2, 3):
        run = await take_up(max_crashes=3)
        assert run.lease is not None
        if crash > 1:
            assert {each.queue for each in run.abandoned} == {"projects", "uploads"}
        first = (await standing()).files[0]
        assert (first.status, first.attempts) == ("queued", crash - 1)
        async with ctx.db.tx() as tx:
            claimed = await projects_queue.claim_job(tx, run.lease, wish(ctx))
        assert claimed.upload is not None
        assert claimed.upload.id == stale.upload_id
        first = (await standing()).files[0]
        assert (first.status, first.attempts) == ("running", crash)
        if crashed_while == "promoting" and crash == 1:
            query("UPDATE data_uploads SET status = 'staging_complete' WHERE id = %s", (stale.upload_id,))
            query("UPDATE data_uploads SET status = 'promoting' WHERE id = %s", (stale.upload_id,))
        assert (await take_up(max_crashes=3)).abandoned == ()  # not before the lease has run out
        clock.forward(seconds=61)
    run = await take_up(max_crashes=3)
    assert [each.gave_up for each in run.abandoned if each.queue == "uploads"] == [True]
    first, second = (await standing()).files
    assert (first.status, first.attempts, first.error) == ("failed", 3, "worker_crashed")
    assert (second.status, second.attempts) == ("queued", 0)
    clock.forward(seconds=61)
    await work(other)
    assert ((now := await standing()).status, now.count("failed"), now.groupings) == ("complete", 1, 1)


async def test_a_job_that_is_put_off_in_the_middle_is_queued_while_the_next_one_runs(
    send: Send, standing: Any, query: Query, ctx: Context, take_up: Any
) -> None:
    first = await send(numbered(0, 5), "a.csv")
    await send(numbered(5, 5), "b.csv")
    run = await take_up()
    async with ctx.db.tx() as tx:
        claimed = await projects_queue.claim_job(tx, run.lease, wish(ctx))
    assert claimed.lease is not None
    for status in ("staging_complete", "promoting"):
        query("UPDATE data_uploads SET status = %s WHERE id = %s", (status, first.upload_id))
    async with ctx.db.tx() as tx:
        await uploads_queue.release(
            tx, claimed.lease, uploads_queue.Release(timedelta(minutes=1), failed=True)
        )
        await projects_queue.claim_job(tx, run.lease, wish(ctx))
    now = (await standing()).as_dict()
    assert (now["running_jobs"], now["queuedFiles"], now["current_file"]) == (1, ["a.csv"], "b.csv")


async def test_deterministic_ordering_of_job_processing(
    send: Send, work: Any, standing: Any, query: Query
) -> None:
    """By arrival, then by id, whatever their names and sizes, and whatever other projects do."""
    sent = [await send(numbered(100 * n, 60 - 10 * n), f"{name}.csv") for n, name in enumerate("fbdaec")]
    other = await send(numbered(0, 5), "other.csv", project=2)
    came = "UPDATE data_uploads SET created_at = created_at + make_interval(secs => %s) WHERE id = %s"
    for received, later in zip(sent, (3, 1, 2, 0, 0, 0), strict=True):
        query(came, (later, received.upload_id))
    at_once = (
        "UPDATE data_uploads SET created_at = (SELECT min(created_at) FROM data_uploads) WHERE id = ANY (%s)"
    )
    query(at_once, ([received.upload_id for received in sent[3:]],))
    await work(*sent, other)
    ids = {received.upload_id: name for received, name in zip(sent, "fbdaec", strict=True)}
    expected = [ids[each] for each in sorted(list(ids)[3:])] + ["b", "d", "f"]
    begun = query(
        "SELECT a.subject FROM weighbridge.attempts a JOIN data_uploads d ON d.id = a.subject"
        " WHERE d.project_id = 1 ORDER BY a.opened_at"
    )
    assert [ids[each] for (each,) in begun] == expected
    assert [file.filename for file in (await standing()).files] == [f"{name}.csv" for name in expected]
