"""What the tests of projects share: files of keywords, a project to send them to, and what came of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from weighbridge.db import grouping, projects
from weighbridge.db.grouping import Place
from weighbridge.model.project import Standing
from weighbridge.steps.context import Context
from weighbridge.steps.receive import Received, Request, receive
from weighbridge.worker.loop import WorkerOptions, run_until

QUICK = WorkerOptions(name="test", poll=timedelta(seconds=0.05))

Send = Callable[..., Awaitable[Received]]
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
        await run_until(ctx, QUICK, [each.upload_id for each in received], lambda upload: None)

    return work


@pytest.fixture
def standing(ctx: Context, workspace: UUID) -> Callable[..., Awaitable[Standing]]:
    async def standing(project: int = 1) -> Standing:
        async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
            found = await projects.standing(tx, project)
        assert found is not None
        return found

    return standing


@pytest.fixture
def groups(ctx: Context, workspace: UUID) -> Callable[..., Awaitable[Groups]]:
    """`await groups()`: parent → keywords, of the whole project."""

    async def groups(project: int = 1) -> Groups:
        place = Place(workspace, project)
        async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
            found = await grouping.groups(tx, place, None, 1000)
            members = await grouping.members(tx, place, [group.id for group in found])
        return {group.parent or "": tuple(members[group.id]) for group in found}

    return groups
