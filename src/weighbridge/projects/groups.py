"""Queries of keyword groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from weighbridge.postgres.pool import Tx, fetch_all, fetch_named, fetch_one
from weighbridge.postgres.queries import load

_SQL = load(__name__)
WORK_MEMORY = "64MB"  # for sorts and hashes, whatever the size of the project; the rest goes to disk
PATIENCE = "1h"  # for one statement over all keywords of a project


@dataclass(frozen=True)
class ProjectKey:
    """Which project, of which workspace."""

    workspace_id: UUID
    project_id: int

    def params(self, **more: Any) -> dict[str, Any]:
        return {"workspace": self.workspace_id, "project": self.project_id, **more}


@dataclass(frozen=True)
class Grouped:
    """What a grouping did."""

    keywords: int  # that had no group
    groups: int  # that they are in now


@dataclass(frozen=True)
class Group:
    id: UUID
    name: str  # given by hand, or as its parent is spelled
    renamed: bool
    parent: str | None
    tokens: str | None  # None: made by hand
    confirmed: bool
    created_at: datetime
    keywords: int
    volume: int


@dataclass(frozen=True)
class Keyword:
    keyword_normalized: str
    keyword: str
    tokens: str
    volume: int | None
    difficulty: Decimal | None
    cpc: Decimal | None
    clicks: int | None
    impressions: int | None
    group_id: UUID | None
    by_hand: bool
    upload_id: UUID
    line: int


async def prepare(tx: Tx) -> None:
    """Begin a transaction that groups: statements over all keywords of a project."""
    await tx.execute(_SQL["prepare"], (WORK_MEMORY, PATIENCE))


async def group(tx: Tx, key: ProjectKey) -> Grouped:
    """Give every ungrouped keyword its group, and every changed group its parent."""
    await tx.execute(_SQL["make_ungrouped"])
    keywords = (await tx.execute(_SQL["collect_ungrouped"], key.params())).rowcount
    await tx.execute(_SQL["analyze_ungrouped"])
    groups = (await tx.execute(_SQL["make_groups"], key.params())).rowcount
    await tx.execute(_SQL["join_groups"], key.params())
    await settle(tx, key)
    return Grouped(keywords, groups)


async def settle(tx: Tx, key: ProjectKey) -> None:
    """Of the groups whose keywords changed: remove what is empty, and find the parents of the others."""
    await tx.execute(_SQL["drop_empty_groups"], key.params())
    await tx.execute(_SQL["find_parents"], key.params())


async def ungroup_changed(
    tx: Tx, key: ProjectKey, *, tokens: Sequence[str] | None = None, group: UUID | None = None
) -> None:
    """Take out keywords that grouping would put elsewhere now: all, those with one of the tokens, those of one group.

    Confirmed groups and keywords that were moved by hand are left alone.
    """
    having = list(tokens) if tokens is not None else None
    await tx.execute(_SQL["ungroup_changed"], key.params(tokens=having, group=group))


async def forget_hands(tx: Tx, key: ProjectKey) -> None:
    """What was moved by hand is as if it were not, but for confirmed groups."""
    await tx.execute(_SQL["forget_hands"], key.params())


async def merged_into(tx: Tx, key: ProjectKey, token: str) -> str:
    """What a token counts as; itself, if it is not merged."""
    row = await fetch_one(tx, _SQL["merged_into"], key.params(token=token))
    assert row is not None
    return str(row[0])


async def merge(tx: Tx, key: ProjectKey, tokens: Sequence[str], into: str) -> list[str]:
    """Let tokens count as another, which is not merged itself; gives those that did not before."""
    rows = await fetch_all(tx, _SQL["merge_tokens"], key.params(tokens=list(tokens), into=into))
    return [row[0] for row in rows]


async def unmerge(tx: Tx, key: ProjectKey, tokens: Sequence[str]) -> list[str]:
    """Let tokens count as themselves again; gives those that did not."""
    return [row[0] for row in await fetch_all(tx, _SQL["unmerge_tokens"], key.params(tokens=list(tokens)))]


async def rename(tx: Tx, key: ProjectKey, group: UUID, name: str | None) -> bool:
    """Give a group a name, or none, so that it goes by its parent. False: there is no such group."""
    return await _one(tx, "rename_group", key.params(group=group, name=name))


async def confirm(tx: Tx, key: ProjectKey, group: UUID) -> bool:
    """From now on only hands change it. False: there is no such group."""
    return await _one(tx, "confirm_group", key.params(group=group))


async def unconfirm(tx: Tx, key: ProjectKey, group: UUID) -> bool:
    """Give a group back to grouping, with what came up beside it meanwhile. False: there is no such group."""
    await tx.execute(_SQL["absorb_twin"], key.params(group=group))
    return await _one(tx, "unconfirm_group", key.params(group=group))


async def make(tx: Tx, key: ProjectKey, name: str) -> UUID:
    """A group of one's own, to move keywords into."""
    row = await fetch_one(tx, _SQL["make_group"], key.params(name=name))
    assert row is not None
    found: UUID = row[0]
    return found


async def unknown(tx: Tx, key: ProjectKey, keywords: Sequence[str]) -> list[str]:
    """Those of these that are no keywords of the project."""
    rows = await fetch_all(tx, _SQL["unknown_keywords"], key.params(keywords=list(keywords)))
    return [row[0] for row in rows]


async def leave(tx: Tx, key: ProjectKey, keywords: Sequence[str]) -> None:
    """Take keywords out of their groups."""
    await tx.execute(_SQL["leave_groups"], key.params(keywords=list(keywords)))


async def enter(tx: Tx, key: ProjectKey, keywords: Sequence[str], group: UUID) -> None:
    """Put keywords that are in no group into one, by hand."""
    await tx.execute(_SQL["enter_group"], key.params(keywords=list(keywords), group=group))


@dataclass(frozen=True)
class GroupCursor:
    """Where a page of groups ended."""

    parent: str
    id: UUID


_FIRST = GroupCursor("", UUID(int=0))


async def groups(tx: Tx, key: ProjectKey, after: GroupCursor | None, limit: int) -> list[Group]:
    """The groups of a project in the order of their parents, a page at a time."""
    params = key.params(**vars(after or _FIRST), limit=limit)
    return [Group(**row) for row in await fetch_named(tx, _SQL["groups"], params)]


async def find(tx: Tx, key: ProjectKey, group: UUID) -> Group | None:
    found = await fetch_named(tx, _SQL["group"], key.params(group=group))
    return Group(**found[0]) if found else None


async def members(tx: Tx, key: ProjectKey, groups: Sequence[UUID]) -> dict[UUID, list[str]]:
    """The keywords of some groups, as they are spelled, in the order of the alphabet."""
    found: dict[UUID, list[str]] = {group: [] for group in groups}
    for group_id, keyword in await fetch_all(tx, _SQL["members"], key.params(groups=list(groups))):
        found[group_id].append(keyword)
    return found


async def keywords(tx: Tx, key: ProjectKey, group: UUID | None, after: str, limit: int) -> list[Keyword]:
    """Keywords of a project, or of one group of it, a page at a time."""
    query = _SQL["keywords"] if group is None else _SQL["keywords_of_group"]
    params = key.params(group=group, after=after, limit=limit)
    return [Keyword(**row) for row in await fetch_named(tx, query, params)]


async def merges(tx: Tx, key: ProjectKey) -> list[tuple[str, str]]:
    """Which token counts as which."""
    return [(token, into) for token, into in await fetch_all(tx, _SQL["merges"], key.params())]


async def _one(tx: Tx, query: str, params: dict[str, Any]) -> bool:
    return (await tx.execute(_SQL[query], params)).rowcount == 1
