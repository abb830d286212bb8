"""Recognition of files by their header: before they are sent, and while they are received."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from weighbridge.api import create
from weighbridge.app import App, open_app
from weighbridge.model.errors import ConfigError
from weighbridge.settings import read

from .conftest import CSV, MakeKey, Query

KEYWORDS = b"Keyword,Volume\nshoes,1\n"
EITHER = b"Day,Campaign,Cost,Clicks\n2025-01-01,a,1,2\n"
TUS = {"Tus-Resumable": "1.0.0"}
ORIGIN = "https://app.example.com"


async def ask(client: httpx.AsyncClient, key: dict[str, str], head: bytes, **params: Any) -> httpx.Response:
    return await client.post("/api/recognise", headers=key, content=head, params=params)


async def test_a_head_is_recognised(client: httpx.AsyncClient, make_key: MakeKey) -> None:
    key = await make_key("upload")
    told = (await ask(client, key, CSV, filename="report.csv")).json()
    assert told == {
        "sure": "one",
        "message": "file ('report.csv'): recognised as ads, meta.",
        "pipeline": "ads",
        "platform": "meta",
        "fits": [
            {
                "pipeline": "ads",
                "platform": "meta",
                "matched": ["Day", "Campaign name", "Amount spent (USD)"],
                "missing": ["Impressions"],
                "needs": [],
            }
        ],
        "refusal": None,
    }
    told = (await ask(client, key, EITHER)).json()
    assert (told["sure"], told["pipeline"]) == ("several", None)
    assert [each["platform"] for each in told["fits"]] == ["google", "tiktok"]
    assert (await ask(client, key, EITHER, platform="google")).json()["sure"] == "one"
    told = (await ask(client, key, b"Week,Campaign name\n1,a\n")).json()
    assert (told["sure"], told["fits"][0]["missing"]) == ("none", ["Day", "Impressions", "Amount spent"])


async def test_required_fields_that_were_not_sent_are_reported(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    told = (await ask(client, key, KEYWORDS)).json()
    assert told["fits"][0]["needs"] == ["project_id"]
    assert told["refusal"]["error"] == "invalid_project"
    assert (await ask(client, key, KEYWORDS, project_id=7)).json()["refusal"] is None


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"", 422, "empty_file"),
        (b"%PDF-1.7", 415, "unsupported_format"),
        (b"a,b\n" * 20_000, 413, "body_too_large"),
    ],
)
async def test_unreadable_content_is_refused(
    client: httpx.AsyncClient, key: dict[str, str], head: bytes, status: int, code: str
) -> None:
    answer = await ask(client, key, head)
    assert (answer.status_code, answer.json()["error"]) == (status, code)


async def test_files_of_several_kinds_are_accepted_in_one_request(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    files = [
        ("file", ("meta.csv", CSV)),
        ("file", ("words.csv", KEYWORDS)),
        ("file", ("either.csv", EITHER)),
        ("file", ("sales.csv", b"GCLID,Conversion Time\nx,2026-01-31 10:00:00\n")),
        ("file", ("large.csv", CSV + b"2025-01-02,Spring,10.50\n" * 10_000)),
    ]
    data = {"pipeline": "auto", "project_id": "7"}
    answer = await client.post("/api/uploads", headers=key, data=data, files=files)
    assert answer.status_code == 207, answer.text
    errors = {each["filename"]: each.get("error") for each in answer.json()["uploads"]}
    assert errors == {
        "meta.csv": None,
        "words.csv": None,
        "either.csv": "unrecognised_file",
        "sales.csv": "missing_site",
        "large.csv": None,
    }
    rows = query("SELECT filename, pipeline, platform, project_id, byte_size FROM data_uploads ORDER BY 1")
    assert [row[:4] for row in rows] == [
        ("large.csv", "ads", "meta", None), ("meta.csv", "ads", "meta", None), ("words.csv", "keywords", None, 7),
    ]  # fmt: skip
    assert rows[0][4] == len(files[4][1][1]), "none of the bytes that were looked at is missing"
    assert query("SELECT count(*) FROM weighbridge.storage_reservations") == [(0,)]


async def begin(
    client: httpx.AsyncClient, key: dict[str, str], content: bytes, **said: str
) -> httpx.Response:
    pairs = {"pipeline": "auto", "filename": "x.csv", **said}
    metadata = ",".join(
        f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in pairs.items()
    )
    headers = {**key, **TUS, "Upload-Length": str(len(content)), "Upload-Metadata": metadata}
    return await client.post("/api/files", headers=headers)


async def patch(
    client: httpx.AsyncClient, key: dict[str, str], path: str, offset: int, content: bytes
) -> httpx.Response:
    headers = {
        **key, **TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream",
    }  # fmt: skip
    return await client.patch(path, headers=headers, content=content)


async def test_a_file_in_parts_is_recognised_by_its_first_bytes(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    path = (await begin(client, key, CSV)).headers["location"]
    answer = await patch(client, key, path, 0, CSV)
    assert answer.status_code == 204, answer.text
    assert query("SELECT pipeline, platform FROM data_uploads") == [("ads", "meta")]
    wrong = await begin(client, key, CSV, platform="mta")
    assert wrong.json()["error"] == "unknown_platform"


async def test_a_file_that_is_too_large_is_refused_before_the_rest_is_sent(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    content = EITHER + b"2025-01-01,a,1,2\n" * 50_000
    path = (await begin(client, key, content)).headers["location"]
    answer = await patch(client, key, path, 0, content[:70_000])
    assert (answer.status_code, answer.json()["error"]) == (422, "unrecognised_file")
    told = (await client.get(path, headers=key)).json()
    assert (told["error"], told["ended"]) == ("unrecognised_file", True)


async def test_only_the_key_that_created_a_file_sees_the_progress_of_its_rows(
    client: httpx.AsyncClient, make_key: MakeKey
) -> None:
    mine, other = await make_key("upload"), await make_key("upload")
    path = (await begin(client, mine, CSV)).headers["location"]
    await patch(client, mine, path, 0, CSV)
    told = (await client.get(path, headers=mine)).json()
    assert told["ended"] is False
    assert told["progress"]["pipeline"] == "ads"
    assert told["progress"]["rows_read"] == 0
    token = (await client.post("/api/tokens", headers=mine)).json()["token"]
    assert (await client.get(path, headers={"Authorization": f"Bearer {token}"})).json() == told
    assert (await client.get(path, headers=other)).json()["progress"] is None


# Other origins ----------------------------------------------------------------------------------------------


@pytest.fixture
async def opened(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """An API that accepts uploads from pages of one other origin."""
    settings = read(home=app.settings.home, DATABASE_URL=app.settings.database_url, cors_origins=ORIGIN)
    async with open_app(settings) as more:
        transport = httpx.ASGITransport(create(more), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
            yield client


async def preflight(client: httpx.AsyncClient, path: str, origin: str = ORIGIN, method: str = "PATCH") -> Any:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,tus-resumable,upload-offset,content-type",
    }
    return await client.options(path, headers=headers)


async def test_an_allowed_origin_may_only_upload(opened: httpx.AsyncClient) -> None:
    answer = await preflight(opened, f"/api/files/{UUID(int=1)}")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in answer.headers
    assert (await preflight(opened, "/api/recognise", method="POST")).status_code == 200
    for path in ("/api/uploads", "/api/projects", "/api/tokens", "/api/filesystem"):
        assert "access-control-allow-origin" not in (await preflight(opened, path, method="POST")).headers
    other = await preflight(opened, "/api/files", origin="https://evil.example")
    assert "access-control-allow-origin" not in other.headers


async def test_a_page_of_an_allowed_origin_can_read_responses_and_errors(
    opened: httpx.AsyncClient, key: dict[str, str]
) -> None:
    answer = await begin(opened, {**key, "Origin": ORIGIN}, CSV)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    told = answer.headers["access-control-expose-headers"]
    assert {"Location", "Upload-Offset", "Weighbridge-Error"} <= set(told.split(", "))
    refused = await begin(opened, {"Origin": ORIGIN}, CSV)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)
    described = await opened.options("/api/files")
    assert described.headers["tus-version"] == "1.0.0", "what tus says of itself is still said"


async def test_without_the_setting_no_origin_is_allowed(client: httpx.AsyncClient) -> None:
    assert "access-control-allow-origin" not in (await preflight(client, "/api/files")).headers


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("*", "with *, any web page could upload files"),
        ("https://app.example.com/", "expected origins such as https://app.example.com"),
        ("app.example.com", "expected origins such as https://app.example.com"),
        ("https://A.example.com", "a host in lower case"),
    ],
)
def test_an_invalid_origin_in_the_setting_is_refused_with_a_message(said: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match="WEIGHBRIDGE_CORS_ORIGINS") as refused:
        read(cors_origins=said)
    assert sentence in str(refused.value)


def test_several_origins_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_CORS_ORIGINS", "http://127.0.0.1:8090, https://[::1]:9000")
    assert read().cors_origins == ("http://127.0.0.1:8090", "https://[::1]:9000")
