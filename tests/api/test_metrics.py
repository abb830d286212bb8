"""`/api/metrics`: the metrics of a workspace; and access to `/metrics`, which shows all workspaces."""

# ruff: noqa: F811 (fixtures are imported, then asked for by name)

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from tests.engine.conftest import meta_file, run  # noqa: F401 (a fixture)
from weighbridge.api import create
from weighbridge.app import App
from weighbridge.model.states import Status
from weighbridge.postgres.transactions import Database
from weighbridge.settings import read

from .conftest import MakeKey, Query
from .scraping import BEARER, BROKEN, TOKEN, Load, app, load_file  # noqa: F401 (fixtures)

NOTHING = {
    "backlog_count": 0,
    "last_failed_batch": None,
    "last_failed_at": None,
    "failed_24h": 0,
    "stale_runs": 0,
    "avg_processing_seconds": None,
}


async def ingest(client: httpx.AsyncClient, key: dict[str, str]) -> dict[str, Any]:
    answer = await client.get("/api/metrics", headers=key)
    assert answer.status_code == 200
    assert set(answer.json()) == {"ingest"}
    found: dict[str, Any] = answer.json()["ingest"]
    return found


# /api/metrics -----------------------------------------------------------------------------------------------


async def test_a_workspace_without_uploads_has_empty_metrics_in_the_specified_format(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    assert await ingest(client, key) == NOTHING


async def test_a_workspace_sees_its_backlog_failures_and_durations(
    client: httpx.AsyncClient,
    key: dict[str, str],
    load_file: Load,
    make_upload: Any,
    query: Query,
    clock: Any,
) -> None:
    await load_file(meta_file())
    failed = await load_file(BROKEN, source_batch_id="simplicity-2026-01-07.csv")
    assert failed.status == Status.FAILED
    for status in ("pending", "processing", "staging_complete", "promoting"):
        make_upload(status=status)
    query(
        "UPDATE data_uploads SET started_at = finished_at - interval '12.5 s' WHERE status = 'completed';"
        "UPDATE data_uploads SET finished_at = '2026-01-07 14:32:00.987+00' WHERE status = 'failed'"
    )
    assert await ingest(client, key) == {
        "backlog_count": 4,
        "last_failed_batch": "simplicity-2026-01-07.csv",
        "last_failed_at": "2026-01-07T14:32:00Z",
        "failed_24h": 0,
        "stale_runs": 0,
        "avg_processing_seconds": 12.5,
    }


async def test_a_failure_counts_for_a_day_and_stays_the_last_one_until_the_next(
    client: httpx.AsyncClient, make_key: MakeKey, load_file: Load, clock: Any
) -> None:
    failed = await load_file(BROKEN)
    key = await make_key("read")
    now = await ingest(client, key)
    assert (now["failed_24h"], now["last_failed_batch"]) == (1, str(failed.id))  # it has no name of its own
    at = datetime.fromisoformat(now["last_failed_at"])
    assert failed.finished_at is not None
    assert at == failed.finished_at.replace(microsecond=0)
    clock.forward(hours=24, minutes=1)
    later = await ingest(client, key)
    assert (later["failed_24h"], later["last_failed_at"]) == (0, now["last_failed_at"])


async def test_an_upload_without_a_worker_is_stale_after_an_hour(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: Any, clock: Any
) -> None:
    make_upload(status="processing", started_at=datetime.now(UTC))
    assert (await ingest(client, key))["stale_runs"] == 0
    clock.forward(minutes=61)
    assert (await ingest(client, key))["stale_runs"] == 1


async def test_one_workspace_does_not_see_the_figures_of_another(
    client: httpx.AsyncClient, make_key: MakeKey, load_file: Load, make_upload: Any, clock: Any
) -> None:
    await load_file(meta_file())
    await load_file(BROKEN)
    make_upload(status="processing", started_at=datetime.now(UTC))
    clock.forward(hours=2)
    mine = await ingest(client, await make_key("read"))
    assert (mine["backlog_count"], mine["failed_24h"], mine["stale_runs"]) == (1, 1, 1)
    assert await ingest(client, await make_key("read", of=uuid4())) == NOTHING


# Access to /metrics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, ""])
async def test_metrics_are_closed_without_a_token_in_the_settings(app: App, token: str | None) -> None:
    settings = read(home=app.settings.home, DATABASE_URL=app.settings.database_url, metrics_token=token)
    transport = httpx.ASGITransport(create(replace(app, settings=settings)))
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
            answer = await client.get("/metrics", headers=headers)
            assert (answer.status_code, answer.json()) == (
                404,
                {
                    "error": "metrics_closed",
                    "message": (
                        "Metrics are disabled. Set WEIGHBRIDGE_METRICS_TOKEN and send it: "
                        "Authorization: Bearer …"
                    ),
                },
            )


async def test_a_wrong_token_and_a_workspace_key_are_401(
    client: httpx.AsyncClient, make_key: MakeKey
) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer scrape-me-\xff".encode("latin-1")},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}".encode()},
        {"X-Api-Key": TOKEN.encode()},
        await make_key("admin"),
    ):
        answer = await client.get("/metrics", headers=headers)  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()["error"]) == (401, "wrong_token"), headers
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "weighbridge_" not in answer.text


async def test_the_token_is_compared_in_constant_time(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def compare_digest(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare_digest)
    assert (await client.get("/metrics", headers=BEARER)).status_code == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


async def test_the_settings_never_show_the_token(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_METRICS_TOKEN", TOKEN)
    settings = read()
    assert settings.metrics_token is not None
    assert settings.metrics_token.get_secret_value() == TOKEN
    assert TOKEN not in f"{settings!r} {settings}"


async def test_prometheus_gets_its_own_format_and_a_scrape_is_not_logged(client: httpx.AsyncClient) -> None:
    with capture_logs() as lines:
        answer = await client.get("/metrics", headers=BEARER)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    assert "# TYPE weighbridge_backlog gauge\n" in answer.text
    assert [line for line in lines if line["event"] == "request"] == []


async def test_a_database_that_does_not_answer_in_time_is_503(
    app: App, database_url: str, make_key: MakeKey
) -> None:
    key = await make_key("read")
    hasty = Database(database_url, statement_timeout_ms=100)
    await hasty.open()
    transport = httpx.ASGITransport(create(replace(app, db=hasty)))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await other.execute("LOCK TABLE data_uploads")
        for path, headers in (("/metrics", BEARER), ("/api/metrics", key)):
            answer = await client.get(path, headers=headers)  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    await hasty.close()
