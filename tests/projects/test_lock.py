"""The groups of a project are locked while its files are processed; edits and files never overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from signal import SIGSTOP
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Clock
from tests.projects.conftest import Send, Transaction, keyword_file, numbered, wish
from tests.proof.scene import Stage
from tests.proof.workers import LONG_LEASE, Fleet, Moment, until
from weighbridge.app import open_app
from weighbridge.delivery.context import Context
from weighbridge.model.errors import LeaseLost, ProcessingLocked
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database
from weighbridge.projects import queue
from weighbridge.projects.edits import Editor, merge_tokens, regroup
from weighbridge.projects.grouping import group_keywords
from weighbridge.projects.groups import ProjectKey
from weighbridge.settings import read
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive

Query = Callable[..., list[tuple[Any, ...]]]
Eventually = Callable[..., Awaitable[Any]]
WaitedFor = Callable[..., bool]

SHOES = keyword_file([("red shoe", 10), ("shoes red", 4), ("red sneaker", 5)])
AUDITED = "SELECT action FROM weighbridge.audit_log WHERE action ~ '^(project|group)[.]' ORDER BY at"

BEGIN_EDIT = "SELECT weighbridge.lock_project(1, 'test', 'project.regroup')"
# As intake does; its file need not be there where nobody works on it.
HAND_OVER = """
SELECT weighbridge.receive_upload(weighbridge.workspace(), NULL, NULL, 1, 'manual', 'keywords', 'b.csv', 'file:///b',
                                  'csv', sha256('b'), 1, NULL, false, false, NULL, NULL)
"""
# The group of a signature, as if another had just made it and not yet committed: grouping waits for it.
SAME_GROUP = (
    "INSERT INTO keyword_groups (workspace_id, project_id, signature) VALUES (weighbridge.workspace(), 1, %s)"
)


# The race, step by step -------------------------------------------------------------------------------------


async def test_a_file_received_during_an_edit_waits_and_is_recorded_after_it(
    send: Send, work: Any, standing: Any, editor: Editor,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually,
) -> None:  # fmt: skip
    await work(await send(SHOES))
    with transaction("weighbridge_group", BEGIN_EDIT) as edit:
        sending = asyncio.create_task(send(numbered(0, 3), "b.csv"))
        await eventually(lambda: waited_for(edit))
        assert not sending.done()
        assert len((await standing()).files) == 1
        edit.commit()
        await sending
    assert len((await standing()).files) == 2
    with pytest.raises(ProcessingLocked):
        await regroup(editor)


@pytest.mark.parametrize(
    "edit", [regroup, lambda editor: merge_tokens(editor, ["sneaker"], "shoe")], ids=["regroup", "merge"]
)
@pytest.mark.parametrize("lands", [True, False])
async def test_an_edit_during_the_recording_of_a_file_waits_and_is_refused_if_the_file_is_recorded(
    send: Send, work: Any, groups: Any, query: Query, editor: Editor,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually, edit: Any, lands: bool,
) -> None:  # fmt: skip
    await work(await send(SHOES))
    before = await groups()
    with transaction("weighbridge_intake", HAND_OVER) as intake:
        editing = asyncio.create_task(edit(editor))
        await eventually(lambda: waited_for(intake))
        assert not editing.done()
        intake.commit() if lands else intake.rollback()
        if not lands:
            await editing
            assert len(query(AUDITED)) == 1
            return
        with pytest.raises(ProcessingLocked):
            await editing
    assert await groups() == before
    assert query(AUDITED) == []


async def test_a_failed_file_that_is_opened_again_waits_for_an_edit_and_the_edit_for_it(
    send: Send, work: Any, query: Query, editor: Editor, workspace: UUID,
    transaction: Transaction, waited_for: WaitedFor, eventually: Eventually, ctx: Context,
) -> None:  # fmt: skip
    await work(await send(SHOES), failed := await send(b"Keyword,Volume\n,1\n", "b.csv"))
    again = ("SELECT weighbridge.retry_upload(%s, false, 'test')", (failed.upload_id,))
    with transaction("weighbridge_group", BEGIN_EDIT) as edit:
        retrying = asyncio.create_task(_execute(ctx, *again))
        await eventually(lambda: waited_for(edit))
        assert query("SELECT status FROM data_uploads WHERE id = %s", (failed.upload_id,)) == [("failed",)]
        edit.commit()
        await retrying
    with pytest.raises(ProcessingLocked):
        await regroup(editor)


async def _execute(ctx: Context, statement: Any, params: Any) -> None:
    async with ctx.db.tx() as tx:
        await tx.execute(statement, params)


async def test_no_run_begins_during_an_edit(
    send: Send, work: Any, query: Query, take_up: Any, transaction: Transaction
) -> None:
    await work(await send(SHOES))
    query(UNGROUPED)
    with transaction("weighbridge_group", BEGIN_EDIT) as edit:
        assert (await take_up()).lease is None
        edit.commit()
        assert (await take_up()).lease is not None


async def test_senders_and_the_run_do_not_wait_for_each_other(
    send: Send, query: Query, ctx: Context, take_up: Any, transaction: Transaction
) -> None:
    """Not even where the one sends again what the other is about to claim: each could wait for the other."""
    await send(SHOES)
    [(sha256,)] = query("SELECT content_sha256 FROM data_uploads")
    run = await take_up()
    with transaction("weighbridge_intake", HAND_OVER) as intake:
        async with asyncio.timeout(5):
            assert (await _claim_job(ctx, run)).lease is not None
        assert intake.execute(HAND_OVER_AGAIN, (sha256,)).fetchall() == [("duplicate_content",)]


HAND_OVER_AGAIN = HAND_OVER.replace("SELECT", "SELECT reason FROM").replace("sha256('b')", "%s")


async def _claim_job(ctx: Context, run: queue.ClaimedProject) -> Any:
    assert run.lease is not None
    async with ctx.db.tx() as tx:
        return await queue.claim_job(tx, run.lease, wish(ctx))


# The race, all at once --------------------------------------------------------------------------------------

# When a run really begins, and when an edit and a job are really there: the rows say when somebody set out to do so.
MOMENTS = """
CREATE TABLE public.moments (what text, id text, at timestamptz DEFAULT weighbridge.now());
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO public.moments (what, id) VALUES (TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1]);
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON weighbridge.attempts FOR EACH ROW WHEN (NEW.queue = 'projects')
    EXECUTE FUNCTION public.note('run', 'lease_token');
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON data_uploads DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.note('job', 'id');
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON weighbridge.audit_log DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.action ~ '^(project|group)[.]') EXECUTE FUNCTION public.note('edit', 'id');
"""
EDITS = "SELECT l.id, l.at AS since, m.at AS until FROM weighbridge.audit_log l JOIN moments m ON m.id = l.id::text"
SLIPPED_PAST = f"""
WITH edits AS ({EDITS} WHERE m.what = 'edit'), busy AS (
    SELECT m.what, m.at AS since, d.finished_at AS until FROM data_uploads d JOIN moments m ON m.id = d.id::text
    UNION ALL
    SELECT m.what, m.at, a.closed_at FROM weighbridge.attempts a JOIN moments m ON m.id = a.lease_token::text
)
SELECT e.id, b.what FROM edits e JOIN busy b ON b.since < e.until AND coalesce(b.until, 'infinity') > e.since
"""


async def test_concurrent_edits_and_files_never_overlap(
    send: Send, standing: Any, editor: Editor, query: Query, database_url: str,
    fleet: Fleet, eventually: Eventually,
) -> None:  # fmt: skip
    """Three senders, two editors, two workers."""
    query(MOMENTS)
    await send(SHOES)
    sent = asyncio.Event()

    async def free() -> bool:
        return not (await standing()).locked

    async def send_some(sender: int) -> None:
        for number in range(2):
            await eventually(free)
            await send(numbered(1000 * sender + 10 * number, 10), f"{sender}-{number}.csv")

    async def edit_all_the_time(edit: Callable[[], Awaitable[Any]]) -> list[bool]:
        went_through: list[bool] = []
        while not (sent.is_set() and any(went_through)):
            try:
                await edit()
                went_through.append(True)
            except ProcessingLocked:
                went_through.append(False)
        return went_through

    for _ in range(2):
        fleet.start(database_url, **LONG_LEASE)
    edits = (lambda: regroup(editor), lambda: merge_tokens(editor, ["sneaker"], "shoe"))
    editors = [asyncio.create_task(edit_all_the_time(edit)) for edit in edits]
    await asyncio.gather(*map(send_some, range(3)))
    sent.set()
    went_through = [each for tried in await asyncio.gather(*editors) for each in tried]
    await eventually(free)
    assert query(SLIPPED_PAST) == []
    assert set(went_through) == {True, False}
    assert query(f"SELECT count(*) FROM ({EDITS}) edits") == [(sum(went_through),)]
    assert query("SELECT status, count(*) FROM data_uploads GROUP BY 1") == [("completed", 7)]
    assert query("SELECT count(*) FROM keywords LEFT JOIN group_keywords m USING (workspace_id, project_id,"
                 " keyword_normalized) WHERE m.group_id IS NULL") == [(0,)]  # fmt: skip


# Reading ----------------------------------------------------------------------------------------------------


async def test_groups_and_status_are_read_while_an_edit_is_under_way(
    send: Send, work: Any, groups: Any, standing: Any, transaction: Transaction
) -> None:
    await work(await send(SHOES))
    before = await groups()
    with transaction("weighbridge_group", BEGIN_EDIT) as edit:
        edit.execute("DELETE FROM group_keywords")
        async with asyncio.timeout(5):
            assert await groups() == before
            assert not (await standing()).locked


async def test_groups_and_status_are_read_while_a_run_groups_and_edits_are_refused_at_once(
    send: Send, work: Any, groups: Any, standing: Any, editor: Editor, eventually: Eventually,
    transaction: Transaction, waited_for: WaitedFor,
) -> None:  # fmt: skip
    await work(await send(SHOES))
    before = await groups()
    with transaction("weighbridge_group", SAME_GROUP, ("hat red",)) as other:
        working = asyncio.create_task(work(await send(keyword_file([("red hat", 1)]), "b.csv")))
        await eventually(lambda: waited_for(other))
        async with asyncio.timeout(5):
            now = await standing()
            assert (now.locked, now.status, now.count("succeeded")) == (True, "grouping", 2)
            assert await groups() == before
            with pytest.raises(ProcessingLocked):
                await regroup(editor)
        other.rollback()
        await working
    assert (await groups())["red hat"] == ("red hat",)


# A lease that ran out ---------------------------------------------------------------------------------------

UNGROUPED = "UPDATE projects SET ungrouped = true"  # as after a job


async def test_a_live_lease_locks_and_an_expired_one_does_not(
    send: Send, work: Any, query: Query, take_up: Any, editor: Editor, clock: Clock, groups: Any, ctx: Context
) -> None:
    await work(await send(SHOES))
    query(UNGROUPED)
    run = await take_up()
    with pytest.raises(ProcessingLocked):
        await regroup(editor)
    clock.forward(seconds=61)
    await merge_tokens(editor, ["sneaker"], "shoe")
    edited = await groups()
    assert edited == {"red shoe": ("red shoe", "red sneaker", "shoes red")}
    # The runner was only slow: it changes nothing any more.
    for late in (group_keywords(ctx, run.lease, run.project), _release(ctx, run)):
        with pytest.raises(LeaseLost):
            await late
    assert await groups() == edited
    assert query("SELECT groupings FROM projects") == [(1,)]
    assert query(LAST_RUN) == [("expired",)]


LAST_RUN = "SELECT outcome FROM weighbridge.attempts WHERE queue = 'projects' ORDER BY opened_at DESC LIMIT 1"


async def _release(ctx: Context, run: queue.ClaimedProject) -> None:
    assert run.lease is not None
    async with ctx.db.tx() as tx:
        await queue.release(tx, run.lease, wish(ctx), anyway=False)


async def test_a_runner_with_an_expired_lease_does_not_start_to_group(
    send: Send, work: Any, query: Query, take_up: Any, clock: Clock, ctx: Context
) -> None:
    """Nobody took its lease yet, but an edit may at any moment."""
    await work(await send(SHOES))
    query(UNGROUPED)
    run = await take_up()
    clock.forward(seconds=61)
    with pytest.raises(LeaseLost):
        await group_keywords(ctx, run.lease, run.project)
    assert query("SELECT groupings FROM projects") == [(1,)]


async def test_a_lease_that_expired_inside_a_transaction_still_locks(
    send: Send, work: Any, query: Query, take_up: Any, editor: Editor, clock: Clock, ctx: Context
) -> None:
    await work(await send(SHOES))
    query(UNGROUPED)
    run = await take_up()
    async with ctx.db.fenced(run.lease, roles.GROUP):
        clock.forward(seconds=61)
        async with asyncio.timeout(5):
            with pytest.raises(ProcessingLocked):
                await regroup(editor)
    await regroup(editor)


@pytest.fixture
def stage(database_url: str, home: Path) -> Iterator[Stage]:
    """A database with a file that nobody has worked on yet."""
    asyncio.run(_fill(database_url, home))
    stage = Stage(database_url)
    yield stage
    stage.close()


async def _fill(url: str, home: Path) -> None:
    async with open_app(read(home=home, DATABASE_URL=url)) as app:
        file = home / "a.csv"
        file.write_bytes(SHOES)
        await receive(app.ctx, Request(WORKSPACE, pipeline="keywords", project_id=1), file)


@pytest.fixture
def fleet(home: Path, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(home, tmp_path)
    yield fleet
    fleet.kill()


WORKSPACE = UUID(int=1)
QUIET = (  # Postgres has done what the worker asked for before it froze
    "NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'weighbridge%' AND state = 'active')"
)


@pytest.mark.parametrize(
    ("commit", "grouped"), [(1, 0), (2, 0), (3, 1)], ids=["claim", "last look", "grouping"]
)
def test_a_runner_that_froze_past_its_lease_changes_nothing_when_it_wakes_after_an_edit(
    stage: Stage, fleet: Fleet, commit: int, grouped: int
) -> None:
    first = fleet.start(stage.url)
    until(lambda: stage.ended and stage.holds("SELECT groupings = 1 FROM projects"))
    assert first.stop() == 0
    stage.query(UNGROUPED)
    runner = fleet.start(stage.url, Moment("after", commit, SIGSTOP))
    until(lambda: runner.frozen and stage.holds(QUIET))
    stage.forward(seconds=7)
    asyncio.run(_merge(stage.url))
    before = _groups(stage)
    runner.resume()
    until(lambda: "Project lease lost" in runner.said)
    before_that = runner.said[: runner.said.index("Project lease lost")]
    assert before_that.count("Project grouped") == grouped
    assert runner.stop() == 0
    assert _groups(stage) == before


async def _merge(url: str) -> None:
    db = Database(url, size=1)
    await db.open()
    try:
        await merge_tokens(Editor(db, ProjectKey(WORKSPACE, 1), "test"), ["sneaker"], "shoe")
    finally:
        await db.close()


def _groups(stage: Stage) -> list[Any]:
    """What the edit made, and which transaction wrote each row."""
    tables = ("keyword_groups", "group_keywords", "token_merges")
    return [
        stage.query(f"SELECT to_jsonb(t)::text, xmin::text FROM {table} t ORDER BY 1") for table in tables
    ]


def test_a_runner_that_froze_while_it_groups_locks_until_it_is_ended(stage: Stage, fleet: Fleet) -> None:
    with psycopg.connect(stage.url, application_name="test") as other:
        same_group = "INSERT INTO keyword_groups (workspace_id, project_id, signature) VALUES (%s, 1, %s)"
        other.execute(same_group, (WORKSPACE, "red shoe"))
        runner = fleet.start(stage.url)
        waiting_for = "EXISTS (SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid)))"
        until(lambda: stage.holds(waiting_for, (other.info.backend_pid,)))
        runner.freeze()
        other.rollback()
    until(lambda: stage.holds(QUIET))
    stage.forward(seconds=7)
    with pytest.raises(ProcessingLocked):
        asyncio.run(_merge(stage.url))
    stage.query("SELECT * FROM weighbridge.recover(5)")  # ends its session
    until(lambda: not stage.fenced)
    asyncio.run(_merge(stage.url))
    before = _groups(stage)
    runner.resume()
    until(lambda: stage.holds("SELECT groupings = 1 AND NOT ungrouped FROM projects"))
    assert runner.stop() == 0
    assert _groups(stage) == before
