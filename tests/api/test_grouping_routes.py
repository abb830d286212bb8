"""Groups over HTTP: read at any time; edit while no file is processed."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from .conftest import Keywords, Query

SHOES = (
    "Red Shoes,500", "shoe red,20", "the red shoe,100", "blue shoes,70", "sneakers,900", "red sneaker,40", "boot,1",
)  # fmt: skip
LOCKED = {
    "error": "processing_locked",
    "message": "CSV processing in progress. Grouping is temporarily locked until import completes.",
    "project_id": 7,
}
EDITS: dict[str, tuple[str, str, Any]] = {  # method, path, body
    "merge": ("POST", "/tokens/merge", {"tokens": ["sneaker"], "into": "shoe"}),
    "unmerge": ("POST", "/tokens/unmerge", {"tokens": ["trainer"]}),
    "rename": ("PATCH", "/groups/{group}", {"name": "Other"}),
    "confirm": ("POST", "/groups/{group}/confirm", None),
    "unconfirm": ("POST", "/groups/{group}/unconfirm", None),
    "move into a group": ("POST", "/keywords/move", {"keywords": ["boot"], "group_id": "{group}"}),
    "move into a new group": ("POST", "/keywords/move", {"keywords": ["boot"], "new_group": "Boots"}),
    "move back": ("POST", "/keywords/move", {"keywords": ["boot"], "group_id": None}),
    "regroup": ("POST", "/regroup", {"by_hand": True}),
}


@pytest.fixture
async def shoes(keywords: Keywords) -> Keywords:
    """A project with groups, one of them confirmed, and a merge."""
    await keywords.load(*SHOES, "trainers,3")
    await keywords.post("/tokens/merge", {"tokens": ["trainers"], "into": "boot"})
    await keywords.post(f"/groups/{await named(keywords, 'blue shoes')}/confirm")
    return keywords


async def named(project: Keywords, name: str) -> str:
    """The id of the group of that name."""
    [id_] = [group["id"] for group in (await project.ask("/groups"))["groups"] if group["name"] == name]
    return str(id_)


async def grouped(project: Keywords) -> dict[str, list[str]]:
    """The keywords of each group, by its name, in order."""
    found = (await project.ask("/groups"))["groups"]
    return {group["name"]: await members(project, group["id"]) for group in found}


async def members(project: Keywords, group: str) -> list[str]:
    page = await project.ask("/keywords", group_id=group)
    return [each["keyword"] for each in page["keywords"]]


async def edit(project: Keywords, name: str, group: str) -> Any:
    method, path, body = EDITS[name]
    if body and body.get("group_id"):
        body = {**body, "group_id": group}
    url = f"{project.url}{path.format(group=group)}"
    return await project.client.request(method, url, headers=project.key, json=body)


# Reading


async def test_groups_are_paged_in_the_order_of_their_parents(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    seen, after = [], {}
    for expected in (2, 2, 1):
        page = await keywords.ask("/groups", limit=2, **after)
        assert len(page["groups"]) == expected
        seen += page["groups"]
        after = {"after": page["next"]}
    assert page["next"] is None
    assert [group["parent"] for group in seen] == [
        "blue shoes",
        "boot",
        "red shoes",
        "red sneaker",
        "sneakers",
    ]
    red = seen[2]
    assert list(red) == [
        "id", "name", "renamed", "parent", "tokens", "confirmed", "created_at", "keywords", "volume",
    ]  # fmt: skip
    assert (red["name"], red["renamed"], red["tokens"]) == ("Red Shoes", False, "red shoe")
    assert (red["confirmed"], red["keywords"], red["volume"]) == (False, 3, 620)
    assert await keywords.ask(f"/groups/{red['id']}") == red


async def test_keywords_are_paged_in_alphabetical_order(keywords: Keywords) -> None:
    sent = await keywords.load(*SHOES)
    seen, after = [], {}
    for expected in (4, 3):
        page = await keywords.ask("/keywords", limit=4, **after)
        assert len(page["keywords"]) == expected
        seen += page["keywords"]
        after = {"after": page["next"]}
    assert page["next"] is None
    assert [each["keyword"] for each in seen] == [
        "blue shoes", "boot", "Red Shoes", "red sneaker", "shoe red", "sneakers", "the red shoe",
    ]  # fmt: skip
    red = await named(keywords, "Red Shoes")
    assert seen[2] == {
        "keyword_normalized": "red shoes", "keyword": "Red Shoes", "tokens": "red shoe", "volume": 500,
        "difficulty": None, "cpc": None, "clicks": None, "impressions": None, "group_id": red, "by_hand": False,
        "upload_id": str(sent), "line": 2,
    }  # fmt: skip
    assert await members(keywords, red) == ["Red Shoes", "shoe red", "the red shoe"]


async def test_reading_is_never_locked(shoes: Keywords) -> None:
    group = await named(shoes, "Red Shoes")
    paths = ("", "/groups", f"/groups/{group}", "/keywords", "/tokens/merges", "/jobs")
    await shoes.send("green shoe,1", name="b.csv")
    for path in paths:
        assert await shoes.ask(path)
    assert (await shoes.status())["locked"]


async def test_a_group_of_another_project_is_not_found(shoes: Keywords) -> None:
    group = await named(shoes, "Red Shoes")
    other = Keywords(shoes.app, shoes.client, shoes.key, project=8)
    await other.load("boot,1")
    unknown = {"error": "unknown_group", "message": f"The project has no group {group}."}
    for path in (f"/groups/{group}", f"/keywords?group_id={group}"):
        answer = await shoes.client.get(f"{other.url}{path}", headers=shoes.key)
        assert (answer.status_code, answer.json()) == (404, unknown)
    for name in ("rename", "confirm", "unconfirm", "move into a group"):
        answer = await edit(other, name, group)
        assert (answer.status_code, answer.json()) == (404, unknown), name
    assert "Red Shoes" in await grouped(shoes)


# The lock


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_is_refused_until_the_files_are_processed(
    shoes: Keywords, query: Query, name: str
) -> None:
    group = await named(shoes, "Red Shoes")
    before = await grouped(shoes), await shoes.ask("/tokens/merges"), await shoes.ask("/groups")
    audited = query("SELECT count(*) FROM weighbridge.audit_log WHERE action ~ '^(group|project)[.]'")
    await shoes.send("green shoe,1", name="b.csv")
    answer = await edit(shoes, name, group)
    assert (answer.status_code, answer.json()) == (409, LOCKED)
    assert type(answer.json()["project_id"]) is int
    assert (await grouped(shoes), await shoes.ask("/tokens/merges"), await shoes.ask("/groups")) == before
    assert query("SELECT count(*) FROM weighbridge.audit_log WHERE action ~ '^(group|project)[.]'") == audited
    await shoes.work()
    assert (await edit(shoes, name, group)).status_code == 200
    [(actor,)] = query("SELECT actor FROM weighbridge.audit_log ORDER BY id DESC LIMIT 1")
    assert actor.startswith("key ")


async def test_a_live_lease_is_enough_to_lock_the_project(shoes: Keywords, query: Query) -> None:
    group = await named(shoes, "Red Shoes")
    query(
        "INSERT INTO weighbridge.attempts (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)"
        " SELECT 'projects', key, workspace_id, 'another', weighbridge.now(), weighbridge.now(),"
        " weighbridge.now() + interval '1 minute' FROM projects WHERE id = 7"
    )
    answer = await edit(shoes, "confirm", group)
    assert (answer.status_code, answer.json()) == (409, LOCKED)


# Edits


async def test_tokens_are_merged_and_unmerged(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    before = await grouped(keywords)
    merged = await keywords.post("/tokens/merge", {"tokens": ["Sneakers", "shoes"], "into": "shoe"})
    assert (merged.status_code, merged.json()) == (200, {"merges": [{"token": "sneaker", "into": "shoe"}]})
    assert await keywords.ask("/tokens/merges") == merged.json()
    assert await grouped(keywords) == {
        "blue shoes": ["blue shoes"],
        "boot": ["boot"],
        "Red Shoes": ["Red Shoes", "red sneaker", "shoe red", "the red shoe"],
        "sneakers": ["sneakers"],
    }
    unmerged = await keywords.post("/tokens/unmerge", {"tokens": ["sneaker"]})
    assert (unmerged.status_code, unmerged.json()) == (200, {"merges": []})
    assert await grouped(keywords) == before


async def test_a_renamed_group_can_get_the_name_of_its_parent_again(shoes: Keywords) -> None:
    url = f"{shoes.url}/groups/{await named(shoes, 'Red Shoes')}"
    renamed = await shoes.client.patch(url, headers=shoes.key, json={"name": " All  that is red "})
    assert renamed.status_code == 200
    assert (renamed.json()["name"], renamed.json()["renamed"]) == ("All that is red", True)
    assert renamed.json()["parent"] == "red shoes"
    again = await shoes.client.patch(url, headers=shoes.key, json={"name": None})
    assert (again.json()["name"], again.json()["renamed"]) == ("Red Shoes", False)


async def test_a_confirmed_group_does_not_change(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    red = await named(keywords, "Red Shoes")
    confirmed = await keywords.post(f"/groups/{red}/confirm")
    assert (confirmed.status_code, confirmed.json()["confirmed"]) == (200, True)
    await keywords.load("red shoe,1000", name="b.csv")
    assert await members(keywords, red) == ["Red Shoes", "shoe red", "the red shoe"]
    assert await members(keywords, await named(keywords, "red shoe")) == ["red shoe"]
    given_back = await keywords.post(f"/groups/{red}/unconfirm")
    group = given_back.json()["group"]
    assert (given_back.status_code, group["confirmed"]) == (200, False)
    assert (group["name"], group["keywords"]) == ("red shoe", 4)


async def test_a_group_that_is_unconfirmed_after_a_merge_may_disappear(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    red = await named(keywords, "Red Shoes")
    await keywords.post(f"/groups/{red}/confirm")
    await keywords.post("/tokens/merge", {"tokens": ["red"], "into": "crimson"})
    given_back = await keywords.post(f"/groups/{red}/unconfirm")
    assert (given_back.status_code, given_back.json()) == (200, {"group": None})
    assert (await keywords.post(f"/groups/{red}/unconfirm")).status_code == 404


async def test_keywords_are_moved_and_moved_back(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    before, red = await grouped(keywords), await named(keywords, "Red Shoes")
    moved = await keywords.post("/keywords/move", {"keywords": [" BOOT ", "sneakers"], "group_id": red})
    assert moved.status_code == 200
    assert (moved.json()["group"]["id"], moved.json()["group"]["keywords"]) == (red, 5)
    assert moved.json()["group"]["parent"] == "sneakers"
    moved = await keywords.post("/keywords/move", {"keywords": ["boot"], "new_group": "Not shoes"})
    made = moved.json()["group"]
    assert (made["name"], made["parent"], made["tokens"], made["keywords"]) == ("Not shoes", "boot", None, 1)
    regrouped = await keywords.post("/regroup")
    assert await members(keywords, made["id"]) == ["boot"]
    assert (regrouped.status_code, regrouped.json()) == (200, {"keywords": 0, "groups": 0})
    back = await keywords.post("/keywords/move", {"keywords": ["boot", "sneakers"]})
    assert (back.status_code, back.json()) == (200, {"group": None})
    assert await grouped(keywords) == before


async def test_a_regroup_by_hand_undoes_moves_too(keywords: Keywords) -> None:
    await keywords.load(*SHOES)
    before = await grouped(keywords)
    await keywords.post("/keywords/move", {"keywords": ["boot", "sneakers"], "new_group": "Mine"})
    regrouped = await keywords.post("/regroup", {"by_hand": True})
    assert regrouped.json() == {"keywords": 2, "groups": 2}
    assert await grouped(keywords) == before


MOVE = "/keywords/move"
NOWHERE = str(UUID(int=0))


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "sentence"),
    [
        (
            "/tokens/merge",
            {"tokens": ["shoe"]},
            422,
            "invalid_request",
            "body.into: expected a value, got none.",
        ),
        (
            "/tokens/merge",
            {"tokens": ["shoes"], "into": "shoe"},
            422,
            "nothing_to_merge",
            "tokens: expected words that are not merged into 'shoe' yet.",
        ),
        (
            "/tokens/merge",
            {"tokens": ["red shoes"], "into": "shoe"},
            422,
            "invalid_token",
            "tokens: expected single words, got 'red shoes'. Merge its words separately.",
        ),
        (
            "/tokens/merge",
            {"tokens": "a", "into": "b"},
            422,
            "invalid_request",
            "body.tokens: expected a list.",
        ),
        (
            "/tokens/merge",
            {"tokens": ["a\0"], "into": "b"},
            422,
            "invalid_request",
            "body.tokens.0: expected text without control characters.",
        ),
        ("/tokens/unmerge", {"tokens": []}, 422, "invalid_request", "tokens: expected 1 to 1000, got 0."),
        (
            "/tokens/unmerge",
            {"tokens": ["shoe"]},
            404,
            "unknown_merge",
            "None of these words is merged into another.",
        ),
        (
            MOVE,
            {"keywords": ["boot"], "group_id": NOWHERE, "new_group": "Boots"},
            422,
            "invalid_request",
            "body: expected group_id or new_group, got both.",
        ),
        (MOVE, {"keywords": ["hat"]}, 404, "unknown_keyword", "The project has no keyword 'hat'."),
        (
            MOVE,
            {"keywords": ["a\0"]},
            422,
            "invalid_request",
            "body.keywords.0: expected text without control characters.",
        ),
        (
            MOVE,
            {"keywords": ["boot"], "new_group": ""},
            422,
            "invalid_name",
            "name: expected 1 to 200 printable characters, got ''.",
        ),
        (
            MOVE,
            {"keywords": ["boot"], "group_id": "boots"},
            422,
            "invalid_request",
            "body.group_id: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b.",
        ),
        (
            MOVE,
            {"keywords": ["boot"], "group": NOWHERE},
            422,
            "invalid_request",
            "body: 'group' is not a field; did you mean 'group_id'?",
        ),
        ("/regroup", {"by_hand": 2}, 422, "invalid_request", "body.by_hand: expected true or false."),
    ],
)
async def test_a_wrong_edit_changes_nothing(
    shoes: Keywords, path: str, body: Any, status: int, code: str, sentence: str
) -> None:
    before = await shoes.ask("/groups"), await shoes.ask("/tokens/merges")
    answer = await shoes.post(path, body)
    assert (answer.status_code, answer.json()) == (status, {"error": code, "message": sentence})
    assert (await shoes.ask("/groups"), await shoes.ask("/tokens/merges")) == before


async def test_a_wrong_name_changes_nothing(shoes: Keywords) -> None:
    url = f"{shoes.url}/groups/{await named(shoes, 'Red Shoes')}"
    for body, sentence in (
        ({"name": "x" * 201}, f"name: expected 1 to 200 printable characters, got '{'x' * 57}…'."),
        ({}, "body.name: expected a value, got none."),
    ):
        answer = await shoes.client.patch(url, headers=shoes.key, json=body)
        assert (answer.status_code, answer.json()["message"]) == (422, sentence)
    missing = await shoes.client.patch(f"{shoes.url}/groups/{uuid4()}", headers=shoes.key, json={"name": "x"})
    assert (missing.status_code, missing.json()["error"]) == (404, "unknown_group")
