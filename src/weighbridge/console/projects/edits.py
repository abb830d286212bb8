"""Forms that edit a project's groups. While files are processed, edits are refused with a fixed message."""

from __future__ import annotations

import re
from typing import Annotated
from uuid import UUID

from fastapi import Form, Request
from fastapi.responses import Response
from pydantic import StringConstraints

from weighbridge.access.keys import ApiKey
from weighbridge.api.access import Key, TheApp
from weighbridge.api.projects.manage import ProjectId
from weighbridge.app import App
from weighbridge.console import layout
from weighbridge.console.projects.pages import text_of
from weighbridge.model.counts import counted
from weighbridge.model.errors import RequestRefused
from weighbridge.observe.redact import quote_input
from weighbridge.postgres import roles
from weighbridge.projects import edits, lookup
from weighbridge.projects.groups import ProjectKey

router = layout.router()

Text = Annotated[str, Form(max_length=20_000, pattern=layout.NO_NUL)]
Word = Annotated[str, StringConstraints(pattern=layout.NO_NUL)]


@router.post("/projects/{project_id}/tokens/merge")
@layout.page("operate")
async def merge(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, tokens: Text = "", into: Text = ""
) -> Response:
    words = _words(tokens)
    await edits.merge_tokens(_editor(app, key, project_id), words, into)
    subject = _subject(words)
    return await _back(
        request, project_id, "tokens", f"{subject} merged into {_short(into)}. The groups are updated."
    )


@router.post("/projects/{project_id}/tokens/unmerge")
@layout.page("operate")
async def unmerge(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, tokens: Text = ""
) -> Response:
    words = _words(tokens)
    await edits.unmerge_tokens(_editor(app, key, project_id), words)
    subject = _subject(words)
    return await _back(request, project_id, "tokens", f"{subject} no longer merged. The groups are updated.")


@router.post("/projects/{project_id}/groups/{group_id}/rename")
@layout.page("operate")
async def rename(
    request: Request,
    project_id: ProjectId,
    group_id: UUID,
    key: Key,
    app: TheApp,
    name: Text = "",
    back: Text = "",
) -> Response:
    """Without a name the group is named after its parent keyword."""
    await edits.rename_group(_editor(app, key, project_id), group_id, name if name.strip() else None)
    renamed = "The group is renamed." if name.strip() else "The group is named after its parent keyword."
    return await _back(request, project_id, "groups", renamed, back, group_id)


@router.post("/projects/{project_id}/groups/{group_id}/confirm")
@layout.page("operate")
async def confirm(
    request: Request, project_id: ProjectId, group_id: UUID, key: Key, app: TheApp, back: Text = ""
) -> Response:
    await edits.confirm_group(_editor(app, key, project_id), group_id)
    return await _back(
        request,
        project_id,
        "groups",
        "Confirmed: automatic grouping no longer changes this group.",
        back,
        group_id,
    )


@router.post("/projects/{project_id}/groups/{group_id}/unconfirm")
@layout.page("operate")
async def unconfirm(
    request: Request, project_id: ProjectId, group_id: UUID, key: Key, app: TheApp, back: Text = ""
) -> Response:
    await edits.unconfirm_group(_editor(app, key, project_id), group_id)
    return await _back(
        request, project_id, "groups", "Automatic grouping may change this group again.", back, group_id
    )


@router.post("/projects/{project_id}/keywords/move")
@layout.page("operate")
async def move(
    request: Request,
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    keyword: Annotated[list[Word] | None, Form()] = None,
    where: Annotated[str, Form(pattern="^(group|new|grouping)$")] = "group",
    name: Text = "",
    back: Text = "",
) -> Response:
    """Move selected keywords to a group by its name, to a new group, or back to automatic grouping."""
    if not keyword:
        raise RequestRefused(422, "nothing_chosen", "Select the keywords to move.")
    editor = _editor(app, key, project_id)
    match where:
        case "group":
            target = edits.MoveTarget(group=await _called(editor, name))
        case "new":
            target = edits.MoveTarget(new_name=name)
        case _:
            target = edits.MoveTarget()
    await edits.move_keywords(editor, keyword, target)
    moved = counted(len(keyword), "keyword")
    sentence = "to automatic grouping" if where == "grouping" else f"to the group {_short(name)}"
    return await _back(request, project_id, "keywords", f"{moved} moved {sentence}.", back)


@router.post("/projects/{project_id}/regroup")
@layout.page("operate")
async def regroup(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, by_hand: Annotated[bool, Form()] = False
) -> Response:
    done = await edits.regroup(_editor(app, key, project_id), by_hand=by_hand)
    moved = counted(done.keywords, "keyword was", "keywords were")
    sentence = f"Regrouped: {moved} moved." if done.keywords else "Regrouped: no keyword changed its group."
    return await _back(request, project_id, "groups", sentence)


async def _called(editor: edits.Editor, name: str) -> UUID:
    """The group with this name, parent keyword or id."""
    try:
        return UUID(name.strip())
    except ValueError:
        pass
    async with editor.db.tx(roles.TENANT, editor.key.workspace_id) as tx:
        found = await lookup.groups_called(tx, editor.key, await text_of(name)) if name.strip() else []
    if not found:
        message = f"No group is called {quote_input(name)}. Enter its name or parent keyword, or choose a new group."
        raise RequestRefused(404, "unknown_group", message)
    if len(found) > 1:
        message = f"Several groups are called {quote_input(name)}. Use the id of one of them: {found[0]} or {found[1]}."
        raise RequestRefused(409, "several_groups", message)
    return found[0]


def _words(text: str) -> list[str]:
    """Words between commas, semicolons or line ends."""
    found = [word.strip() for word in re.split(r"[,;\n\u060c\u3001\uff0c]", text)]
    return [word for word in found if word]


def _subject(words: list[str]) -> str:
    return f"{_short(words[0])} is" if len(words) == 1 else f"{len(words)} words are"


def _short(text: str) -> str:
    """A user's text in a message, shortened and isolated from the text direction around it."""
    text = " ".join(text.split())
    return f"\u2068{text if len(text) <= 60 else text[:57] + '…'}\u2069"


def _editor(app: App, key: ApiKey, project_id: int) -> edits.Editor:
    return edits.Editor(app.db, ProjectKey(key.workspace_id, project_id), actor=f"key {key.id}")


async def _back(
    request: Request, project_id: int, tab: str, sentence: str, where: str = "", group: UUID | None = None
) -> Response:
    """Redirect to the page of the list that contained the form."""
    project = f"/projects/{project_id}"
    path = where if where.startswith(f"{project}?") else f"{project}?tab={tab}"
    return await layout.back(request, layout.inside(path) + (f"#group-{group}" if group else ""), sentence)
