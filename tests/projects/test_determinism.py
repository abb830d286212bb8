"""Any order, split or repetition of the same files, through any crash, gives the same keywords and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.projects.conftest import Send, keyword_file
from tests.proof.workers import LONG
from weighbridge.delivery.context import Context
from weighbridge.engine.leases import Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.engine.signals import Signals
from weighbridge.model.errors import LeaseLost
from weighbridge.model.limits import Limits
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database, Lease, Tx
from weighbridge.projects import queue as projects_queue
from weighbridge.projects.project_run import ProjectRun
from weighbridge.uploads import queue as uploads_queue

# Few, so that most rows tell of a keyword that another one has told of, or of one in the same group.
PHRASES = ("blue shoe", "Blue Shoes", "ｂlue shoes", "the shoe blue", "shoes", "red hat", "hats red", "hat")
# A volume below zero makes a row invalid.
ROWS = st.lists(st.tuples(st.sampled_from(PHRASES), st.integers(-4, 9)), min_size=3, max_size=14).filter(
    lambda rows: any(volume >= 0 for _, volume in rows)
)
WISH = uploads_queue.ClaimRequest(
    worker="test",
    sources=(Status.PENDING, Status.STAGING_COMPLETE),
    pipelines=("keywords",),
    lease=timedelta(seconds=60),
    per_workspace=3,
    max_crashes=1000,
)
_project = count(1)


class Dying:
    """A database of which only so many transactions come: after the last nothing more is written, as after a crash.

    The last one commits, or does not.
    """

    def __init__(self, db: Database, transactions: int, commits: bool) -> None:
        self.url, self._db, self._left, self._commits = db.url, db, transactions, commits

    @asynccontextmanager
    async def tx(self, role: Any = None, workspace_id: UUID | None = None) -> AsyncIterator[Tx]:
        async with self._dying(self._db.tx(role, workspace_id)) as tx:
            yield tx

    @asynccontextmanager
    async def fenced(self, lease: Lease, role: Any, *, durable: bool = True) -> AsyncIterator[Tx]:
        async with self._dying(self._db.fenced(lease, role, durable=durable)) as tx:
            yield tx

    @asynccontextmanager
    async def _dying(self, transaction: Any) -> AsyncIterator[Tx]:
        if self._left == 0:
            raise LeaseLost("dead")
        self._left -= 1
        async with transaction as tx:
            yield tx
            if self._left == 0 and not self._commits:
                raise LeaseLost("dead")
        if self._left == 0:
            raise LeaseLost("dead")


@dataclass(frozen=True)
class Story:
    """How the same rows came: in which files, in which order, with what in between."""

    files: Sequence[Sequence[int]]  # places of rows; a row may be in several files, or twice in one
    runs: Sequence[bool]  # after this file, is what is there worked on at once?
    deaths: Sequence[
        tuple[int, bool]
    ]  # after how many transactions each run ends, and whether the last commits


@st.composite
def stories(draw: st.DrawFn, rows: int) -> Story:
    order = draw(st.permutations(range(rows)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, rows - 1)), max_size=3)))
    files = [list(order[a:b]) for a, b in zip([0, *cuts], [*cuts, rows], strict=True) if order[a:b]]
    again = st.lists(st.sampled_from(order), min_size=1, max_size=rows + 2)
    files += [draw(again) for _ in range(draw(st.integers(0, 2)))]
    files = draw(st.permutations(files))
    return Story(
        files,
        draw(st.lists(st.booleans(), min_size=len(files), max_size=len(files))),
        draw(st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4)),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, int]], list[Story]]:
    rows = draw(ROWS)
    return rows, [draw(stories(len(rows))) for _ in range(2)]


def plain(rows: int) -> Story:
    return Story([list(range(rows))], [True], [])


async def test_groups_depend_on_the_rows_alone(
    ctx: Context, send: Send, workspace: UUID, query: Any, clock: Any
) -> None:
    small = replace(ctx, limits=Limits(batch_rows=3))

    async def told(rows: Sequence[tuple[str, int]], story: Story) -> tuple[Any, Any]:
        """What stands in the tables after the story."""
        project, deaths = next(_project), list(story.deaths)
        for number, (file, now) in enumerate(zip(story.files, story.runs, strict=True)):
            await send(keyword_file(rows[place] for place in file), f"{number}.csv", project)
            if now:
                await _work(small, clock, deaths)
        await _work(small, clock, deaths)
        return _keywords(query, project), _groups(query, project)

    loop = asyncio.get_running_loop()

    @given(histories())
    # Not shrunk: an example takes seconds, and is small as it is.
    @settings(
        max_examples=50 if LONG else 6,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    def check(history: tuple[list[tuple[str, int]], list[Story]]) -> None:
        rows, others = history
        first, *rest = (
            asyncio.run_coroutine_threadsafe(told(rows, story), loop).result()
            for story in (plain(len(rows)), *others)
        )
        assert first[1], "nothing was grouped"
        for outcome in rest:
            assert outcome == first

    await asyncio.to_thread(check)


def _keywords(query: Any, project: int) -> Any:
    return query(
        "SELECT keyword_normalized, keyword, tokens, volume FROM keywords WHERE project_id = %s ORDER BY 1",
        (project,),
    )


def _groups(query: Any, project: int) -> Any:
    """Signature, parent and keywords of every group; every keyword is in one."""
    assert query("SELECT count(*) FROM group_keywords WHERE project_id = %s", (project,)) == query(
        "SELECT count(*) FROM keywords WHERE project_id = %s", (project,)
    )
    return query(
        "SELECT g.signature, g.parent, array_agg(m.keyword_normalized ORDER BY m.keyword_normalized)"
        " FROM keyword_groups g"
        " JOIN group_keywords m ON m.project_id = g.project_id AND m.group_id = g.id WHERE g.project_id = %s"
        " GROUP BY g.id, g.signature, g.parent ORDER BY g.signature",
        (project,),
    )


async def _work(ctx: Context, clock: Any, deaths: list[tuple[int, bool]]) -> None:
    """Runs, some of which die, until nothing is left to do."""
    while True:
        async with ctx.db.tx() as tx:
            run = await projects_queue.claim(tx, WISH)
        if run.lease is None or run.project is None:
            async with ctx.db.tx() as tx:
                left = await (
                    await tx.execute("SELECT FROM weighbridge.attempts WHERE closed_at IS NULL")
                ).fetchone()
            if left is None:
                return
            clock.forward(hours=1)
            continue
        mortal = replace(ctx, db=Dying(ctx.db, *deaths.pop())) if deaths else ctx  # type: ignore[arg-type]
        options = WorkerOptions()
        leases = Leases(ctx.db.url, options.lease, options.ceiling)
        await ProjectRun(mortal, run.lease, run.project, WISH, options, leases, Signals()).run()
        clock.forward(hours=1)
