"""The creation of a resumable upload: refusals before any byte is sent, and the reservation of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import httpx
import pytest

from tests.api.conftest import CSV, Query
from tests.conftest import Clock
from tests.storage.files import PART, VERSION, Sender, metadata
from weighbridge.app import App
from weighbridge.delivery.context import Context
from weighbridge.model.limits import Allowance
from weighbridge.storage import quota
from weighbridge.storage import resumable as storage_resumable
from weighbridge.uploads import resumable as uploads_resumable
from weighbridge.uploads.check_request import Request, check

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
# Length, metadata, other headers, and what is said.
REFUSED: list[tuple[int | None, str | None, dict[str, str], int, str, str]] = [
    (None, None, {}, 400, "invalid_header", "Upload-Length: expected a number of bytes, got none."),
    (None, None, {"Upload-Length": "-1"}, 400, "invalid_header", "got '-1'"),
    (9, None, {"Upload-Defer-Length": "1"}, 400, "unsupported_extension", "creation-defer-length is not supported"),
    (9, None, {"Upload-Concat": "partial"}, 400, "unsupported_extension", "concatenation is not supported"),
    (0, None, {}, 422, "empty_file", "expected rows, got an empty file"),
    (50 * 2**20 + 1, None, {}, 413, "file_too_large", "expected at most 50 MB"),
    (9, metadata(platform="mta"), {}, 422, "unknown_platform", "did you mean 'meta'?"),
    (9, "", {}, 422, "unknown_platform", "got none"),
    (9, metadata(platfrom="meta"), {}, 422, "unknown_field", "did you mean 'platform'?"),
    (9, metadata(platform="meta", pipeline="adds"), {}, 422, "unknown_pipeline", "did you mean 'ads'?"),
    (9, metadata(platform="meta", force="perhaps"), {}, 422, "invalid_field", "force: expected true or false"),
    (9, metadata(platform="meta", created_by="me"), {}, 422, "invalid_creator", "created_by: expected a UUID"),
    (9, metadata(platform="meta", workspace_id=str(UUID(int=7))), {}, 403, "wrong_workspace", "another workspace"),
    (9, "platform meta!", {}, 400, "invalid_header", "platform: expected UTF-8 as base64"),
    (9, "platform bWV0YQ==,platform bWV0YQ==", {}, 422, "repeated_field", "expected once"),
]  # fmt: skip


@pytest.fixture
def sender(client: httpx.AsyncClient, key: dict[str, str]) -> Sender:
    return Sender(client, key)


async def test_an_unacceptable_file_is_refused_at_creation(
    sender: Sender, query: Query, left_behind: Callable[[], list[str]]
) -> None:
    for length, said, headers, status, code, message in REFUSED:
        answer = await sender.create(length, said, **headers)
        assert (answer.status_code, answer.json()["error"]) == (status, code)
        assert message in answer.json()["message"]
        assert ("tus-max-size" in answer.headers) == (status == 413)
    assert query("SELECT count(*) FROM weighbridge.resumable_uploads") == [(0,)]
    assert left_behind() == []


async def test_bytes_in_the_creation_are_refused_clearly(sender: Sender) -> None:
    headers = {**sender.key, **VERSION, **PART, "Upload-Length": "9"}
    answer = await sender.client.post("/api/files", headers=headers, content=b"123")
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_extension")
    assert "Send it with PATCH" in answer.json()["message"]


async def test_a_file_over_the_quota_is_refused_at_creation(
    app: App, sender: Sender, query: Query, clock: Clock
) -> None:
    object.__setattr__(app.ctx, "limits", replace(app.ctx.limits, workspace=Allowance(total=1000)))
    first = await sender.begin(600)
    refused = await sender.create(600)
    assert (refused.status_code, refused.json()["error"]) == (413, "STORAGE_QUOTA_EXCEEDED")
    assert query("SELECT count(*) FROM weighbridge.resumable_uploads") == [(1,)]
    await first.ask("DELETE")  # which releases the reservation
    second = await sender.begin(600)
    clock.forward(hours=20)
    await second.patch(CSV[:9], 0)  # holds it for another day
    clock.forward(hours=20)
    assert (await sender.create(600)).status_code == 413
    clock.forward(hours=20)
    assert (await sender.create(600)).status_code == 201


async def test_a_refused_file_releases_its_reservation(app: App, sender: Sender) -> None:
    object.__setattr__(app.ctx, "limits", replace(app.ctx.limits, workspace=Allowance(total=300)))
    assert (await sender.send(PNG)).status_code == 415
    assert (await sender.send(CSV)).status_code == 204
    assert (await sender.send(CSV)).headers["weighbridge-duplicate"] == "true"
    assert (await sender.create(300 - len(CSV))).status_code == 201


async def test_each_file_has_its_own_reservation(app: App, sender: Sender, query: Query) -> None:
    object.__setattr__(app.ctx, "limits", replace(app.ctx.limits, workspace=Allowance(total=1000)))
    file = await sender.begin(len(CSV))
    assert query("SELECT id, bytes FROM weighbridge.storage_reservations") == [(file.id, len(CSV))]
    await file.patch(CSV, 0)
    assert query("SELECT count(*) FROM weighbridge.storage_reservations") == [(0,)]
    ((workspace,),) = query("SELECT workspace_id FROM data_uploads")
    await quota.reserve(app.ctx, check(app.ctx, Request(workspace, "meta")), 1000 - len(CSV), uuid4())


async def test_invalid_characters_of_a_name_are_removed(sender: Sender, query: Query) -> None:
    answer = await sender.send(CSV, filename="..\\me/a\x00b.csv")
    assert answer.status_code == 204
    assert query("SELECT filename FROM data_uploads") == [("ab.csv",)]


async def test_a_file_that_receives_a_part_while_it_expires_is_kept(
    sender: Sender, ctx: Context, query: Query, clock: Clock
) -> None:
    """The statement that removes the row checks it again."""
    file = await sender.begin(len(CSV))
    await file.patch(CSV[:9], 0)
    clock.forward(hours=25)
    async with ctx.db.tx() as tx:
        [place] = await storage_resumable.expired(tx)
        found = await storage_resumable.get(tx, place.id)
    assert found is not None
    query(
        "UPDATE weighbridge.resumable_uploads SET expires_at = weighbridge.now() + interval '1 h'"
    )  # the part
    assert not await uploads_resumable._forgotten(ctx, found)
    assert (await file.patch(CSV[9:], 9)).status_code == 204
