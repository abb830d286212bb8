"""`GET /api/uploads`, one upload, its rejected rows, retry."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from psycopg.types.json import Jsonb

from weighbridge.model.rejects_layout import ADDED, SAFE, escape
from weighbridge.uploads.write_rejects_file import PAGE

from .conftest import Query

MakeUpload = Callable[..., UUID]
BINS = {"preamble": 1, "header": 1, "blank": 0, "totals": 1, "accepted": 7, "duplicate": 1, "rejected": 2}


async def test_pages_follow_each_other_newest_first(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    ids = [str(make_upload(created_at=begin + timedelta(minutes=n))) for n in range(5)]
    seen: list[str] = []
    before: dict[str, Any] = {}
    for expected in (2, 2, 1):
        page = (await client.get("/api/uploads", headers=key, params={"limit": 2, **before})).json()
        assert len(page["uploads"]) == expected
        seen += [each["upload_id"] for each in page["uploads"]]
        before = {"before": page["next"]}
    assert page["next"] is None
    assert seen == ids[::-1]


async def test_uploads_of_the_same_moment_are_paged_correctly(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    ids = {str(make_upload(created_at=moment)) for _ in range(5)}
    seen: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    while params.get("before", "") is not None:
        page = (await client.get("/api/uploads", headers=key, params=params)).json()
        seen += [each["upload_id"] for each in page["uploads"]]
        params["before"] = page["next"]
    assert len(seen) == len(ids)
    assert set(seen) == ids


async def test_warnings_are_listed_in_the_files_order(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query, workspace: UUID
) -> None:
    id_ = make_upload(status="completed")
    for row, code in ((-1, "currency_not_named"), (7, "ad_not_found"), (7, "ad_set_not_found"), (10, "a")):
        query(
            "INSERT INTO upload_warnings VALUES (%s, %s, %s, %s, %s, 'Mind.') RETURNING 1",
            (id_, workspace, row, row + 2, code),
        )
    url, seen, after = f"/api/uploads/{id_}/warnings", [], {}
    for expected in (3, 1):
        page = (await client.get(url, headers=key, params={"limit": 3, **after})).json()
        assert len(page["warnings"]) == expected
        seen += [(each["row_index"], each["line"], each["code"]) for each in page["warnings"]]
        after = {"after": page["next"]}
    assert seen == [
        (-1, 1, "currency_not_named"), (7, 9, "ad_not_found"), (7, 9, "ad_set_not_found"), (10, 12, "a"),
    ]  # fmt: skip
    assert page["next"] is None
    wrong = await client.get(url, headers=key, params={"after": "yesterday"})
    assert (wrong.status_code, wrong.json()["error"]) == (422, "invalid_request")
    assert (await client.get(f"/api/uploads/{uuid4()}/warnings", headers=key)).status_code == 404


async def test_a_full_last_page_has_no_cursor(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query, workspace: UUID
) -> None:
    id_ = make_upload(status="completed")
    query("INSERT INTO upload_warnings VALUES (%s, %s, 1, 3, 'a', 'Mind.') RETURNING 1", (id_, workspace))
    for url, name in (("/api/uploads", "uploads"), (f"/api/uploads/{id_}/warnings", "warnings")):
        page = (await client.get(url, headers=key, params={"limit": 1})).json()
        assert (len(page[name]), page["next"]) == (1, None)


async def test_uploads_are_filtered_by_status(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    make_upload(status="completed")
    failed = make_upload(status="failed")
    found = (await client.get("/api/uploads?status=failed", headers=key)).json()["uploads"]
    assert [each["upload_id"] for each in found] == [str(failed)]


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (
            "status=faild",
            "query.status: expected one of 'pending', 'processing', 'staging_complete', 'promoting', 'completed', "
            "'partial' or 'failed'; did you mean 'failed'?",
        ),
        ("limit=0", "query.limit: expected at least 1."),
        ("limit=201", "query.limit: expected at most 200."),
        ("limit=x", "query.limit: expected a whole number."),
        ("before=yesterday", "query.before: expected the `next` value of the previous page."),
    ],
)
async def test_a_wrong_parameter_is_422(
    client: httpx.AsyncClient, key: dict[str, str], wish: str, sentence: str
) -> None:
    answer = await client.get(f"/api/uploads?{wish}", headers=key)
    assert answer.status_code == 422
    assert answer.json() == {"error": "invalid_request", "message": sentence}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"forcepartial": true}', "body: 'forcepartial' is not a field; did you mean 'force_partial'?"),
        (
            b'{"x": true}',
            "body: 'x' is not a field; there is force_partial, as_newest, encoding, delimiter, decimal, "
            "date_order, sum_breakdowns.",
        ),
        (b'{"force_partial": "perhaps"}', "body.force_partial: expected true or false."),
        (b"{force_partial}", "body: expected JSON, got something else at character 1."),
        (b"[1]", "body: expected a JSON object, sent as Content-Type: application/json."),
    ],
)
async def test_an_invalid_body_is_422_and_changes_nothing(
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: MakeUpload,
    query: Query,
    body: bytes,
    sentence: str,
) -> None:
    id_ = make_upload(status="failed")
    headers = key | {"Content-Type": "application/json"}
    answer = await client.post(f"/api/uploads/{id_}/retry", headers=headers, content=body)
    assert answer.status_code == 422
    assert answer.json() == {"error": "invalid_request", "message": sentence}
    assert query("SELECT status FROM data_uploads") == [("failed",)]


async def test_an_upload_has_every_field(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, workspace: UUID
) -> None:
    id_ = make_upload(
        status="partial", row_count=8, total_rows=10, promoted_rows=8, failed_rows=2, rows_read=10,
        warnings=1, bins=Jsonb(BINS), columns=["Day", "Spend"],
        column_report=Jsonb(
            {"columns": [{"header": "Day", "use": "mapped", "fields": ["daily_metric.date"], "note": ""}]}
        ),
        affected_dates=[date(2025, 1, 1), date(2025, 1, 2)],
        promoted=Jsonb({"daily_metric": {"inserted": 5, "updated": 1, "unchanged": 2}}),
        staged=Jsonb({"daily_metric": 8}), error_code="x", error_text="Two rows failed.",
    )  # fmt: skip
    answer = await client.get(f"/api/uploads/{id_}", headers=key)
    assert answer.status_code == 200
    told = answer.json()
    expected = {
        "upload_id": str(id_),
        "workspace_id": str(workspace),
        "status": "partial",
        "row_count": 8,
        "bins": BINS,
        "progress": {"rows_read": 10, "staged": {"daily_metric": 8}, "promoted_rows": 8, "total_rows": 10},
        "promoted": {
            "daily_metric": {"inserted": 5, "updated": 1, "unchanged": 2, "superseded": 0, "failed": 0}
        },
        "affected_dates": ["2025-01-01", "2025-01-02"],
        "columns": [{"header": "Day", "use": "mapped", "fields": ["daily_metric.date"], "note": ""}],
        "error_text": "Two rows failed.",
        "warnings": 1,
    }
    assert {name: told[name] for name in expected} == expected
    assert "file_url" not in told  # paths of stored files are not disclosed


async def test_an_upload_that_does_not_exist_is_404(client: httpx.AsyncClient, key: dict[str, str]) -> None:
    id_ = uuid4()
    answer = await client.get(f"/api/uploads/{id_}", headers=key)
    assert (answer.status_code, answer.json()) == (
        404,
        {
            "error": "unknown_upload",
            "message": f"There is no upload {id_} in this workspace. GET /api/uploads lists its uploads.",
        },
    )
    assert (await client.get("/api/uploads/not-a-uuid", headers=key)).status_code == 422


@pytest.mark.parametrize("status", ["failed", "partial"])
@pytest.mark.parametrize("wish", [None, {"force_partial": True}])
async def test_a_failed_or_partial_upload_can_be_retried(
    client: httpx.AsyncClient,
    key: dict[str, str],
    make_upload: MakeUpload,
    query: Query,
    status: str,
    wish: dict[str, bool] | None,
) -> None:
    id_ = make_upload(status=status, error_text="bad")
    answer = await client.post(f"/api/uploads/{id_}/retry", headers=key, json=wish)
    assert (answer.status_code, answer.json()) == (200, {"upload_id": str(id_), "status": "pending"})
    assert query("SELECT status, force_partial FROM data_uploads") == [("pending", wish is not None)]
    ((action, actor),) = query("SELECT action, actor FROM weighbridge.audit_log")
    assert action == "upload.retry"
    assert actor.startswith("key ")


@pytest.mark.parametrize("status", ["pending", "processing", "staging_complete", "promoting", "completed"])
async def test_no_other_upload_can_be_retried(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query, status: str
) -> None:
    id_ = make_upload(status=status)
    answer = await client.post(f"/api/uploads/{id_}/retry", headers=key)
    assert (answer.status_code, answer.json()) == (
        409,
        {
            "error": "not_retryable",
            "message": f"Only a failed or partial upload can be retried; this one is {status}.",
        },
    )
    assert query("SELECT status FROM data_uploads") == [(status,)]


async def test_a_failed_upload_whose_content_was_sent_again_is_superseded(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload
) -> None:
    content = uuid4().bytes * 2
    failed = make_upload(status="failed", content_sha256=content)
    make_upload(status="completed", content_sha256=content)
    answer = await client.post(f"/api/uploads/{failed}/retry", headers=key)
    assert (answer.status_code, answer.json()["error"]) == (409, "superseded")


def reject(query: Query, id_: UUID, row: int, raw: list[str | None] | None, **more: Any) -> None:
    values = {
        "code": "bad_value",
        "message": "spend: expected an amount.",
        "more": None,
        "stage": "parse",
        **more,
    }
    query(
        "INSERT INTO upload_rejections"
        " (upload_id, workspace_id, row_index, line, stage, code, message, raw, more)"
        " SELECT id, workspace_id, %s, %s, %s, %s, %s, %s, %s FROM data_uploads WHERE id = %s",
        (row, row + 2, values["stage"], values["code"], values["message"], raw, values["more"], id_),
    )


async def test_rejected_rows_are_csv_with_the_columns_of_the_file(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query
) -> None:
    id_ = make_upload(status="completed", columns=["Day", "Campaign, name", "=Spend"])
    reject(query, id_, 7, ["2025-01-02", 'He said "hi"\nagain', "-5"], stage="promote")
    reject(query, id_, 3, ["2025-01-01", "=cmd|' /C calc'!A0", "1.234,50"], more=["day: too early."])
    reject(query, id_, 9, None)
    reject(query, id_, 10, ["2025-01-03", "x", "1", "surplus", "@more"])
    answer = await client.get(f"/api/uploads/{id_}/rejects", headers=key)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="rejects-{id_}.csv"'
    assert list(csv.reader(io.StringIO(answer.text, newline=""))) == [
        ["Day", "Campaign, name", "=Spend", *ADDED],
        [
            "2025-01-01", "=cmd|' /C calc'!A0", "1.234,50", str(id_), "4", "5",
            "bad_value", "spend: expected an amount. day: too early.", "",
        ],
        [
            "2025-01-02", 'He said "hi"\nagain', "-5", str(id_), "8", "9",
            "bad_value", "spend: expected an amount.", "",
        ],
        [
            "", "", "", str(id_), "10", "11", "bad_value", "spend: expected an amount.",
            "The cells are not stored. See line 11 of the file.",
        ],
        [
            "", "", "", str(id_), "11", "12", "bad_value", "spend: expected an amount.",
            "2025-01-03,x,1,surplus,@more",
        ],
    ]  # fmt: skip
    safe = await client.get(f"/api/uploads/{id_}/rejects?spreadsheet_safe=true", headers=key)
    header, first, *_ = csv.reader(io.StringIO(safe.text.removeprefix("\ufeff"), newline=""))
    assert header == ["Day", "Campaign, name", "'=Spend", *ADDED, SAFE]
    assert (first[1], first[-1]) == ("'=cmd|' /C calc'!A0", "yes")


async def test_a_rejected_line_that_is_no_record_has_empty_cells(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query
) -> None:
    """In JSON a record can be anything: its cells are NULL, and its text comes after them."""
    id_ = make_upload(status="completed", columns=["Day", "Spend"], file_kind="json")
    reject(query, id_, 1, [None, None, "1"], code="not_a_record", message="Expected an object, got 1.")
    reject(query, id_, 2, ["2025-01-01", None, '{"Late": 1}'])
    answer = await client.get(f"/api/uploads/{id_}/rejects", headers=key)
    assert list(csv.reader(io.StringIO(answer.text, newline="")))[1:] == [
        ["", "", str(id_), "2", "3", "not_a_record", "Expected an object, got 1.", "1"],
        ["2025-01-01", "", str(id_), "3", "4", "bad_value", "spend: expected an amount.", ""],
    ]


async def test_many_rejected_rows_are_complete_and_in_order(
    client: httpx.AsyncClient, key: dict[str, str], make_upload: MakeUpload, query: Query
) -> None:
    id_ = make_upload(status="completed", columns=["Day"])
    rows = PAGE * 2 + 1
    query(
        "INSERT INTO upload_rejections (upload_id, workspace_id, row_index, line, stage, code, message, raw)"
        " SELECT d.id, workspace_id, n, n + 2, 'parse', 'x', 'y', ARRAY[n::text]"
        " FROM data_uploads d, generate_series(0, %s) n WHERE d.id = %s",
        (rows - 1, id_),
    )
    async with client.stream("GET", f"/api/uploads/{id_}/rejects", headers=key) as answer:
        lines = [line async for line in answer.aiter_lines()]
    assert [line.split(",")[0] for line in lines[1:]] == [str(n) for n in range(rows)]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30 1234", "+49 30 1234"),
        ("+SUM(A1)", "'+SUM(A1)"),
        ("-1.234,50", "-1.234,50"),
        ("-12%", "-12%"),
        ("-cmd", "'-cmd"),
        ("-2+3", "'-2+3"),
        ("-", "'-"),
        ("@home", "'@home"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("'=1", "''=1"),
        ("''", "''"),
        ("plain", "plain"),
        (" =1", " =1"),
        ("", ""),
    ],
)
def test_a_cell_that_could_be_a_formula_is_escaped(cell: str, shown: str) -> None:
    assert escape(cell) == shown
