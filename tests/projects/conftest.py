"""What the tests of projects share: files of keywords, a project to send them to, and what came of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from tests.api.conftest import new_key
from tests.conftest import worked_out
from weighbridge.api import create
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.project import ProjectStatus
from weighbridge.projects import groups as projects_groups
from weighbridge.projects import queue as projects_queue
from weighbridge.projects.edits import Editor
from weighbridge.projects.groups import ProjectKey
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive
from weighbridge.worker import run_until

QUICK = WorkerOptions(name="test", poll=timedelta(seconds=0.05))

Send = Callable[..., Coroutine[Any, Any, Received]]
Work = Callable[..., Awaitable[None]]
Groups = dict[str, tuple[str, ...]]  # parent → keywords


def keyword_file(rows: Iterable[tuple[str, object]]) -> bytes:
    """A CSV of keywords and volumes."""
    return "".join(["Keyword,Volume\n", *(f"{keyword},{volume}\n" for keyword, volume in rows)]).encode()


def numbered(first: int, count: int) -> bytes:
    """So many keywords that are nobody else's, each a group of its own."""
    return keyword_file((f"thing {first + n} number", n) for n in range(count))


@pytest.fixture
def send(ctx: Context, workspace: UUID, tmp_path: Path) -> Send:
    """`await send(content, "a.csv")`: hand a file over to project 1, as a sender does."""

    async def send(content: bytes, filename: str = "a.csv", project: int = 1, **said: Any) -> Received:
        path = tmp_path / f"{filename}.sent"
        path.write_bytes(content)
        request = Request(workspace, pipeline="keywords", project_id=project, filename=filename, **said)
        return await receive(ctx, request, path)

    return send


@pytest.fixture
def work(ctx: Context) -> Callable[..., Awaitable[None]]:
    """`await work(received, …)`: work until these files have ended and their project is grouped."""

    async def work(*received: Received) -> None:
        await run_until(ctx, QUICK, [each.upload_id for each in received])

    return work


@pytest.fixture
def standing(ctx: Context, workspace: UUID) -> Callable[..., Awaitable[ProjectStatus]]:
    async def standing(project: int = 1) -> ProjectStatus:
        async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
            found = await projects_queue.status(tx, project)
        assert found is not None
        return found

    return standing


@pytest.fixture
def groups(ctx: Context, workspace: UUID) -> Callable[..., Awaitable[Groups]]:
    """`await groups()`: parent → keywords, of the whole project."""

    async def groups(project: int = 1) -> Groups:
        place = ProjectKey(workspace, project)
        async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
            found = await projects_groups.groups(tx, place, None, 1000)
            members = await projects_groups.members(tx, place, [group.id for group in found])
        return {group.parent or "": tuple(members[group.id]) for group in found}

    return groups


@pytest.fixture
def editor(ctx: Context, workspace: UUID) -> Editor:
    """Somebody's hands on the groups of project 1."""
    return Editor(ctx.db, ProjectKey(workspace, 1), "test")


Transaction = Callable[..., Any]  # opens a psycopg.Connection in the middle of a transaction


@pytest.fixture
def transaction(database_url: str, workspace: UUID) -> Transaction:
    """`with transaction("weighbridge_group", "SELECT …", params) as tx:` of the workspace; undone unless committed."""

    @contextmanager
    def transaction(role: str, statement: str, params: Any = None) -> Iterator[psycopg.Connection]:
        with psycopg.connect(database_url, application_name="test") as connection:
            connection.execute(
                "SELECT set_config('role', %s, true), set_config('weighbridge.workspace_id', %s, true)",
                (role, str(workspace)),
            )
            connection.execute(statement, params)
            try:
                yield connection
            finally:
                connection.rollback()

    return transaction


@pytest.fixture
def waited_for(query: Callable[..., Any]) -> Callable[[psycopg.Connection], bool]:
    """`waited_for(tx)`: somebody waits for this transaction."""

    def waited_for(connection: psycopg.Connection) -> bool:
        blocked = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        return bool(query(blocked, (connection.info.backend_pid,)))

    return waited_for


@pytest.fixture
def take_up(ctx: Context) -> Callable[..., Awaitable[projects_queue.ClaimedProject]]:
    """`await take_up()`: lease a project as a worker does who then falls silent."""

    async def take_up(**wishes: Any) -> projects_queue.ClaimedProject:
        async with ctx.db.tx() as tx:
            return await projects_queue.claim(tx, wish(ctx, **wishes))

    return take_up


def wish(ctx: Context, **wishes: Any) -> uploads_queue.ClaimRequest:
    """What a worker is ready to take on."""
    usual = {"worker": "silent", "lease": timedelta(seconds=60), "per_workspace": 3}
    return uploads_queue.ClaimRequest(
        sources=QUICK.sources, pipelines=tuple(ctx.pipelines), **{**usual, **wishes}
    )


@pytest.fixture
async def http(app: App, workspace: UUID) -> AsyncIterator[httpx.AsyncClient]:
    """The API without a socket, for somebody who may do everything."""
    key = await new_key(app.db, workspace, ("upload", "read", "operate"))
    transport = httpx.ASGITransport(worked_out(create(app)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge", headers=key) as client:
        yield client
