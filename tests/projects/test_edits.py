"""Edits of groups, and the edits that grouping keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.projects.conftest import Groups, Send, Work, keyword_file
from weighbridge.delivery.context import Context
from weighbridge.model.errors import NoProject, RequestRefused
from weighbridge.projects import edits
from weighbridge.projects import groups as projects_groups
from weighbridge.projects.edits import Editor, MoveTarget
from weighbridge.projects.groups import KeywordGroup, ProjectKey

SHOES = [("blue shoes", 10), ("shoes blue", 90), ("blue sneaker", 40), ("red hat", 5), ("red hats", 7)]
ReadGroups = Callable[..., Awaitable[Groups]]


@pytest.fixture
def editor(ctx: Context, workspace: UUID) -> Editor:
    return Editor(ctx.db, ProjectKey(workspace, 1), "test")


@pytest.fixture
async def loaded(send: Send, work: Work) -> None:
    await work(await send(keyword_file(SHOES)))


@pytest.fixture
def group_of(ctx: Context, workspace: UUID) -> Callable[[str], Awaitable[KeywordGroup]]:
    """The group of the parent."""

    async def group_of(parent: str) -> KeywordGroup:
        async with ctx.db.tx("weighbridge_tenant", workspace) as tx:
            found = await projects_groups.groups(tx, ProjectKey(workspace, 1), None, 100)
        return next(group for group in found if group.parent == parent)

    return group_of


@pytest.fixture(autouse=True)
def nothing_dangles(query: Any) -> Any:
    """After every test: each keyword is in one group, each group has keywords and its parent among them."""
    yield
    alone = query(
        "SELECT keyword_normalized FROM keywords k FULL JOIN group_keywords m"
        " USING (workspace_id, project_id, keyword_normalized)"
        " WHERE k.workspace_id IS NULL OR m.group_id IS NULL"
    )
    headless = query(
        "SELECT g.id FROM keyword_groups g LEFT JOIN group_keywords m ON m.group_id = g.id"
        " AND m.workspace_id = g.workspace_id AND m.project_id = g.project_id AND m.keyword_normalized = g.parent"
        " WHERE m.group_id IS NULL OR g.stale"
    )
    astray = query("SELECT m FROM group_keywords m WHERE group_id NOT IN (SELECT id FROM keyword_groups)")
    assert (alone, headless, astray) == ([], [], [])


@pytest.mark.usefixtures("loaded")
async def test_merged_tokens_bring_groups_together_and_unmerged_ones_apart(
    editor: Editor, groups: ReadGroups
) -> None:
    before = await groups()
    assert await edits.merge_tokens(editor, ["Sneakers"], "SHOES") == [("sneaker", "shoe")]
    assert await groups() == {
        "shoes blue": ("blue shoes", "blue sneaker", "shoes blue"),
        "red hats": ("red hat", "red hats"),
    }
    assert await edits.unmerge_tokens(editor, ["sneaker"]) == []
    assert await groups() == before


@pytest.mark.usefixtures("loaded")
async def test_a_token_follows_the_one_it_was_merged_into(editor: Editor, groups: ReadGroups) -> None:
    await edits.merge_tokens(editor, ["hat"], "sneaker")
    assert await edits.merge_tokens(editor, ["sneaker"], "shoe") == [("hat", "shoe"), ("sneaker", "shoe")]
    assert await edits.merge_tokens(editor, ["red"], "sneaker") == [
        ("hat", "shoe"), ("red", "shoe"), ("sneaker", "shoe"),
    ]  # fmt: skip
    assert await groups() == {
        "shoes blue": ("blue shoes", "blue sneaker", "shoes blue"),
        "red hats": ("red hat", "red hats"),  # both count as shoe now, once
    }


@pytest.mark.usefixtures("loaded")
async def test_later_files_see_the_merges(editor: Editor, send: Send, work: Work, groups: ReadGroups) -> None:
    await edits.merge_tokens(editor, ["sneaker"], "shoe")
    await work(await send(keyword_file([("sneakers blue", 500)]), "b.csv"))
    assert (await groups())["sneakers blue"] == ("blue shoes", "blue sneaker", "shoes blue", "sneakers blue")


@pytest.mark.usefixtures("loaded")
async def test_a_name_is_kept_and_its_removal_restores_the_name_of_the_parent(
    editor: Editor, group_of: Any, send: Send, work: Work
) -> None:
    group = await group_of("shoes blue")
    await edits.rename_group(editor, group.id, "  Blue   footwear ")
    await work(await send(keyword_file([("blue shoe", 1000)]), "b.csv"))
    renamed = await group_of("blue shoe")
    assert (renamed.id, renamed.name, renamed.renamed) == (group.id, "Blue footwear", True)
    await edits.rename_group(editor, group.id, None)
    assert (await group_of("blue shoe")).name == "blue shoe"


@pytest.mark.usefixtures("loaded")
async def test_a_confirmed_group_is_not_touched_by_files_merges_or_regrouping(
    editor: Editor, group_of: Any, send: Send, work: Work, groups: ReadGroups
) -> None:
    group = await group_of("shoes blue")
    await edits.confirm_group(editor, group.id)
    await work(await send(keyword_file([("blue shoe", 1000), ("blue shoes", 5000)]), "b.csv"))
    await edits.merge_tokens(editor, ["shoe"], "boot")
    await edits.regroup(editor, by_hand=True)
    kept = await group_of("shoes blue")
    assert (kept.id, kept.confirmed) == (group.id, True)
    assert await groups() == {
        "shoes blue": ("blue shoes", "shoes blue"),
        "blue shoe": ("blue shoe",),
        "blue sneaker": ("blue sneaker",),
        "red hats": ("red hat", "red hats"),
    }


@pytest.mark.usefixtures("loaded")
async def test_a_confirmation_uses_the_current_state_of_the_group(
    editor: Editor, group_of: Any, query: Any
) -> None:
    group = await group_of("shoes blue")
    query(
        "UPDATE keywords SET volume = 1000 WHERE keyword_normalized = 'blue shoes'"
    )  # and no grouping followed
    await edits.confirm_group(editor, group.id)
    assert (await group_of("blue shoes")).id == group.id
    query("UPDATE keywords SET volume = 2000 WHERE keyword_normalized = 'shoes blue'")
    await edits.regroup(editor)
    assert (await group_of("blue shoes")).id == group.id


@pytest.mark.usefixtures("loaded")
async def test_an_unconfirmed_group_absorbs_a_group_with_the_same_tokens(
    editor: Editor, group_of: Any, send: Send, work: Work, groups: ReadGroups
) -> None:
    group = await group_of("shoes blue")
    await edits.confirm_group(editor, group.id)
    await work(await send(keyword_file([("blue shoe", 1000)]), "b.csv"))
    await edits.unconfirm_group(editor, group.id)
    assert (await groups())["blue shoe"] == ("blue shoe", "blue shoes", "shoes blue")
    assert (await group_of("blue shoe")).id == group.id


@pytest.mark.usefixtures("loaded")
async def test_a_moved_keyword_stays_where_it_was_put(
    editor: Editor, group_of: Any, send: Send, work: Work, groups: ReadGroups
) -> None:
    hats = await group_of("red hats")
    assert (
        await edits.move_keywords(editor, ["Blue  Sneaker", "SHOES BLUE"], MoveTarget(group=hats.id))
        == hats.id
    )
    moved = {
        "shoes blue": ("blue sneaker", "red hat", "red hats", "shoes blue"),
        "blue shoes": ("blue shoes",),
    }
    assert await groups() == moved
    await edits.regroup(editor)
    await work(await send(keyword_file([("blue sneaker", 41)]), "b.csv"))
    assert await groups() == moved
    await edits.move_keywords(editor, ["blue sneaker"], MoveTarget())
    assert (await groups())["blue sneaker"] == ("blue sneaker",)
    await edits.regroup(editor, by_hand=True)
    assert (await groups())["shoes blue"] == ("blue shoes", "shoes blue")


@pytest.mark.usefixtures("loaded")
async def test_keywords_can_be_moved_into_a_new_group(
    editor: Editor, group_of: Any, groups: ReadGroups
) -> None:
    group = await edits.move_keywords(editor, ["red hat", "blue shoes"], MoveTarget(new_name="Gifts"))
    made = await group_of("blue shoes")
    assert (made.id, made.name, made.tokens, made.keywords, made.volume) == (group, "Gifts", None, 2, 15)
    assert (await groups())["red hats"] == ("red hats",)
    await edits.move_keywords(editor, ["red hat", "blue shoes"], MoveTarget())  # nothing is left of it
    assert {len(keywords) for keywords in (await groups()).values()} == {2, 1}


@pytest.mark.usefixtures("loaded")
async def test_regrouping_does_not_change_correct_groups(editor: Editor, query: Any) -> None:
    rows = "SELECT xmin, g::text FROM keyword_groups g UNION ALL SELECT xmin, m::text FROM group_keywords m"
    before = sorted(map(str, query(rows)))
    assert (await edits.regroup(editor)).keywords == 0
    assert sorted(map(str, query(rows))) == before


@pytest.mark.usefixtures("loaded")
async def test_a_deleted_keyword_leaves_its_group(editor: Editor, query: Any, groups: ReadGroups) -> None:
    query("DELETE FROM keywords WHERE keyword_normalized IN ('shoes blue', 'blue sneaker')")
    await edits.regroup(editor)
    assert await groups() == {"blue shoes": ("blue shoes",), "red hats": ("red hat", "red hats")}


@pytest.mark.usefixtures("loaded")
async def test_every_edit_is_audited(editor: Editor, query: Any, group_of: Any) -> None:
    await edits.confirm_group(editor, (await group_of("red hats")).id)
    with pytest.raises(RequestRefused):
        await edits.rename_group(editor, UUID(int=1), "x")
    assert query("SELECT actor, action, detail FROM weighbridge.audit_log WHERE action LIKE 'group.%'") == [
        ("test", "group.confirm", {"project_id": 1})
    ]


REFUSED: list[tuple[Callable[[Editor], Awaitable[object]], str, str]] = [
    (lambda e: edits.merge_tokens(e, ["Shoe"], "shoes"), "nothing_to_merge", "not merged into 'shoe' yet"),
    (lambda e: edits.merge_tokens(e, ["red shoes"], "hat"), "invalid_token", "expected single words, got 'red shoes'"),
    (lambda e: edits.merge_tokens(e, [], "hat"), "invalid_request", "tokens: expected 1 to 1000, got 0"),
    (lambda e: edits.merge_tokens(e, ["  "], "hat"), "invalid_request", "tokens: expected words, got an empty one"),
    (lambda e: edits.unmerge_tokens(e, ["hat"]), "unknown_merge", "None of these words is merged"),
    (lambda e: edits.rename_group(e, UUID(int=1), "x"), "unknown_group", f"no group {UUID(int=1)}"),
    (lambda e: edits.rename_group(e, UUID(int=1), " "), "invalid_name", "expected 1 to 200 printable characters"),
    (lambda e: edits.confirm_group(e, UUID(int=1)), "unknown_group", f"no group {UUID(int=1)}"),
    (lambda e: edits.unconfirm_group(e, UUID(int=1)), "unknown_group", f"no group {UUID(int=1)}"),
    (lambda e: edits.move_keywords(e, ["green tie"], MoveTarget()), "unknown_keyword", "no keyword 'green tie'"),
    (
        lambda e: edits.move_keywords(e, ["red hat"], MoveTarget(group=UUID(int=1))),
        "unknown_group",
        f"no group {UUID(int=1)}",
    ),
]  # fmt: skip


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("edit", "code", "sentence"), REFUSED)
async def test_an_impossible_edit_is_refused_with_its_reason_and_changes_nothing(
    editor: Editor, groups: ReadGroups, edit: Any, code: str, sentence: str
) -> None:
    before = await groups()
    with pytest.raises(RequestRefused) as refused:
        await edit(editor)
    assert refused.value.code == code
    assert sentence in refused.value.message
    assert await groups() == before


async def test_an_unknown_project_cannot_be_edited(editor: Editor) -> None:
    with pytest.raises(NoProject):
        await edits.regroup(editor)


@pytest.mark.usefixtures("loaded")
async def test_another_workspace_cannot_edit_it(ctx: Context) -> None:
    with pytest.raises(NoProject):
        await edits.regroup(Editor(ctx.db, ProjectKey(UUID(int=7), 1), "test"))
