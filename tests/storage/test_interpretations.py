"""Interpretations: stored files that a user has read again, counted and limited by user."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx

from tests.api.conftest import client, key, make_key, make_upload  # noqa: F401 (fixtures)
from tests.storage.counting import until_next_month
from tests.storage.test_quota import counted
from weighbridge.app import App
from weighbridge.projects import queue as projects_queue
from weighbridge.projects.create import retry_failed
from weighbridge.storage import usage
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.operator_retry import reopen


async def test_it_010_interpretation_quota_enforcement(
    app: App,
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: Any,
    query: Any,
    clock: Any,
    workspace: UUID,
) -> None:
    """Use storage_usage counters to reject reinterpretation when the limit is reached."""
    user = uuid4()
    async with app.db.tx(workspace_id=workspace) as tx:
        await usage.set_limit(tx, usage.Limit(user, interpretations=2), "test")
    before = counted("quota_interpretation_exceeded_total")
    failed = [make_upload(status="failed", created_by=user) for _ in range(3)]
    for each in failed[:2]:
        assert (await client.post(f"/api/uploads/{each}/retry", headers=key)).status_code == 200
    refused = await client.post(f"/api/uploads/{failed[2]}/retry", headers=key)
    assert refused.status_code == 429
    told = refused.json()
    assert (told["error"], told["used"], told["limit"]) == ("STORAGE_QUOTA_EXCEEDED", 2, 2)
    assert told["message"].startswith("Monthly interpretation quota reached: 2 of 2 are used")
    assert int(refused.headers["Retry-After"]) > 0
    assert query("SELECT status FROM data_uploads WHERE id = %s", (failed[2],)) == [("failed",)]
    assert query("SELECT count(*) FROM weighbridge.audit_log WHERE action = 'upload.retry'") == [(2,)]
    assert counted("quota_interpretation_exceeded_total") == before + 1
    other = make_upload(status="failed", created_by=uuid4())
    assert (await client.post(f"/api/uploads/{other}/retry", headers=key)).status_code == 200
    clock.forward(until_next_month(query))
    assert (await client.post(f"/api/uploads/{failed[2]}/retry", headers=key)).status_code == 200
    assert query("SELECT interpretation_count_month FROM storage_usage WHERE user_id = %s", (user,)) == [(1,)]


async def test_concurrent_retries_are_granted_exactly_up_to_the_limit(
    app: App,
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: Any,
    query: Any,
    workspace: UUID,
) -> None:
    async with app.db.tx(workspace_id=workspace) as tx:
        await usage.set_limit(tx, usage.Limit(DEFAULT_USER, interpretations=5), "test")
    failed = [make_upload(status="failed") for _ in range(12)]
    answers = await asyncio.gather(
        *(client.post(f"/api/uploads/{each}/retry", headers=key) for each in failed)
    )
    assert sorted(each.status_code for each in answers) == [200] * 5 + [429] * 7
    assert query("SELECT interpretation_count_month FROM storage_usage") == [(5,)]
    assert query("SELECT count(*) FROM data_uploads WHERE status = 'pending'") == [(5,)]


async def test_the_command_line_counts_and_is_not_refused(
    app: App,
    make_upload: Any,
    query: Any,
    workspace: UUID,
) -> None:
    async with app.db.tx(workspace_id=workspace) as tx:
        await usage.set_limit(tx, usage.Limit(DEFAULT_USER, interpretations=0), "test")
    for _ in range(2):
        async with app.db.tx() as tx:
            upload = await uploads_queue.get(tx, make_upload(status="failed"))
        assert upload is not None
        assert await reopen(app.db, upload, force_partial=False, actor="command line") == "pending"
    assert query("SELECT interpretation_count_month FROM storage_usage") == [(2,)]


async def test_a_retry_that_is_refused_for_another_reason_does_not_count(
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: Any,
    query: Any,
) -> None:
    completed = make_upload(status="completed")
    assert (await client.post(f"/api/uploads/{completed}/retry", headers=key)).status_code == 409
    failed = make_upload(status="failed", content_sha256=b"x" * 32)
    make_upload(content_sha256=b"x" * 32)
    answer = await client.post(f"/api/uploads/{failed}/retry", headers=key)
    assert (answer.status_code, answer.json()["error"]) == (409, "superseded")
    assert query("SELECT FROM storage_usage") == []


async def test_either_all_or_no_failed_files_of_a_project_are_reopened(
    app: App,
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: Any,
    query: Any,
    workspace: UUID,
) -> None:
    async with app.db.tx("weighbridge_intake", workspace) as tx:
        await projects_queue.make(tx, 7, "Shoes")
    job = {"status": "failed", "project_id": 7, "pipeline": "keywords", "platform": None, "file_kind": "csv"}
    user = uuid4()
    for created_by in (user, user, user, None):
        make_upload(**job, created_by=created_by)
    same = {"content_sha256": b"y" * 32, "created_by": user}
    for _ in range(2):
        make_upload(
            **job, **same
        )  # sent again after it failed: only the last of the two is opened, and counts
    async with app.db.tx(workspace_id=workspace) as tx:
        await usage.set_limit(tx, usage.Limit(user, interpretations=3), "test")
    refused = await client.post("/api/projects/7/jobs/retry-failed", headers=key)
    assert refused.status_code == 429
    assert refused.json()["message"].startswith("Monthly interpretation quota reached: 0 of 3 are used")
    assert query("SELECT DISTINCT status FROM data_uploads") == [("failed",)]
    assert query("SELECT sum(interpretation_count_month) FROM storage_usage") == [(0,)]
    async with app.db.tx(workspace_id=workspace) as tx:
        await usage.set_limit(tx, usage.Limit(user, interpretations=4), "test")
    done = (await client.post("/api/projects/7/jobs/retry-failed", headers=key)).json()
    assert (len(done["retried"]), [each["error"] for each in done["skipped"]]) == (5, ["superseded"])
    assert query("SELECT user_id, interpretation_count_month FROM storage_usage ORDER BY 2") == [
        (DEFAULT_USER, 1),
        (user, 4),
    ]
    async with app.db.tx(workspace_id=workspace) as tx:
        project = await projects_queue.get_project(tx, workspace, 7)
    assert project is not None
    assert (await retry_failed(app.db, project, force_partial=False, actor="test")).retried == ()
