"""A file of conversions all the way: intake, sales, the queue, a provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from weighbridge.app import App
from weighbridge.cli.uploads.load import load_files
from weighbridge.cli.uploads.report import FileResult
from weighbridge.uploads.check_request import Request

from .conftest import MakeSite, Query, Run, Scripted

Load = Callable[..., Awaitable[FileResult]]
HEADER = "Order ID,Conversion Time,Conversion Value,Conversion Currency,GCLID,Click Time"


@pytest.fixture
def load(app: App, workspace: UUID, tmp_path: Path) -> Load:
    """`await load(site, "1,2026-…")`: these lines as a file, as `weighbridge load` does it."""

    async def load(site: UUID | None, *lines: str, header: str = HEADER, **more: Any) -> FileResult:
        file = tmp_path / f"leads-{uuid4()}.csv"
        file.write_text("\n".join([header, *lines]) + "\n")
        request = Request(workspace_id=workspace, client_id=site, pipeline="conversions", **more)
        [outcome] = await load_files(app, [(file, request)], bar=False)
        return outcome

    return load


@pytest.fixture
def yesterday(query: Query) -> str:
    return str(query("SELECT (weighbridge.now() - INTERVAL '1 day')::timestamptz(0)::text")[0][0])


async def test_a_file_ends_in_deliveries(
    load: Load, make_site: MakeSite, run: Run, google: Scripted, query: Query, yesterday: str
) -> None:
    site = make_site("google_ads", "meta_capi")
    outcome = await load(site, *(f"order-{n},{yesterday},{n}.5,EUR,gclid-canary-{n}," for n in range(3)))
    assert outcome.upload is not None
    assert outcome.upload.status == "completed"
    assert query(
        "SELECT order_id, provider_key, status, value FROM offline_conversion_queue ORDER BY order_id"
    ) == [(f"order-{n}", "google_ads", "QUEUED", n + 0.5) for n in range(3)]
    assert query("SELECT DISTINCT site_id = client_id, upload_id FROM sales") == [(True, outcome.upload.id)]
    assert (await run()).completed == 3
    assert sorted(google.sent) == ["order-0", "order-1", "order-2"]


async def test_the_same_sales_in_another_file_create_no_new_deliveries(
    load: Load, make_site: MakeSite, run: Run, query: Query, yesterday: str
) -> None:
    site = make_site()
    await load(site, f"order-1,{yesterday},1,EUR,abc,", f"order-2,{yesterday},1,EUR,abc,")
    assert (await run(1)).completed == 1
    await load(site, f"order-1,{yesterday},7,EUR,abc,", f"order-2,{yesterday},7,EUR,abc,")
    found = "SELECT order_id, status, value FROM offline_conversion_queue ORDER BY order_id"
    assert query(found) == [
        ("order-1", "COMPLETED", 1),
        ("order-2", "QUEUED", 7),
    ]  # what was sent stays as it was
    assert query("SELECT DISTINCT value FROM sales") == [(7,)]
    assert (await run()).completed == 1


async def test_wrong_rows_are_rejected_and_the_others_are_loaded(
    load: Load, make_site: MakeSite, query: Query, yesterday: str
) -> None:
    lines = [f"order-{n},{yesterday},1,EUR,abc{n}," for n in range(30)]
    lines += [f"a,{yesterday},1,,abc,", "b,2190-01-31 10:00:00,1,EUR,abc,", f"c,{yesterday},1,EUR,,"]
    outcome = await load(make_site(), *lines)
    assert outcome.upload is not None
    assert outcome.upload.status == "completed"
    codes = query("SELECT code, stage FROM upload_rejections ORDER BY line")
    assert codes == [("missing_currency", "parse"), ("in_future", "parse"), ("no_click_id", "parse")]
    assert query("SELECT count(*) FROM offline_conversion_queue") == [(30,)]


async def test_a_row_that_contradicts_the_stored_sale_is_rejected_by_promotion(
    load: Load, make_site: MakeSite, query: Query
) -> None:
    """The stored sale has a click that is later than the sale time in this file."""
    site = make_site()
    await load(site, "1,2026-01-31 10:00:00,,,abc,2026-01-31 09:00:00")
    later = "1,2026-01-31 08:00:00,,,abc,", "2,2026-01-31 08:00:00,,,abc,"
    outcome = await load(site, *later)
    assert outcome.upload is not None
    assert outcome.upload.status == "partial"
    [(code, message)] = query("SELECT code, message FROM upload_rejections")
    assert (code, message.startswith("sale: not written, The row violates the constraint")) == (
        "check_violation",
        True,
    )
    assert query("SELECT order_id FROM sales ORDER BY order_id") == [("1",), ("2",)]


async def test_a_file_without_a_site_of_its_workspace_is_refused_and_the_error_shows_how_to_create_one(
    load: Load, make_site: MakeSite, query: Query
) -> None:
    theirs = make_site(workspace_id=uuid4())
    for site, code in ((None, "missing_site"), (uuid4(), "unknown_site"), (theirs, "unknown_site")):
        refusal = (await load(site, "1,2026-01-31 10:00:00,,,abc,")).refusal
        assert refusal is not None
        assert (refusal.status, refusal.code) == (422, code)
        assert "To create one: POST /api/sites, or weighbridge sites create." in refusal.message
    assert query("SELECT count(*) FROM data_uploads") == [(0,)]
    assert query("SELECT count(*) FROM sales") == [(0,)]
