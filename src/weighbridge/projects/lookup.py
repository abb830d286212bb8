"""Queries that find keywords and groups by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all
from weighbridge.projects.groups import FIRST_GROUP, GroupCursor, Keyword, ProjectKey, get_keywords

_SQL = load(__name__)


@dataclass(frozen=True)
class Text:
    """The search text: as typed, and as keywords are spelled."""

    typed: str
    normalised: str


async def keywords_with(
    tx: Tx, key: ProjectKey, text: Text, group: UUID | None, after: str, limit: int
) -> list[Keyword]:
    """Keywords of a project or of one of its groups that contain a text, one page at a time."""
    params = key.params(text=text.normalised, group=group, after=after, limit=limit)
    page = await fetch_all(tx, _SQL["keywords_with"], params)
    return await get_keywords(tx, key, [keyword for (keyword,) in page])


async def groups_with(
    tx: Tx, key: ProjectKey, text: Text, after: GroupCursor | None, limit: int
) -> list[UUID]:
    """Groups whose parent or name contains a text, ordered by parent, one page at a time."""
    params = key.params(text=text.normalised, typed=text.typed, **vars(after or FIRST_GROUP), limit=limit)
    return [id_ for (id_,) in await fetch_all(tx, _SQL["groups_with"], params)]


async def groups_called(tx: Tx, key: ProjectKey, text: Text) -> list[UUID]:
    """The group with exactly this parent or name; two if there are several."""
    params = key.params(text=text.normalised, typed=text.typed)
    return [id_ for (id_,) in await fetch_all(tx, _SQL["groups_called"], params)]


async def group_names(tx: Tx, key: ProjectKey, groups: Collection[UUID]) -> dict[UUID, str]:
    """The names of some groups."""
    return dict(await fetch_all(tx, _SQL["group_names"], key.params(groups=list(groups))))
