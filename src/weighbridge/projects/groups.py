"""Queries of keyword groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, allow, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)
WORK_MEMORY = "64MB"  # for sorts and hashes of any project; the rest spills to disk
STATEMENT_SECONDS = 3600  # grouping reads all keywords of a project


@dataclass(frozen=True)
class ProjectKey:
    """Identifies a project and its workspace."""

    workspace_id: UUID
    project_id: int

    def params(self, **more: Any) -> dict[str, Any]:
        return {"workspace": self.workspace_id, "project": self.project_id, **more}


@dataclass(frozen=True)
class Grouped:
    """The result of a grouping."""

    keywords: int  # keywords that had no group
    groups: int  # groups that contain them now


@dataclass(frozen=True)
class KeywordGroup:
    id: UUID
    name: str  # given by a person, or the spelling of its parent
    renamed: bool
    parent: str | None
    tokens: str | None  # None: made by a person
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
    """Set up a transaction for statements over all keywords of a project."""
    allow(tx, STATEMENT_SECONDS)
    await tx.execute(_SQL["prepare"], (WORK_MEMORY, f"{STATEMENT_SECONDS}s"))


async def group_ungrouped(tx: Tx, key: ProjectKey) -> Grouped:
    """Assign every ungrouped keyword to a group, and a parent to every changed group."""
    await tx.execute(_SQL["make_ungrouped"])
    keywords = (await tx.execute(_SQL["collect_ungrouped"], key.params())).rowcount
    await tx.execute(_SQL["analyze_ungrouped"])
    groups = (await tx.execute(_SQL["make_groups"], key.params())).rowcount
    await tx.execute(_SQL["join_groups"], key.params())
    await refresh_changed(tx, key)
    return Grouped(keywords, groups)


async def refresh_changed(tx: Tx, key: ProjectKey) -> None:
    """Among groups whose keywords changed: remove empty ones, and find the parents of the others."""
    await tx.execute(_SQL["drop_empty_groups"], key.params())
    await tx.execute(_SQL["find_parents"], key.params())


async def ungroup_changed(
    tx: Tx, key: ProjectKey, *, tokens: Sequence[str] | None = None, group: UUID | None = None
) -> None:
    """Ungroup keywords that would now be grouped differently: all, those with one of the tokens, or those of one group.

    Confirmed groups and keywords that were moved by hand do not change.
    """
    having = list(tokens) if tokens is not None else None
    await tx.execute(_SQL["ungroup_changed"], key.params(tokens=having, group=group))


async def forget_manual_moves(tx: Tx, key: ProjectKey) -> None:
    """Treat keywords that were moved by hand as automatic again, except in confirmed groups."""
    await tx.execute(_SQL["forget_manual_moves"], key.params())


async def merged_into(tx: Tx, key: ProjectKey, token: str) -> str:
    """The token that a token is merged into; itself if it is not merged."""
    row = await fetch_one(tx, _SQL["merged_into"], key.params(token=token))
    assert row is not None
    return str(row[0])


async def merge(tx: Tx, key: ProjectKey, tokens: Sequence[str], into: str) -> list[str]:
    """Merge tokens into another, which is not merged itself; returns those that changed."""
    rows = await fetch_all(tx, _SQL["merge_tokens"], key.params(tokens=list(tokens), into=into))
    return [row[0] for row in rows]


async def unmerge(tx: Tx, key: ProjectKey, tokens: Sequence[str]) -> list[str]:
    """Undo merges; returns the tokens that were merged."""
    return [row[0] for row in await fetch_all(tx, _SQL["unmerge_tokens"], key.params(tokens=list(tokens)))]


async def rename(tx: Tx, key: ProjectKey, group: UUID, name: str | None) -> bool:
    """Name a group; with None it shows its parent's name. False: there is no such group."""
    return await _one(tx, "rename_group", key.params(group=group, name=name))


async def confirm(tx: Tx, key: ProjectKey, group: UUID) -> bool:
    """Automatic grouping no longer changes this group. False: there is no such group."""
    return await _one(tx, "confirm_group", key.params(group=group))


async def unconfirm(tx: Tx, key: ProjectKey, group: UUID) -> bool:
    """Return a group to automatic grouping, with groups of the same tokens made meanwhile. False: no such group."""
    await tx.execute(_SQL["absorb_duplicate"], key.params(group=group))
    return await _one(tx, "unconfirm_group", key.params(group=group))


async def make(tx: Tx, key: ProjectKey, name: str) -> UUID:
    """A new empty group made by a person."""
    row = await fetch_one(tx, _SQL["make_group"], key.params(name=name))
    assert row is not None
    found: UUID = row[0]
    return found


async def unknown(tx: Tx, key: ProjectKey, keywords: Sequence[str]) -> list[str]:
    """The texts that are not keywords of the project."""
    rows = await fetch_all(tx, _SQL["unknown_keywords"], key.params(keywords=list(keywords)))
    return [row[0] for row in rows]


async def leave(tx: Tx, key: ProjectKey, keywords: Sequence[str]) -> None:
    """Remove keywords from their groups."""
    await tx.execute(_SQL["leave_groups"], key.params(keywords=list(keywords)))


async def enter(tx: Tx, key: ProjectKey, keywords: Sequence[str], group: UUID) -> None:
    """Move ungrouped keywords into a group by hand."""
    await tx.execute(_SQL["enter_group"], key.params(keywords=list(keywords), group=group))


@dataclass(frozen=True)
class GroupCursor:
    """Where a page of groups ended."""

    parent: str
    id: UUID


FIRST_GROUP = GroupCursor("", UUID(int=0))


async def groups(tx: Tx, key: ProjectKey, after: GroupCursor | None, limit: int) -> list[KeywordGroup]:
    """The groups of a project ordered by parent, one page at a time."""
    params = key.params(**vars(after or FIRST_GROUP), limit=limit, group=None)
    return [KeywordGroup(**row) for row in await fetch_named(tx, _SQL["groups"], params)]


async def find(tx: Tx, key: ProjectKey, group: UUID) -> KeywordGroup | None:
    found = await fetch_named(tx, _SQL["groups"], key.params(**vars(FIRST_GROUP), limit=0, group=group))
    return KeywordGroup(**found[0]) if found else None


async def members(tx: Tx, key: ProjectKey, groups: Sequence[UUID]) -> dict[UUID, list[str]]:
    """The keywords of some groups as spelled, in alphabetical order."""
    found: dict[UUID, list[str]] = {group: [] for group in groups}
    for group_id, keyword in await fetch_all(tx, _SQL["members"], key.params(groups=list(groups))):
        found[group_id].append(keyword)
    return found


async def keywords(tx: Tx, key: ProjectKey, group: UUID | None, after: str, limit: int) -> list[Keyword]:
    """Keywords of a project or of one of its groups, one page at a time."""
    query = _SQL["keyword_page"] if group is None else _SQL["keyword_page_of_group"]
    page = await fetch_all(tx, query, key.params(group=group, after=after, limit=limit))
    return await get_keywords(tx, key, [keyword for (keyword,) in page])


async def get_keywords(tx: Tx, key: ProjectKey, keywords: Sequence[str]) -> list[Keyword]:
    """Keywords by their normalised text, in alphabetical order."""
    params = key.params(keywords=list(keywords))
    return [Keyword(**row) for row in await fetch_named(tx, _SQL["get_keywords"], params)]


async def merges(tx: Tx, key: ProjectKey) -> list[tuple[str, str]]:
    """All merges: a token and the token that it is merged into."""
    return [(token, into) for token, into in await fetch_all(tx, _SQL["merges"], key.params())]


async def _one(tx: Tx, query: str, params: dict[str, Any]) -> bool:
    return (await tx.execute(_SQL[query], params)).rowcount == 1
