"""`weighbridge projects groups`, `merge`, `confirm`, …: the groups of a project's keywords, and the hands on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from weighbridge.cli.projects.manage import ProjectNumber, the_project
from weighbridge.cli.running import DEFAULT_WORKSPACE, AsJson, Workspace, out, print_json, with_app

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.projects.edits import Editor
    from weighbridge.projects.groups import Group, Grouped

T = TypeVar("T")

app = typer.Typer()

Words = Annotated[list[str], typer.Argument(help="Single words.", metavar="WORD...", show_default=False)]
GroupId = Annotated[str, typer.Argument(help="The group's id.", metavar="GROUP", show_default=False)]


@app.command()
def groups(
    number: ProjectNumber,
    workspace: Workspace = DEFAULT_WORKSPACE,
    limit: Annotated[int, typer.Option("--limit", help="Maximum number of groups.", min=1, max=100_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """The groups of a project, in the order of their parents."""

    async def work(app: App) -> list[Group]:
        from weighbridge.projects import groups as projects_groups

        project = await the_project(app, workspace, number)
        project_key = projects_groups.ProjectKey(project.workspace_id, project.id)
        async with app.db.tx("weighbridge_tenant", project.workspace_id) as tx:
            return await projects_groups.groups(tx, project_key, None, limit)

    found = with_app(work)
    if as_json:
        print_json([vars(group) for group in found])
        return
    from weighbridge.cli.projects.status import groups_table

    out().print(groups_table(found))


@app.command()
def merge(
    number: ProjectNumber,
    words: Words,
    into: Annotated[str, typer.Option("--into", help="The word that they count as.", metavar="WORD")],
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Let words count as another in this project."""

    async def work(editor: Editor) -> list[tuple[str, str]]:
        from weighbridge.projects.edits import merge_tokens

        return await merge_tokens(editor, words, into)

    _print_merges(_edited(workspace, number, work), as_json=as_json)


@app.command()
def unmerge(
    number: ProjectNumber, words: Words, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Let words count as themselves again."""

    async def work(editor: Editor) -> list[tuple[str, str]]:
        from weighbridge.projects.edits import unmerge_tokens

        return await unmerge_tokens(editor, words)

    _print_merges(_edited(workspace, number, work), as_json=as_json)


@app.command()
def rename(
    number: ProjectNumber,
    group: GroupId,
    name: Annotated[
        str | None, typer.Argument(help="Without one it goes by its parent again.", metavar="[NAME]")
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Give a group a name."""

    async def work(editor: Editor) -> Group:
        from weighbridge.projects.edits import rename_group

        await rename_group(editor, _group_id(group), name)
        return await _group(editor, _group_id(group))

    _print_group(_edited(workspace, number, work), as_json=as_json)


@app.command()
def confirm(
    number: ProjectNumber, group: GroupId, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Keep a group as it is: from now on only hands change it."""

    async def work(editor: Editor) -> Group:
        from weighbridge.projects.edits import confirm_group

        await confirm_group(editor, _group_id(group))
        return await _group(editor, _group_id(group))

    _print_group(_edited(workspace, number, work), as_json=as_json)


@app.command()
def unconfirm(
    number: ProjectNumber, group: GroupId, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Give a group back to grouping."""

    async def work(editor: Editor) -> Group | None:
        from weighbridge.projects.edits import unconfirm_group

        await unconfirm_group(editor, _group_id(group))
        return await _left(editor, _group_id(group))

    _print_left(_edited(workspace, number, work), as_json=as_json)


@app.command()
def move(
    number: ProjectNumber,
    keywords: Annotated[
        list[str], typer.Argument(help="Keywords of the project.", metavar="KEYWORD...", show_default=False)
    ],
    group: Annotated[str | None, typer.Option("--group", help="Into this group.", metavar="ID")] = None,
    new_group: Annotated[
        str | None, typer.Option("--new-group", help="Into a new group of this name.", metavar="NAME")
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Back to where grouping puts them.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Put keywords into another group, where grouping leaves them."""
    if (group is not None) + (new_group is not None) + back != 1:
        raise typer.BadParameter("expected one of --group, --new-group and --back")

    async def work(editor: Editor) -> Group | None:
        from weighbridge.projects.edits import Target, move_keywords

        target = Target(group=_group_id(group) if group is not None else None, new_name=new_group)
        moved = await move_keywords(editor, keywords, target)
        return await _group(editor, moved) if moved else None

    _print_left(_edited(workspace, number, work), as_json=as_json)


@app.command()
def regroup(
    number: ProjectNumber,
    by_hand: Annotated[bool, typer.Option("--by-hand", help="Also what was moved by hand.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Put every keyword where grouping puts it now, but for what was confirmed or moved by hand."""

    async def work(editor: Editor) -> Grouped:
        from weighbridge.projects.edits import regroup

        return await regroup(editor, by_hand=by_hand)

    grouped = _edited(workspace, number, work)
    if as_json:
        print_json(vars(grouped))
    else:
        moved = "1 keyword was" if grouped.keywords == 1 else f"{grouped.keywords:,} keywords were"
        other = f"{moved} put into other groups."
        out().print(other if grouped.keywords else "Every keyword is where grouping puts it.")


def _edited(workspace: str, number: str, work: Callable[[Editor], Awaitable[T]]) -> T:
    """Lay hands on a project's groups, as the command line."""

    async def inside(app: App) -> T:
        from weighbridge.projects.edits import Editor
        from weighbridge.projects.groups import ProjectKey

        project = await the_project(app, workspace, number)
        return await work(Editor(app.db, ProjectKey(project.workspace_id, project.id), actor="command line"))

    return with_app(inside)


async def _group(editor: Editor, group_id: UUID) -> Group:
    from weighbridge.model.errors import RequestRefused

    group = await _left(editor, group_id)
    if group is None:
        raise RequestRefused(404, "unknown_group", f"The project has no group {group_id}.")
    return group


async def _left(editor: Editor, group_id: UUID) -> Group | None:
    from weighbridge.projects import groups as projects_groups

    async with editor.db.tx("weighbridge_tenant", editor.key.workspace_id) as tx:
        return await projects_groups.find(tx, editor.key, group_id)


def _group_id(text: str) -> UUID:
    from weighbridge.uploads.request import uuid_of

    return uuid_of(text, "group", "GROUP")


def _print_group(group: Group, *, as_json: bool) -> None:
    if as_json:
        print_json(vars(group))
        return
    from weighbridge.cli.projects.status import groups_table

    out().print(groups_table([group]))


def _print_left(group: Group | None, *, as_json: bool) -> None:
    """A group, or that there is none any more: its keywords are where grouping puts them."""
    if group is not None:
        _print_group(group, as_json=as_json)
    elif as_json:
        print_json(None)
    else:
        out().print("Back where grouping puts them.")


def _print_merges(merges: list[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        print_json([{"token": token, "into": into} for token, into in merges])
        return
    for token, into in merges:
        out().print(f"{token} counts as {into}", markup=False, soft_wrap=True)
    if not merges:
        out().print("No words are merged.")
