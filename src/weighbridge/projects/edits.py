"""People edit the groups of a project, while none of its files is being processed.

Every edit checks inside its own transaction whether it is allowed, and raises ProcessingLocked if not. Keywords that it
leaves without a group are grouped before it commits, so no reader sees a partly grouped project.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from weighbridge.model.errors import RequestRefused
from weighbridge.observe.redact import quote_input
from weighbridge.pipelines.keywords.tokens import normalised, tokens_of
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database, Tx
from weighbridge.projects import groups, queue
from weighbridge.projects.groups import Grouped, ProjectKey

LONGEST_NAME = 200
MOST_AT_ONCE = 1000  # tokens or keywords per edit


@dataclass(frozen=True)
class Editor:
    """The person who edits, and the project."""

    db: Database
    key: ProjectKey
    actor: str


async def merge_tokens(editor: Editor, words: Sequence[str], into: str) -> list[tuple[str, str]]:
    """Merge words into another word of this project; returns all merges."""
    (target,) = await _tokens([into], "into")
    given = await _tokens(words, "tokens")
    async with _edit(editor, "project.merge_tokens") as tx:
        target = await groups.merged_into(tx, editor.key, target)
        tokens = [token for token in dict.fromkeys(given) if token != target]
        if not tokens:
            message = f"tokens: expected words that are not merged into {quote_input(target)} yet."
            raise RequestRefused(422, "nothing_to_merge", message)
        changed = await groups.merge(tx, editor.key, tokens, target)
        await _regroup_tokens(tx, editor.key, changed)
        return await groups.merges(tx, editor.key)


async def unmerge_tokens(editor: Editor, words: Sequence[str]) -> list[tuple[str, str]]:
    """Undo the merges of these words; returns the remaining merges."""
    tokens = await _tokens(words, "tokens")
    async with _edit(editor, "project.unmerge_tokens") as tx:
        changed = await groups.unmerge(tx, editor.key, tokens)
        if not changed:
            raise RequestRefused(404, "unknown_merge", "None of these words is merged into another.")
        await _regroup_tokens(tx, editor.key, changed)
        return await groups.merges(tx, editor.key)


async def rename_group(editor: Editor, group: UUID, name: str | None) -> None:
    """Rename a group; without a name it shows its parent keyword again."""
    tidy = None if name is None else name_of(name)
    async with _edit(editor, "group.rename") as tx:
        _there(await groups.rename(tx, editor.key, group, tidy), group)


async def confirm_group(editor: Editor, group: UUID) -> None:
    """Keep a group as it is: automatic grouping no longer changes it."""
    async with _edit(editor, "group.confirm") as tx:
        await groups.refresh_changed(tx, editor.key)  # the current state is what is confirmed
        _there(await groups.confirm(tx, editor.key, group), group)


async def unconfirm_group(editor: Editor, group: UUID) -> None:
    """Return a group to automatic grouping, which may then move its keywords."""
    async with _edit(editor, "group.unconfirm") as tx:
        _there(await groups.unconfirm(tx, editor.key, group), group)
        await groups.ungroup_changed(tx, editor.key, group=group)
        await groups.group_ungrouped(tx, editor.key)


@dataclass(frozen=True)
class MoveTarget:
    """Where keywords go: an existing group, a new one, or back to automatic grouping."""

    group: UUID | None = None
    new_name: str | None = None


async def move_keywords(editor: Editor, keywords: Sequence[str], target: MoveTarget) -> UUID | None:
    """Move keywords into another group, where automatic grouping leaves them; returns that group."""
    wanted = list(dict.fromkeys(await asyncio.to_thread(normalised, _several(keywords, "keywords"))))
    new_name = None if target.new_name is None else name_of(target.new_name)
    async with _edit(editor, "group.move_keywords") as tx:
        missing = await groups.unknown(tx, editor.key, wanted)
        if missing:
            shown = ", ".join(quote_input(keyword) for keyword in missing[:5])
            raise RequestRefused(404, "unknown_keyword", f"The project has no keyword {shown}.")
        group = target.group
        if group is not None:
            _there(await groups.find(tx, editor.key, group) is not None, group)
        if new_name is not None:
            group = await groups.make(tx, editor.key, new_name)
        await groups.leave(tx, editor.key, wanted)
        if group is not None:
            await groups.enter(tx, editor.key, wanted, group)
        else:
            await groups.group_ungrouped(tx, editor.key)
        await groups.refresh_changed(tx, editor.key)
    return group


async def regroup(editor: Editor, *, by_hand: bool = False) -> Grouped:
    """Make all unconfirmed groups again. Keywords that were moved by hand stay, unless `by_hand` is set."""
    async with _edit(editor, "project.regroup") as tx:
        if by_hand:
            await groups.forget_manual_moves(tx, editor.key)
        await groups.ungroup_changed(tx, editor.key)
        return await groups.group_ungrouped(tx, editor.key)


@asynccontextmanager
async def _edit(editor: Editor, action: str) -> AsyncIterator[Tx]:
    """The transaction of one edit: it excludes other edits and new files until it commits."""
    async with editor.db.tx(roles.GROUP, editor.key.workspace_id) as tx:
        await queue.lock(tx, editor.key.project_id, editor.actor, action)
        await groups.prepare(tx)
        yield tx


async def _regroup_tokens(tx: Tx, key: ProjectKey, tokens: Sequence[str]) -> None:
    await groups.ungroup_changed(tx, key, tokens=tokens)
    await groups.group_ungrouped(tx, key)


async def _tokens(words: Sequence[str], field: str) -> list[str]:
    """Words as grouping sees them: lower case, singular. RequestRefused for anything but single words."""
    found = await asyncio.to_thread(tokens_of, _several(words, field))
    for word, token in zip(words, found, strict=True):
        if " " in token:
            message = f"{field}: expected single words, got {quote_input(word)}. Merge its words separately."
            raise RequestRefused(422, "invalid_token", message)
    return found


def _several(texts: Sequence[str], field: str) -> Sequence[str]:
    if not texts or len(texts) > MOST_AT_ONCE:
        message = f"{field}: expected 1 to {MOST_AT_ONCE}, got {len(texts)}."
        raise RequestRefused(422, "invalid_request", message)
    if not all(text.strip() for text in texts):
        raise RequestRefused(422, "invalid_request", f"{field}: expected words, got an empty one.")
    return texts


def name_of(name: str) -> str:
    """The name of a group or a project without surplus space; RequestRefused(422) if it is not valid."""
    tidy = " ".join(name.split())
    if not tidy or len(tidy) > LONGEST_NAME or not tidy.isprintable():
        message = f"name: expected 1 to {LONGEST_NAME} printable characters, got {quote_input(name)}."
        raise RequestRefused(422, "invalid_name", message)
    return tidy


def _there(found: bool, group: UUID) -> None:
    if not found:
        raise RequestRefused(404, "unknown_group", f"The project has no group {group}.")
