"""Upload tokens for browsers on other origins: they expire, and allow only uploads within their scope."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.conftest import Clock
from weighbridge.access import keys
from weighbridge.app import App

from .conftest import CSV, MakeKey, Query

KEYWORDS = b"Keyword,Volume\nred shoes,10\nblue shoes,5\n"
JUDGMENTS = b"Case Number,Creditor,Debtor,Amount,Filing Date\n24-1001,Acme Bank,J. Doe,1200.50,2024-03-01\n"
CLIENT = str(uuid4())
TUS = {"Tus-Resumable": "1.0.0"}
PART = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}


async def _token(client: httpx.AsyncClient, key: dict[str, str], **wish: Any) -> dict[str, str]:
    answer = await client.post("/api/tokens", headers=key, json=wish)
    assert answer.status_code == 201, answer.text
    assert answer.json()["token"].startswith("wbt_")
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def _send(
    client: httpx.AsyncClient, token: dict[str, str], content: bytes = CSV, **fields: str
) -> httpx.Response:
    return await client.post("/api/uploads", headers=token, data=fields, files={"file": ("a.csv", content)})


async def _begin(client: httpx.AsyncClient, token: dict[str, str], length: int, **fields: str) -> str:
    """A file by tus; returns where it goes."""
    said = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in fields.items())
    headers = {**token, **TUS, "Upload-Length": str(length), "Upload-Metadata": said}
    begun = await client.post("/api/files", headers=headers)
    assert begun.status_code == 201, begun.text
    return str(begun.headers["location"])


async def _resume(
    client: httpx.AsyncClient, token: dict[str, str], path: str, content: bytes
) -> httpx.Response:
    return await client.patch(path, headers={**token, **TUS, **PART}, content=content)


async def test_a_token_can_only_upload(client: httpx.AsyncClient, make_key: MakeKey) -> None:
    token = await _token(client, await make_key("admin"))
    sent = await _send(client, token, platform="meta")
    assert sent.status_code == 201
    for method, path in (
        ("GET", "/api/uploads"),
        ("GET", f"/api/uploads/{sent.json()['upload_id']}"),
        ("POST", f"/api/uploads/{sent.json()['upload_id']}/retry"),
        ("GET", "/api/sites"),
        ("GET", "/api/live"),
        ("POST", "/api/conversions"),
        ("POST", "/api/projects/7/kick"),
        ("POST", "/api/tokens"),
    ):
        answer = await client.request(method, path, headers=token)
        assert (answer.status_code, answer.json()["error"]) == (403, "wrong_scope"), path


async def test_a_token_ends_at_its_expiry_and_with_its_key(
    app: App, client: httpx.AsyncClient, key: dict[str, str], clock: Clock
) -> None:
    short, long = await _token(client, key, seconds=60), await _token(client, key, seconds=7200)
    clock.forward(seconds=61)
    assert (await _send(client, short, platform="meta")).json()["error"] == "token_ended"
    assert (await _send(client, long, platform="meta")).status_code == 201
    async with app.db.tx() as tx:
        (made,) = await keys.listing(tx, None)
        await keys.revoke(tx, made.id)
    assert (await _send(client, long, platform="meta")).status_code == 401


async def test_a_token_is_limited_to_its_scope(client: httpx.AsyncClient, key: dict[str, str]) -> None:
    token = await _token(client, key, pipeline="ads", platform="meta")
    assert (await _send(client, token)).status_code == 201  # fields of the token need not be sent again
    other = await _send(client, token, platform="google")
    assert (other.status_code, other.json()["error"]) == (403, "wrong_scope")
    assert "'meta'" in other.json()["message"]
    begun = await client.post(
        "/api/files",
        headers={
            **token,
            "Tus-Resumable": "1.0.0",
            "Upload-Length": "5",
            "Upload-Metadata": "platform Z29vZ2xl",
        },
    )
    assert begun.status_code == 403


ESCAPES = pytest.mark.parametrize(
    ("wish", "content", "fields", "named"),
    [
        pytest.param({"project_id": 7}, CSV, {}, "for '7' only; files of the pipeline ads belong", id="project"),
        pytest.param({"project_id": 7, "pipeline": "auto"}, CSV, {}, "to no project", id="project, auto"),
        pytest.param(
            {"client_id": CLIENT}, KEYWORDS, {"project_id": "99"}, f"for '{CLIENT}' only; files", id="client"
        ),
        pytest.param(
            {"platform": "meta"}, KEYWORDS, {"project_id": "99"}, "platform: this upload token is for 'meta'",
            id="platform",
        ),
        pytest.param({"client_id": CLIENT}, JUDGMENTS, {}, "pipeline judgments belong to no client", id="scope"),
    ],
)  # fmt: skip


@ESCAPES
async def test_recognition_cannot_exceed_the_scope_of_a_token(
    client: httpx.AsyncClient,
    key: dict[str, str],
    query: Query,
    left_behind: Callable[[], list[str]],
    wish: dict[str, Any],
    content: bytes,
    fields: dict[str, str],
    named: str,
) -> None:
    token = await _token(client, key, **wish)
    answer = await _send(client, token, content, pipeline="auto", **fields)
    assert (answer.status_code, answer.json()["error"]) == (403, "wrong_scope"), answer.text
    assert named in answer.json()["message"]
    told = await client.post("/api/recognise", headers=token, params=fields, content=content)
    assert told.json()["refusal"] == answer.json()
    assert left_behind() == []
    assert query("SELECT id FROM projects") == []


@ESCAPES
async def test_recognition_of_a_resumable_file_cannot_exceed_the_scope_of_a_token(
    client: httpx.AsyncClient,
    key: dict[str, str],
    query: Query,
    left_behind: Callable[[], list[str]],
    wish: dict[str, Any],
    content: bytes,
    fields: dict[str, str],
    named: str,
) -> None:
    token = await _token(client, key, **wish)
    path = await _begin(client, token, len(content), pipeline="auto", filename="a.csv", **fields)
    ended = await _resume(client, token, path, content)
    assert (ended.status_code, ended.json()["error"]) == (403, "wrong_scope"), ended.text
    assert named in ended.json()["message"]
    assert left_behind() == []
    assert query("SELECT id FROM projects") == []


async def test_a_pipeline_named_by_the_sender_cannot_exceed_the_scope_of_a_token(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    token = await _token(client, key, client_id=CLIENT)
    for content, fields in (
        (KEYWORDS, {"pipeline": "keywords", "project_id": "99"}),
        (JUDGMENTS, {"pipeline": "judgments"}),
    ):
        answer = await _send(client, token, content, **fields)
        assert (answer.status_code, answer.json()["error"]) == (403, "wrong_scope")


async def test_within_the_scope_of_a_token_files_are_recognised_and_the_sender_sets_the_rest(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    project, of_client, free = [
        await _token(client, key, **wish) for wish in ({"project_id": 7}, {"client_id": CLIENT}, {})
    ]
    assert (await _send(client, project, KEYWORDS, pipeline="auto")).status_code == 201
    assert (await _send(client, of_client, pipeline="auto")).status_code == 201
    assert (await _send(client, free, KEYWORDS, pipeline="auto", project_id="8")).status_code == 201
    both = await _token(
        client, key, pipeline="judgments", client_id=CLIENT
    )  # as requested by the creator of the token
    assert (await _send(client, both, JUDGMENTS)).status_code == 201
    assert query("SELECT pipeline, project_id, client_id::text FROM data_uploads ORDER BY created_at") == [
        ("keywords", 7, None),
        ("ads", None, CLIENT),
        ("keywords", 8, None),
        ("judgments", None, CLIENT),
    ]


async def test_a_token_sees_only_the_time_of_an_earlier_upload_of_the_same_content(
    client: httpx.AsyncClient, make_key: MakeKey
) -> None:
    other, mine = await make_key("upload", "read"), await make_key("upload", "read")
    await client.post(
        "/api/uploads", headers=other, data={"platform": "meta"}, files={"file": ("Bob's plan.csv", CSV)}
    )
    for bearer, shown in ((await _token(client, mine), {"created_at"}), (mine, {"filename", "error_text"})):
        path = await _begin(client, bearer, len(CSV), platform="meta", filename="mine.csv")
        await _resume(client, bearer, path, CSV)
        told = (await client.get(path, headers=bearer)).json()
        assert (told["duplicate"], told["status"], told["ended"]) == (True, "pending", False)
        assert {*told["progress"]} >= shown
        assert ("Bob" in str(told)) == (bearer is mine)


async def test_a_token_cannot_see_a_file_created_with_another_key(
    client: httpx.AsyncClient, make_key: MakeKey, query: Query
) -> None:
    other, mine = await make_key("upload"), await make_key("upload")
    path = await _begin(client, other, len(CSV), platform="meta", filename="private name.csv")
    stranger, own = await _token(client, mine), await _token(client, other)
    for method in ("HEAD", "GET", "PATCH", "DELETE"):
        parts: dict[str, Any] = {"headers": PART, "content": CSV} if method == "PATCH" else {"headers": {}}
        answer = await client.request(
            method, path, **{**parts, "headers": {**stranger, **TUS, **parts["headers"]}}
        )
        assert answer.status_code == 404, method
        assert "upload-metadata" not in answer.headers
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]
    assert (await client.head(path, headers={**own, **TUS})).headers["upload-offset"] == "0"
    assert (await _resume(client, own, path, CSV)).status_code == 204
    assert (await client.get(path, headers=own)).json()["progress"]["filename"] == "private name.csv"
    assert (await client.get(path, headers=mine)).status_code == 200  # a key is the workspace's


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"seconds": 5}, 422),
        ({"seconds": 10**6}, 422),
        ({"pipeline": "adz"}, 422),
        ({"pipeline": "ads", "platform": "mta"}, 422),
        ({"pipeline": "keywords"}, 422),
        ({"colour": "red"}, 422),
        ({"platform": "zzz"}, 422),
        ({"created_by": "nope"}, 422),
        ({"project_id": -1}, 422),
        ({"client_id": "x\0"}, 422),
    ],
)
async def test_a_scope_that_no_file_can_match_is_refused(
    client: httpx.AsyncClient, key: dict[str, str], wish: dict[str, Any], status: int
) -> None:
    answer = await client.post("/api/tokens", headers=key, json=wish)
    assert answer.status_code == status
    assert answer.json()["message"]


@pytest.mark.parametrize("token", ["wbt_", "wbt_x", "wbt_e30.x", "wbt_" + "A" * 60])
async def test_an_invalid_token_is_refused(client: httpx.AsyncClient, token: str) -> None:
    answer = await _send(client, {"Authorization": f"Bearer {token}"}, platform="meta")
    assert (answer.status_code, answer.json()["error"]) == (401, "token_ended")


async def test_a_session_cannot_be_used_as_a_token_nor_a_token_as_a_session(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    token = (await _token(client, key))["Authorization"].removeprefix("Bearer wbt_")
    answer = await client.get("/api/uploads", headers={"Cookie": f"wb_session={token}"})
    assert (answer.status_code, answer.json()["error"]) == (401, "session_ended")
