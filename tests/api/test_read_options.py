"""Read options, columns and warnings over HTTP: a form, a query, tus, one upload, another attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
import pytest
from psycopg.types.json import Jsonb

from tests.storage.files import Sender, metadata

from .conftest import CSV, MakeKey, Query

MakeUpload = Callable[..., UUID]
SAID = {
    "encoding": "windows-1252", "delimiter": "comma", "decimal": "point", "date_order": "ymd",
    "sum_breakdowns": "true",
}  # fmt: skip
STORED = {
    "encoding": "windows-1252",
    "delimiter": ",",
    "decimal": ".",
    "date_order": "ymd",
    "sum_breakdowns": True,
}
REPORT = {
    "columns": [
        {"header": "Day", "use": "mapped", "fields": ["daily_metric.date"], "note": ""},
        {"header": "Currency", "use": "kept", "fields": [], "note": "the currency of all amounts"},
        {"header": "Reach", "use": "unused", "fields": [], "note": ""},
    ],
    "missing": [{"field": "daily_metric.spend", "header": "Amount spent", "guess": "Spent"}],
}


async def test_a_form_sets_read_options(client: httpx.AsyncClient, key: dict[str, str], query: Query) -> None:
    data = {"platform": "meta", **SAID}
    answer = await client.post("/api/uploads", headers=key, data=data, files={"file": ("a.csv", CSV)})
    assert answer.status_code == 201, answer.text
    assert query("SELECT reading FROM data_uploads") == [(STORED,)]
    upload = (await client.get(f"/api/uploads/{answer.json()['upload_id']}", headers=key)).json()
    assert upload["reading"] == STORED
    again = await client.post("/api/uploads", headers=key, data=data, files={"file": ("a.csv", CSV)})
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    other = await client.post(
        "/api/uploads", headers=key, data={"platform": "meta"}, files={"file": ("a.csv", CSV)}
    )
    assert (other.status_code, other.json()["duplicate"]) == (201, False)


async def test_a_query_sets_read_options_of_a_file_in_the_body(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    answer = await client.post(
        "/api/uploads",
        headers={**key, "Content-Type": "text/csv"},
        params={"platform": "meta", "filename": "a.csv", "delimiter": ",", "date_order": "dmy"},
        content=CSV,
    )
    assert answer.status_code == 201, answer.text
    assert query("SELECT reading FROM data_uploads") == [({"delimiter": ",", "date_order": "dmy"},)]


async def test_the_metadata_of_a_resumable_upload_sets_read_options(
    client: httpx.AsyncClient, key: dict[str, str], query: Query
) -> None:
    sender = Sender(client, key)
    sent = await sender.send(CSV, **SAID)
    assert sent.status_code == 204, sent.text
    assert query("SELECT id::text, reading FROM data_uploads") == [
        (sent.headers["weighbridge-upload-id"], STORED)
    ]
    again = await sender.send(CSV, **{**SAID, "delimiter": ","})
    assert again.headers["weighbridge-duplicate"] == "true"
    refused = await sender.create(len(CSV), metadata(platform="meta", date_order="dym"))
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid_field")


@pytest.mark.parametrize(
    ("name", "value", "begin"),
    [
        ("encoding", "klingon", "encoding: expected an encoding such as utf-8"),
        ("delimiter", "x", "delimiter: expected an ASCII character"),
        ("decimal", "1", "decimal: expected a point"),
        ("date_order", "dd/mm", "date_order: expected dmy (3/4/2025 is 3 April)"),
        ("sum_breakdowns", "perhaps", "sum_breakdowns: expected true or false, got 'perhaps'."),
    ],
)
async def test_an_invalid_option_refuses_the_request(
    client: httpx.AsyncClient,
    key: dict[str, str],
    left_behind: Callable[[], list[str]],
    name: str,
    value: str,
    begin: str,
) -> None:
    for pipeline in ("ads", "auto"):
        data = {"platform": "meta", "pipeline": pipeline, name: value}
        answer = await client.post("/api/uploads", headers=key, data=data, files={"file": ("a.csv", CSV)})
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid_field")
        assert answer.json()["message"].startswith(begin)
    assert left_behind() == []


async def test_recognition_takes_encoding_and_delimiter(
    client: httpx.AsyncClient, key: dict[str, str]
) -> None:
    content = CSV.decode().encode("utf-16-le")
    found = await client.post(
        "/api/recognise", headers=key, params={"encoding": "utf-16-le", "delimiter": "comma"}, content=content
    )
    assert (found.status_code, found.json()["sure"]) == (200, "one"), found.text
    refused = await client.post("/api/recognise", headers=key, params={"encoding": "utf-88"}, content=content)
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid_field")


async def test_an_upload_lists_its_columns_and_missing_fields(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    for status in ("completed", "failed"):
        id_ = make_upload(status=status, column_report=Jsonb(REPORT), warnings=3)
        upload = (await client.get(f"/api/uploads/{id_}", headers=key)).json()
        assert (upload["columns"], upload["missing_fields"]) == (REPORT["columns"], REPORT["missing"])
        assert (upload["warnings"], upload["reading"]) == (3, {})


async def test_a_retry_replaces_the_options_that_it_gives(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query, workspace: UUID
) -> None:
    before = {"encoding": "windows-1252", "date_order": "mdy"}
    id_ = make_upload(
        status="failed", error_code="ambiguous_dates", reading=Jsonb(before), column_report=Jsonb(REPORT)
    )
    query(
        "INSERT INTO upload_warnings (upload_id, workspace_id, row_index, line, code, message)"
        " VALUES (%s, %s, -1, 1, 'unused_columns', 'x')",
        (id_, workspace),
    )
    answer = await client.post(f"/api/uploads/{id_}/retry", headers=key, json={"date_order": "dmy"})
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    after = {"encoding": "windows-1252", "date_order": "dmy"}
    upload = (await client.get(f"/api/uploads/{id_}", headers=key)).json()
    assert (upload["reading"], upload["columns"], upload["warnings"]) == (after, [], 0)
    [(detail,)] = query("SELECT detail FROM weighbridge.audit_log WHERE subject = %s", (id_,))
    assert (detail["reading"], detail["reading_before"]) == (after, before)
    assert detail["error_code"] == "ambiguous_dates"


async def test_a_retry_without_options_keeps_them_and_detect_removes_one(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query
) -> None:
    stored = {"delimiter": ";", "sum_breakdowns": True}
    kept, changed = (make_upload(status="failed", reading=Jsonb(stored)) for _ in range(2))
    await client.post(f"/api/uploads/{kept}/retry", headers=key)
    await client.post(
        f"/api/uploads/{changed}/retry", headers=key, json={"delimiter": "detect", "sum_breakdowns": False}
    )
    assert dict(query("SELECT id, reading FROM data_uploads")) == {kept: stored, changed: {}}
    [(detail,)] = query("SELECT detail FROM weighbridge.audit_log WHERE subject = %s", (kept,))
    assert "reading" not in detail


async def test_a_retry_with_an_invalid_option_changes_nothing(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query
) -> None:
    id_ = make_upload(status="failed")
    answer = await client.post(f"/api/uploads/{id_}/retry", headers=key, json={"date_order": "dym"})
    assert (answer.status_code, answer.json()["error"]) == (422, "invalid_field")
    assert answer.json()["message"].startswith("date_order: expected dmy (3/4/2025 is 3 April)")
    assert query("SELECT status, reading FROM data_uploads") == [("failed", {})]


async def test_a_retry_into_options_that_another_upload_has_is_superseded(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    content = bytes(32)
    failed = make_upload(status="failed", content_sha256=content)
    make_upload(status="completed", content_sha256=content, reading=Jsonb({"date_order": "dmy"}))
    taken = await client.post(f"/api/uploads/{failed}/retry", headers=key, json={"date_order": "dmy"})
    assert (taken.status_code, taken.json()["error"]) == (409, "superseded")
    free = await client.post(f"/api/uploads/{failed}/retry", headers=key, json={"date_order": "mdy"})
    assert free.status_code == 200


async def test_the_document_describes_options_columns_and_missing_fields(
    client: httpx.AsyncClient, make_key: MakeKey
) -> None:
    document: Any = (await client.get("/api/openapi.json")).json()
    form = document["paths"]["/api/uploads"]["post"]["requestBody"]["content"]["multipart/form-data"][
        "schema"
    ]
    query = {each["name"]: each for each in document["paths"]["/api/uploads"]["post"]["parameters"]}
    retry = document["components"]["schemas"]["RetryIn"]["properties"]
    for name in SAID:
        assert form["properties"][name]["description"]
        assert query[name]["in"] == "query"
        assert retry[name]["description"]
    shapes = document["components"]["schemas"]
    assert list(shapes["ColumnOut"]["properties"]) == ["header", "use", "fields", "note"]
    assert list(shapes["MissingFieldOut"]["properties"]) == ["field", "header", "guess"]
    assert shapes["UploadOut"]["properties"]["columns"]["items"] == {"$ref": "#/components/schemas/ColumnOut"}
