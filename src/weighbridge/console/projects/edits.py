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
from weighbridge.console import frame
from weighbridge.console.projects.pages import text_of
from weighbridge.model.errors import RequestRefused
from weighbridge.observe.redact import said_back
from weighbridge.projects import edits as steps
from weighbridge.projects import lookup
from weighbridge.projects.groups import ProjectKey

router = frame.router()

Text = Annotated[str, Form(max_length=20_000, pattern=frame.NO_NUL)]
Word = Annotated[str, StringConstraints(pattern=frame.NO_NUL)]


@router.post("/projects/{project_id}/tokens/merge")
@frame.page("operate")
async def merge(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, tokens: Text = "", into: Text = ""
) -> Response:
    words = _words(tokens)
    await steps.merge_tokens(_editor(app, key, project_id), words, into)
    said = f"{_short(words[0])} counts" if len(words) == 1 else f"{len(words)} words count"
    return await _back(request, project_id, "tokens", f"{said} as {_short(into)} now. The groups follow.")


@router.post("/projects/{project_id}/tokens/unmerge")
@frame.page("operate")
async def unmerge(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, tokens: Text = ""
) -> Response:
    words = _words(tokens)
    await steps.unmerge_tokens(_editor(app, key, project_id), words)
    said = (
        f"{_short(words[0])} counts as itself"
        if len(words) == 1
        else f"{len(words)} words count as themselves"
    )
    return await _back(request, project_id, "tokens", f"{said} again. The groups follow.")


@router.post("/projects/{project_id}/groups/{group_id}/rename")
@frame.page("operate")
async def rename(
    request: Request,
    project_id: ProjectId,
    group_id: UUID,
    key: Key,
    app: TheApp,
    name: Text = "",
    back: Text = "",
) -> Response:
    """Without a name it goes by its parent again."""
    await steps.rename_group(_editor(app, key, project_id), group_id, name if name.strip() else None)
    said = "It has its name." if name.strip() else "It goes by its parent again."
    return await _back(request, project_id, "groups", said, back, group_id)


@router.post("/projects/{project_id}/groups/{group_id}/confirm")
@frame.page("operate")
async def confirm(
    request: Request, project_id: ProjectId, group_id: UUID, key: Key, app: TheApp, back: Text = ""
) -> Response:
    await steps.confirm_group(_editor(app, key, project_id), group_id)
    return await _back(request, project_id, "groups", "Confirmed: only hands change it now.", back, group_id)


@router.post("/projects/{project_id}/groups/{group_id}/unconfirm")
@frame.page("operate")
async def unconfirm(
    request: Request, project_id: ProjectId, group_id: UUID, key: Key, app: TheApp, back: Text = ""
) -> Response:
    await steps.unconfirm_group(_editor(app, key, project_id), group_id)
    return await _back(request, project_id, "groups", "Grouping may change it again.", back, group_id)


@router.post("/projects/{project_id}/keywords/move")
@frame.page("operate")
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
    """Chosen keywords into a group by its name, into a new one, or to where grouping puts them."""
    if not keyword:
        raise RequestRefused(422, "nothing_chosen", "Choose the keywords that are to move.")
    editor = _editor(app, key, project_id)
    match where:
        case "group":
            target = steps.Target(group=await _called(editor, name))
        case "new":
            target = steps.Target(new_name=name)
        case _:
            target = steps.Target()
    await steps.move_keywords(editor, keyword, target)
    moved = "1 keyword is" if len(keyword) == 1 else f"{len(keyword):,} keywords are"
    said = "where grouping puts them" if where == "grouping" else f"in the group {_short(name)}"
    return await _back(request, project_id, "keywords", f"{moved} {said} now.", back)


@router.post("/projects/{project_id}/regroup")
@frame.page("operate")
async def regroup(
    request: Request, project_id: ProjectId, key: Key, app: TheApp, by_hand: Annotated[bool, Form()] = False
) -> Response:
    done = await steps.regroup(_editor(app, key, project_id), by_hand=by_hand)
    moved = "1 keyword was" if done.keywords == 1 else f"{done.keywords:,} keywords were"
    said = f"Grouped anew: {moved} put elsewhere." if done.keywords else "Grouped anew: nothing had to move."
    return await _back(request, project_id, "groups", said)


async def _called(editor: steps.Editor, name: str) -> UUID:
    """The group that is meant by a name, its parent, or its id."""
    try:
        return UUID(name.strip())
    except ValueError:
        pass
    async with editor.db.tx("weighbridge_tenant", editor.key.workspace_id) as tx:
        found = await lookup.groups_called(tx, editor.key, await text_of(name)) if name.strip() else []
    if not found:
        message = (
            f"No group is called {said_back(name)}. Expected the name or the parent of one, or a new group."
        )
        raise RequestRefused(404, "unknown_group", message)
    if len(found) > 1:
        message = (
            f"Several groups are called {said_back(name)}. Say which by its id: {found[0]} or {found[1]}."
        )
        raise RequestRefused(409, "several_groups", message)
    return found[0]


def _words(said: str) -> list[str]:
    """Words between commas, semicolons or line ends."""
    found = [word.strip() for word in re.split(r"[,;\n\u060c\u3001\uff0c]", said)]
    return [word for word in found if word]


def _short(said: str) -> str:
    """Somebody's words inside a sentence of ours, whichever way they are written."""
    said = " ".join(said.split())
    return f"\u2068{said if len(said) <= 60 else said[:57] + '…'}\u2069"


def _editor(app: App, key: ApiKey, project_id: int) -> steps.Editor:
    return steps.Editor(app.db, ProjectKey(key.workspace_id, project_id), actor=f"key {key.id}")


async def _back(
    request: Request, project_id: int, tab: str, said: str, where: str = "", group: UUID | None = None
) -> Response:
    """To the page of the list that the form was on."""
    project = f"/projects/{project_id}"
    path = where if where.startswith(f"{project}?") else f"{project}?tab={tab}"
    return await frame.back(request, frame.inside(path) + (f"#group-{group}" if group else ""), said)
