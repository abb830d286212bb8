"""`/api/projects/{id}/groups`, `/keywords`, `/tokens`: read at any time; edit while no file is processed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from weighbridge.access.keys import ApiKey
from weighbridge.api import cursor
from weighbridge.api.access import SECURITY, Key, TheApp, needs
from weighbridge.api.error_responses import documented
from weighbridge.api.projects.manage import NOT_THERE, After, ProjectId, find_project
from weighbridge.api.projects.models import (
    KeywordGroupOut,
    KeywordGroupsOut,
    KeywordOut,
    KeywordsOut,
    MergeIn,
    MergeOut,
    MergesOut,
    MovedOut,
    MoveIn,
    RegroupedOut,
    RegroupIn,
    RenameIn,
    UnmergeIn,
)
from weighbridge.app import App
from weighbridge.model.errors import RequestRefused
from weighbridge.postgres import roles
from weighbridge.projects import edits, groups
from weighbridge.projects.groups import ProjectKey

router = APIRouter(tags=["groups"])

_NO_GROUP = "The project or group does not exist."
_LOCKED = "Files of the project are being processed: processing_locked."
_WRONG = "Not a number or UUID, or the body is invalid."
_CONFIRMATION: dict[str, Any] = {
    "responses": documented(_404=_NO_GROUP, _409=_LOCKED, _422="Not a number or UUID."),
    "openapi_extra": {"security": SECURITY},
}


@router.get(
    "/api/projects/{project_id}/groups",
    responses=documented(_404=NOT_THERE, _422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_groups(
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: After = None,
) -> KeywordGroupsOut:
    """List the project's groups, ordered by parent keyword."""
    behind = cursor.read("after", after, groups.GroupCursor, str, UUID)
    await find_project(app, key, project_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        found = await groups.groups(tx, ProjectKey(key.workspace_id, project_id), behind, limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.parent, last.id) if last else None
    return KeywordGroupsOut(groups=[KeywordGroupOut(**vars(group)) for group in page], next=more)


@router.get(
    "/api/projects/{project_id}/groups/{group_id}",
    responses=documented(_404=_NO_GROUP, _422="Not a number or UUID."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def get_group(project_id: ProjectId, group_id: UUID, key: Key, app: TheApp) -> KeywordGroupOut:
    """One group. Its keywords: `/api/projects/{project_id}/keywords?group_id=…`."""
    await find_project(app, key, project_id)
    return await _group(app, key, project_id, group_id)


@router.get(
    "/api/projects/{project_id}/keywords",
    responses=documented(_404=_NO_GROUP, _422="A parameter is invalid."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_keywords(
    project_id: ProjectId,
    key: Key,
    app: TheApp,
    group_id: Annotated[UUID | None, Query(description="Only keywords of this group.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: After = None,
) -> KeywordsOut:
    """List the project's keywords in alphabetical order."""
    behind = cursor.read("after", after, str, str) or ""
    await find_project(app, key, project_id)
    if group_id is not None:
        await _group(app, key, project_id, group_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        project_key = ProjectKey(key.workspace_id, project_id)
        found = await groups.keywords(tx, project_key, group_id, behind, limit + 1)
    page, last = cursor.page(found, limit)
    more = cursor.write(last.keyword_normalized) if last else None
    return KeywordsOut(keywords=[KeywordOut(**vars(keyword)) for keyword in page], next=more)


@router.get(
    "/api/projects/{project_id}/tokens/merges",
    responses=documented(_404=NOT_THERE, _422="Not the number of a project."),
    openapi_extra={"security": SECURITY},
)
@needs("read")
async def list_merges(project_id: ProjectId, key: Key, app: TheApp) -> MergesOut:
    """List the merged words."""
    await find_project(app, key, project_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        return _merges(await groups.merges(tx, ProjectKey(key.workspace_id, project_id)))


@router.post(
    "/api/projects/{project_id}/tokens/merge",
    responses=documented(_404=NOT_THERE, _409=_LOCKED, _422=_WRONG),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def merge_tokens(project_id: ProjectId, body: MergeIn, key: Key, app: TheApp) -> MergesOut:
    """Merge words into another word of this project. The action is audited."""
    return _merges(await edits.merge_tokens(_editor(app, key, project_id), body.tokens, body.into))


@router.post(
    "/api/projects/{project_id}/tokens/unmerge",
    responses=documented(
        _404="The project does not exist, or none of the words is merged.", _409=_LOCKED, _422=_WRONG
    ),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def unmerge_tokens(project_id: ProjectId, body: UnmergeIn, key: Key, app: TheApp) -> MergesOut:
    """Undo the merge of words. The action is audited."""
    return _merges(await edits.unmerge_tokens(_editor(app, key, project_id), body.tokens))


@router.patch(
    "/api/projects/{project_id}/groups/{group_id}",
    responses=documented(_404=_NO_GROUP, _409=_LOCKED, _422=_WRONG),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def rename_group(
    project_id: ProjectId, group_id: UUID, body: RenameIn, key: Key, app: TheApp
) -> KeywordGroupOut:
    """Rename a group; null names it after its parent keyword. The action is audited."""
    await edits.rename_group(_editor(app, key, project_id), group_id, body.name)
    return await _group(app, key, project_id, group_id)


@router.post("/api/projects/{project_id}/groups/{group_id}/confirm", **_CONFIRMATION)
@needs("operate")
async def confirm_group(project_id: ProjectId, group_id: UUID, key: Key, app: TheApp) -> KeywordGroupOut:
    """Confirm a group: automatic grouping no longer changes it. The action is audited."""
    await edits.confirm_group(_editor(app, key, project_id), group_id)
    return await _group(app, key, project_id, group_id)


@router.post("/api/projects/{project_id}/groups/{group_id}/unconfirm", **_CONFIRMATION)
@needs("operate")
async def unconfirm_group(project_id: ProjectId, group_id: UUID, key: Key, app: TheApp) -> MovedOut:
    """Undo the confirmation of a group; null if grouping has moved all its keywords. The action is audited."""
    await edits.unconfirm_group(_editor(app, key, project_id), group_id)
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        left = await groups.find(tx, ProjectKey(key.workspace_id, project_id), group_id)
    return MovedOut(group=KeywordGroupOut(**vars(left)) if left else None)


@router.post(
    "/api/projects/{project_id}/keywords/move",
    responses=documented(_404="The project, group or keyword does not exist.", _409=_LOCKED, _422=_WRONG),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def move_keywords(project_id: ProjectId, body: MoveIn, key: Key, app: TheApp) -> MovedOut:
    """Move keywords to another group, a new group, or back to automatic grouping. The action is audited."""
    if body.group_id is not None and body.new_group is not None:
        message = "body: expected group_id or new_group, got both."
        raise RequestRefused(422, "invalid_request", message)
    target = edits.MoveTarget(group=body.group_id, new_name=body.new_group)
    moved = await edits.move_keywords(_editor(app, key, project_id), body.keywords, target)
    return MovedOut(group=await _group(app, key, project_id, moved) if moved else None)


@router.post(
    "/api/projects/{project_id}/regroup",
    responses=documented(_404=NOT_THERE, _409=_LOCKED, _422=_WRONG),
    openapi_extra={"security": SECURITY},
)
@needs("operate")
async def regroup(
    project_id: ProjectId, key: Key, app: TheApp, body: RegroupIn | None = None
) -> RegroupedOut:
    """Group all keywords again, except confirmed groups and manually moved keywords. The action is audited."""
    by_hand = body is not None and body.by_hand
    return RegroupedOut(**asdict(await edits.regroup(_editor(app, key, project_id), by_hand=by_hand)))


def _editor(app: App, key: ApiKey, project_id: int) -> edits.Editor:
    return edits.Editor(app.db, ProjectKey(key.workspace_id, project_id), actor=f"key {key.id}")


async def _group(app: App, key: ApiKey, project_id: int, group_id: UUID) -> KeywordGroupOut:
    async with app.db.tx(roles.TENANT, key.workspace_id) as tx:
        group = await groups.find(tx, ProjectKey(key.workspace_id, project_id), group_id)
    if group is None:
        raise RequestRefused(404, "unknown_group", f"The project has no group {group_id}.")
    return KeywordGroupOut(**vars(group))


def _merges(found: list[tuple[str, str]]) -> MergesOut:
    return MergesOut(merges=[MergeOut(token=token, into=into) for token, into in found])
