"""`weighbridge projects groups`, `merge`, `confirm`, …: show and edit the keyword groups of a project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, Workspace
from weighbridge.cli.output import out, print_json
from weighbridge.cli.projects.manage import ProjectNumber, the_project
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from uuid import UUID

    from weighbridge.app import App
    from weighbridge.projects.edits import Editor
    from weighbridge.projects.groups import Grouped, KeywordGroup

T = TypeVar("T")

app = typer.Typer()

Words = Annotated[list[str], typer.Argument(help="Single words.", metavar="WORD", show_default=False)]
GroupId = Annotated[str, typer.Argument(help="The group's id.", metavar="GROUP", show_default=False)]


@app.command()
def groups(
    number: ProjectNumber,
    workspace: Workspace = DEFAULT_WORKSPACE,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of groups.", metavar="N", min=1, max=100_000)
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """List the groups of a project, ordered by parent keyword."""

    async def work(app: App) -> list[KeywordGroup]:
        from weighbridge.postgres import roles
        from weighbridge.projects import groups as projects_groups

        project = await the_project(app, workspace, number)
        project_key = projects_groups.ProjectKey(project.workspace_id, project.id)
        async with app.db.tx(roles.TENANT, project.workspace_id) as tx:
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
    into: Annotated[str, typer.Option("--into", help="The word to merge them into.", metavar="WORD")],
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Merge words: grouping treats them as the word given by --into."""

    async def work(editor: Editor) -> list[tuple[str, str]]:
        from weighbridge.projects.edits import merge_tokens

        return await merge_tokens(editor, words, into)

    _print_merges(_edited(workspace, number, work), as_json=as_json)


@app.command()
def unmerge(
    number: ProjectNumber, words: Words, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Undo the merge of words."""

    async def work(editor: Editor) -> list[tuple[str, str]]:
        from weighbridge.projects.edits import unmerge_tokens

        return await unmerge_tokens(editor, words)

    _print_merges(_edited(workspace, number, work), as_json=as_json)


@app.command()
def rename(
    number: ProjectNumber,
    group: GroupId,
    name: Annotated[
        str | None,
        typer.Argument(
            help="The new name. Without it the group is named after its parent keyword.", metavar="NAME"
        ),
    ] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Rename a group."""

    async def work(editor: Editor) -> KeywordGroup:
        from weighbridge.projects.edits import rename_group

        await rename_group(editor, _group_id(group), name)
        return await _group(editor, _group_id(group))

    _print_group(_edited(workspace, number, work), as_json=as_json)


@app.command()
def confirm(
    number: ProjectNumber, group: GroupId, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Confirm a group: automatic grouping no longer changes it."""

    async def work(editor: Editor) -> KeywordGroup:
        from weighbridge.projects.edits import confirm_group

        await confirm_group(editor, _group_id(group))
        return await _group(editor, _group_id(group))

    _print_group(_edited(workspace, number, work), as_json=as_json)


@app.command()
def unconfirm(
    number: ProjectNumber, group: GroupId, workspace: Workspace = DEFAULT_WORKSPACE, as_json: AsJson = False
) -> None:
    """Undo the confirmation: automatic grouping may change the group again."""

    async def work(editor: Editor) -> KeywordGroup | None:
        from weighbridge.projects.edits import unconfirm_group

        await unconfirm_group(editor, _group_id(group))
        return await _find_group(editor, _group_id(group))

    _print_group_if_any(_edited(workspace, number, work), as_json=as_json)


@app.command()
def move(
    number: ProjectNumber,
    keywords: Annotated[
        list[str], typer.Argument(help="Keywords of the project.", metavar="KEYWORD", show_default=False)
    ],
    group: Annotated[
        str | None, typer.Option("--group", help="The id of the target group.", metavar="ID")
    ] = None,
    new_group: Annotated[
        str | None,
        typer.Option("--new-group", help="Create a group with this name as the target.", metavar="NAME"),
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Return the keywords to automatic grouping.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Move keywords to another group. Automatic grouping leaves them there."""
    if (group is not None) + (new_group is not None) + back != 1:
        raise typer.BadParameter("expected one of --group, --new-group and --back")

    async def work(editor: Editor) -> KeywordGroup | None:
        from weighbridge.projects.edits import MoveTarget, move_keywords

        target = MoveTarget(group=_group_id(group) if group is not None else None, new_name=new_group)
        moved = await move_keywords(editor, keywords, target)
        return await _group(editor, moved) if moved else None

    _print_group_if_any(_edited(workspace, number, work), as_json=as_json)


@app.command()
def regroup(
    number: ProjectNumber,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Include keywords that were moved manually.")
    ] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
) -> None:
    """Group all keywords again, except confirmed groups and keywords that were moved manually."""

    async def work(editor: Editor) -> Grouped:
        from weighbridge.projects.edits import regroup

        return await regroup(editor, by_hand=by_hand)

    grouped = _edited(workspace, number, work)
    if as_json:
        print_json(vars(grouped))
    else:
        sentence = f"{counted(grouped.keywords, 'keyword was', 'keywords were')} moved to other groups."
        out().print(sentence if grouped.keywords else "No keyword changed its group.")


def _edited(workspace: str, number: str, work: Callable[[Editor], Awaitable[T]]) -> T:
    """Edit a project's groups; the recorded actor is "command line"."""

    async def inside(app: App) -> T:
        from weighbridge.projects.edits import Editor
        from weighbridge.projects.groups import ProjectKey

        project = await the_project(app, workspace, number)
        return await work(Editor(app.db, ProjectKey(project.workspace_id, project.id), actor="command line"))

    return with_app(inside)


async def _group(editor: Editor, group_id: UUID) -> KeywordGroup:
    from weighbridge.model.errors import RequestRefused

    group = await _find_group(editor, group_id)
    if group is None:
        raise RequestRefused(404, "unknown_group", f"The project has no group {group_id}.")
    return group


async def _find_group(editor: Editor, group_id: UUID) -> KeywordGroup | None:
    from weighbridge.postgres import roles
    from weighbridge.projects import groups as projects_groups

    async with editor.db.tx(roles.TENANT, editor.key.workspace_id) as tx:
        return await projects_groups.find(tx, editor.key, group_id)


def _group_id(text: str) -> UUID:
    from weighbridge.uploads.check_request import uuid_of

    return uuid_of(text, "group", "GROUP")


def _print_group(group: KeywordGroup, *, as_json: bool) -> None:
    if as_json:
        print_json(vars(group))
        return
    from weighbridge.cli.projects.status import groups_table

    out().print(groups_table([group]))


def _print_group_if_any(group: KeywordGroup | None, *, as_json: bool) -> None:
    """Print a group, or that it no longer exists because its keywords returned to automatic grouping."""
    if group is not None:
        _print_group(group, as_json=as_json)
    elif as_json:
        print_json(None)
    else:
        out().print("The keywords returned to automatic grouping.")


def _print_merges(merges: list[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        print_json([{"token": token, "into": into} for token, into in merges])
        return
    for token, into in merges:
        out().print(f"{token} is merged into {into}", markup=False, soft_wrap=True)
    if not merges:
        out().print("No words are merged.")
