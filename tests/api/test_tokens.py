"""Upload tokens: what a browser on another origin holds. They upload, for a while, what they were made for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Clock
from weighbridge.app import App
from weighbridge.db import keys

from .conftest import CSV, MakeKey


async def _token(client: httpx.AsyncClient, key: dict[str, str], **wish: Any) -> dict[str, str]:
    answer = await client.post("/api/tokens", headers=key, json=wish)
    assert answer.status_code == 201, answer.text
    assert answer.json()["token"].startswith("wbt_")
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def _send(client: httpx.AsyncClient, token: dict[str, str], **fields: str) -> httpx.Response:
    return await client.post("/api/uploads", headers=token, data=fields, files={"file": ("a.csv", CSV)})


async def test_a_token_uploads_and_does_nothing_else(client: httpx.AsyncClient, make_key: MakeKey) -> None:
    token = await _token(client, await make_key("admin"))
    sent = await _send(client, token, platform="meta")
    assert sent.status_code == 201
    for method, path in (
        ("GET", "/api/uploads"),
        ("GET", f"/api/uploads/{sent.json()['upload_id']}"),
        ("POST", f"/api/uploads/{sent.json()['upload_id']}/retry"),
        ("GET", "/api/sites"),
        ("GET", "/api/live"),
        ("POST", "/api/tokens"),
    ):
        answer = await client.request(method, path, headers=token)
        assert (answer.status_code, answer.json()["error"]) == (403, "wrong_scope"), path


async def test_a_token_ends_after_its_time_and_with_its_key(
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


async def test_a_token_is_for_what_it_was_made_for(client: httpx.AsyncClient, key: dict[str, str]) -> None:
    token = await _token(client, key, pipeline="ads", platform="meta")
    assert (await _send(client, token)).status_code == 201  # what it says need not be said again
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


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"seconds": 5}, 422),
        ({"seconds": 10**6}, 422),
        ({"pipeline": "adz"}, 422),
        ({"pipeline": "ads", "platform": "mta"}, 422),
        ({"pipeline": "keywords"}, 422),
        ({"colour": "red"}, 422),
    ],
)
async def test_a_wish_that_no_file_could_meet_is_refused(
    client: httpx.AsyncClient, key: dict[str, str], wish: dict[str, Any], status: int
) -> None:
    answer = await client.post("/api/tokens", headers=key, json=wish)
    assert answer.status_code == status
    assert answer.json()["message"]


@pytest.mark.parametrize("token", ["wbt_", "wbt_x", "wbt_e30.x", "wbt_" + "A" * 60])
async def test_a_token_that_is_not_ours_opens_nothing(client: httpx.AsyncClient, token: str) -> None:
    answer = await _send(client, {"Authorization": f"Bearer {token}"}, platform="meta")
    assert (answer.status_code, answer.json()["error"]) == (401, "token_ended")


async def test_a_session_is_no_token_and_a_token_no_session(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    token = (await _token(client, key))["Authorization"].removeprefix("Bearer wbt_")
    answer = await client.get("/api/uploads", headers={"Cookie": f"wb_session={token}"})
    assert (answer.status_code, answer.json()["error"]) == (401, "session_ended")
