"""`weighbridge projects`: create, inspect and run projects."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import complain, err, out, print_json
from weighbridge.cli.table import plain_table
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.model.project import Job, Project, ProjectStatus
    from weighbridge.postgres.transactions import Tx
    from weighbridge.projects.create import Retried
    from weighbridge.projects.queue import Runner

app = typer.Typer(
    help="Create, inspect and run projects, and edit their keyword groups.", no_args_is_help=True
)

ProjectNumber = Annotated[str, typer.Argument(help="The project's number.", metavar="N", show_default=False)]
FIRST_GROUPS = 20  # printed by `show`
_GROUPS_AT_ONCE = 500
_LOOK_EVERY = 0.5  # seconds


@app.command("list")
def listing(workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """List the projects of a workspace, by number."""

    async def work(app: App) -> list[Project]:
        from weighbridge.postgres import roles
        from weighbridge.projects import queue
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        found: list[Project] = []
        async with app.db.tx(roles.TENANT, workspace_id) as tx:
            while page := await queue.get_projects(tx, workspace_id, found[-1].id if found else 0, 1000):
                found += page
        return found

    found = with_app(work)
    if as_json:
        print_json([_brief(project) for project in found])
        return
    from rich.markup import escape

    table = plain_table()
    table.add_column("project", justify="right")
    for name in ("name", "created", "grouped"):
        table.add_column(name, overflow="fold")
    for each in found:
        grouped = f"{each.grouped_at:%Y-%m-%d %H:%M:%S}" if each.grouped_at else ""
        table.add_row(str(each.id), escape(each.name), f"{each.created_at:%Y-%m-%d %H:%M:%S}", grouped)
    out().print(table)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The project's name.", metavar="NAME", show_default=False)],
    number: Annotated[
        str | None,
        typer.Option("--project", help="The project's number. Default: the next free number.", metavar="N"),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Create or rename a project. Loading the first file also creates it."""

    async def work(app: App) -> tuple[Project, bool]:
        from weighbridge.projects.create import make
        from weighbridge.uploads.check_request import project_number, uuid_of

        wanted = None if number is None else project_number(number)
        return await make(app.db, uuid_of(workspace, "workspace", "workspace"), wanted, name)

    project, new = with_app(work)
    if as_json:
        print_json({**_brief(project), "created": new})
    else:
        sentence = (
            f"Project {project.id} created: {project.name}"
            if new
            else f"Project {project.id} renamed: {project.name}"
        )
        out().print(f"{sentence}.", markup=False, soft_wrap=True)


@app.command()
def show(number: ProjectNumber, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """Show a project's files and first groups; with --json all groups and keywords."""

    async def work(app: App) -> None:
        project = await the_project(app, workspace, number)
        await (_print_all(app, project) if as_json else _print_short(app, project))

    with_app(work)


@app.command()
def status(
    number: ProjectNumber,
    workspace: Workspace = DEFAULT_WORKSPACE,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until all files are processed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a project's files and whether its groups are locked."""

    async def work(app: App) -> ProjectStatus:
        from weighbridge.cli.projects.status import live_line

        project = await the_project(app, workspace, number)
        with live_line() as look:
            while True:
                project_status = await _status_of(app, project)
                if not watch or not (project_status.locked or project_status.status == "grouping"):
                    return project_status
                look(project_status)
                await asyncio.sleep(_LOOK_EVERY)

    _print_status(with_app(work), as_json=as_json)


@app.command()
def jobs(
    number: ProjectNumber,
    workspace: Workspace = DEFAULT_WORKSPACE,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", help="Only jobs that are queued, running, succeeded or failed.", metavar="STATUS"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs of a project, one per file, in order of receipt."""

    async def work(app: App) -> list[Job]:
        from weighbridge.postgres import roles
        from weighbridge.projects import queue

        wanted = _job_status(status)
        project = await the_project(app, workspace, number)
        found: list[Job] = []
        after: queue.JobCursor | None = None
        async with app.db.tx(roles.TENANT, project.workspace_id) as tx:
            while page := await queue.jobs(tx, project, status=wanted, after=after, limit=1000):
                found += page
                after = queue.JobCursor(page[-1].created_at, page[-1].id)
        return found

    found = with_app(work)
    if as_json:
        print_json([vars(job) for job in found])
        return
    from rich.markup import escape

    table = plain_table()
    for name in ("job", "received", "file", "status"):
        table.add_column(name, overflow="fold")
    for name in ("attempts", "rows", "inserted", "duplicate", "invalid"):
        table.add_column(name, justify="right")
    table.add_column("error")
    for each in found:
        numbers = (each.attempts, each.rows, each.inserted, each.duplicate, each.invalid)
        table.add_row(
            str(each.id), f"{each.created_at:%Y-%m-%d %H:%M:%S}", escape(each.source_filename or ""), each.status,
            *(f"{number:,}" for number in numbers), each.error_code or "",
        )  # fmt: skip
    out().print(table)


@app.command("retry-failed")
def retry_failed(
    number: ProjectNumber,
    workspace: Workspace = DEFAULT_WORKSPACE,
    force_partial: Annotated[
        bool,
        typer.Option("--force-partial", help="Promote the valid rows even if too many rows are invalid."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Retry every failed file of a project. A worker processes them."""

    async def work(app: App) -> tuple[Project, Retried]:
        from weighbridge.projects.create import retry_failed

        project = await the_project(app, workspace, number)
        done = await retry_failed(app.db, project, force_partial=force_partial, actor="command line")
        return project, done

    project, done = with_app(work)
    if as_json:
        skipped = [vars(each) for each in done.skipped]
        print_json({"project_id": project.id, "retried": list(done.retried), "skipped": skipped})
        return
    for each in done.skipped:
        complain(f"{each.job_id}: {each.message}")
    count = len(done.retried)
    files = counted(count, "file is", "files are")
    out().print(f"{files} queued again." if count else f"Project {project.id} has no failed file to retry.")


@app.command()
def kick(number: ProjectNumber, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False) -> None:
    """Process a project in this process until no work is left. Does nothing if another worker runs it."""

    async def work(app: App) -> tuple[bool, Runner | None, ProjectStatus]:
        from weighbridge.cli.serve import worker_options
        from weighbridge.projects import queue
        from weighbridge.worker import kick

        project = await the_project(app, workspace, number)
        ran = await kick(app.ctx, worker_options(app.settings), project)
        async with app.db.tx() as tx:
            runner = None if ran else await queue.runner(tx, project)
        return ran, runner, await _status_of(app, project)

    ran, runner, project_status = with_app(work)
    if as_json:
        status = {
            "project_id": project_status.project_id,
            "status": project_status.status,
            "locked": project_status.locked,
        }
        print_json({**status, "ran": ran, "held_by": runner and runner.worker})
        return
    if runner is not None:
        err().print(
            f"Another worker ({runner.worker}) runs the project. If it has stopped, the project is taken over at "
            f"{runner.lease_until:%H:%M:%S} UTC.", markup=False, soft_wrap=True,
        )  # fmt: skip
    elif not ran:
        err().print("There was no work to do.")
    _print_status(project_status, as_json=False)


async def the_project(app: App, workspace: str, number: str) -> Project:
    """The project with this number, or RequestRefused."""
    from weighbridge.model.errors import RequestRefused
    from weighbridge.projects.create import find_project
    from weighbridge.uploads.check_request import project_number, uuid_of

    wanted = project_number(number)
    project = await find_project(app.db, uuid_of(workspace, "workspace", "workspace"), wanted)
    if project is None:
        opens = f"weighbridge load FILE --pipeline keywords --project {wanted}"
        message = f"There is no project {wanted}. Its first file creates it: {opens}."
        raise RequestRefused(404, "unknown_project", message)
    return project


async def _status_of(app: App, project: Project) -> ProjectStatus:
    from weighbridge.postgres import roles
    from weighbridge.projects import queue

    async with app.db.tx(roles.TENANT, project.workspace_id) as tx:
        project_status = await queue.status(tx, project.id)
    assert project_status is not None
    return project_status


def _print_status(project_status: ProjectStatus, *, as_json: bool) -> None:
    from weighbridge.cli.projects.status import line

    if as_json:
        print_json(project_status.as_dict())
    else:
        sentence = f"Project {project_status.project_id} ({project_status.name}): {line(project_status)}."
        out().print(sentence, markup=False, soft_wrap=True)


async def _print_short(app: App, project: Project) -> None:
    from weighbridge.cli.projects.status import files_table, groups_table, remarks
    from weighbridge.postgres import roles
    from weighbridge.projects import groups as projects_groups
    from weighbridge.projects import queue

    project_key = projects_groups.ProjectKey(project.workspace_id, project.id)
    async with app.db.tx(roles.TENANT, project.workspace_id) as tx:
        project_status = await queue.status(tx, project.id)
        groups = await projects_groups.groups(tx, project_key, None, FIRST_GROUPS + 1)
        merges = await projects_groups.merges(tx, project_key)
    assert project_status is not None
    _print_status(project_status, as_json=False)
    if project_status.files:
        out().print()
        out().print(files_table(project_status))
    for sentence in remarks(project_status):
        out().print(sentence, markup=False, soft_wrap=True)
    if groups:
        out().print()
        out().print(groups_table(groups[:FIRST_GROUPS]))
    if len(groups) > FIRST_GROUPS:
        out().print(f"… and more: weighbridge projects groups {project.id}")
    if merges:
        merged = ", ".join(f"{token} is merged into {into}" for token, into in merges)
        out().print(f"\n{merged}.", markup=False, soft_wrap=True)


async def _print_all(app: App, project: Project) -> None:
    """Print one object. It is written to a file first: a transaction must not wait for a slow reader of stdout."""
    from weighbridge.postgres import roles

    with tempfile.TemporaryFile("w+", encoding="utf-8", dir=app.ctx.scratch) as file:
        async with app.db.tx(roles.TENANT, project.workspace_id) as tx:
            async for piece in _pieces(tx, project):
                file.write(piece)
        file.seek(0)
        shutil.copyfileobj(file, sys.stdout)


async def _pieces(tx: Tx, project: Project) -> AsyncIterator[str]:
    """The status, then the groups page by page: there may be a million keywords."""
    from weighbridge.projects import groups as projects_groups
    from weighbridge.projects import queue

    project_status = await queue.status(tx, project.id)
    assert project_status is not None
    head = json.dumps(project_status.as_dict(), indent=2, default=str, ensure_ascii=False)
    yield head.removesuffix("\n}") + ',\n  "groups": ['
    project_key = projects_groups.ProjectKey(project.workspace_id, project.id)
    after: projects_groups.GroupCursor | None = None
    while page := await projects_groups.groups(tx, project_key, after, _GROUPS_AT_ONCE):
        keywords = await projects_groups.members(tx, project_key, [group.id for group in page])
        for group in page:
            shown = {
                "name": group.name,
                "parent": group.parent,
                "keywords": keywords[group.id],
                "id": str(group.id),
                "confirmed": group.confirmed,
                "volume": group.volume,
            }
            yield ("," if after else "") + "\n    " + json.dumps(shown, ensure_ascii=False)
            assert group.parent is not None  # a group has keywords, and one of them is its parent
            after = projects_groups.GroupCursor(group.parent, group.id)
    yield "\n  ]\n}\n" if after else "]\n}\n"


def _job_status(text: str | None) -> str | None:
    from weighbridge.model.errors import did_you_mean

    known = ("queued", "running", "succeeded", "failed")
    if text is not None and text not in known:
        hint = did_you_mean(text, known) or "."
        raise typer.BadParameter(f"--status: expected one of {', '.join(known)}, got {text!r}{hint}")
    return text


def _brief(project: Project) -> dict[str, Any]:
    names = ("name", "created_at", "grouped_at", "groupings")
    return {"project_id": project.id, **{name: getattr(project, name) for name in names}}
