"""Read options in the form for files, and columns, warnings and options on the page of an upload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from psycopg.types.json import Jsonb

from .conftest import Console, serious
from .files import ads, written

LONG = "Cost per " + "unbreakable" * 12
REPORT = {
    "columns": [
        {"header": "Day", "use": "mapped", "fields": ["daily_metric.date"], "note": ""},
        {
            "header": "Campaign name",
            "use": "mapped",
            "fields": ["campaign.name", "daily_metric.campaign_id"],
            "note": "",
        },
        {"header": "Currency", "use": "kept", "fields": [], "note": "the currency of all amounts"},
        {"header": LONG, "use": "unused", "fields": [], "note": ""},
        {"header": "<b>Reach</b>", "use": "unused", "fields": [], "note": ""},
    ],
    "missing": [
        {"field": "daily_metric.spend", "header": "Amount spent", "guess": "Spent"},
        {"field": "daily_metric.clicks", "header": "Clicks", "guess": ""},
    ],
}
WARNED = (
    ("unused_columns", f"2 columns are unused: {LONG}, <b>Reach</b>."),
    ("missing_fields", "No column fills daily_metric.spend."),
)


async def reported(console: Console, content: str, **fields: Any) -> str:
    """An upload that has ended, with columns and warnings as parsing notes them."""
    id_ = (await console.send("report.csv", content, platform="meta", **fields))["upload_id"]
    secret = await console.key("upload", "read", "operate")
    async with httpx.AsyncClient(
        base_url=console.url, headers={"Authorization": f"Bearer {secret}"}
    ) as client:
        for _ in range(200):
            if (await client.get(f"/api/uploads/{id_}")).json()["finished_at"]:
                break
    console.query(
        "UPDATE data_uploads SET column_report = %s, warnings = 2 WHERE id = %s", (Jsonb(REPORT), id_)
    )
    for code, message in WARNED:
        console.query(
            "INSERT INTO upload_warnings (upload_id, workspace_id, row_index, line, code, message)"
            " VALUES (%s, %s, -1, 1, %s, %s)",
            (id_, console.workspace, code, message),
        )
    return str(id_)


@pytest.mark.parametrize(("broken", "state"), [(0, "Completed"), (8, "Error")])
async def test_an_upload_shows_its_columns_warnings_and_options(
    console: Console, page: Page, broken: int, state: str
) -> None:
    id_ = await reported(
        console, ads(10, broken=broken), encoding="utf-8", delimiter="comma", date_order="ymd"
    )
    await console.sign_in(page)
    await page.set_viewport_size({"width": 360, "height": 800})
    await console.open(page, f"/uploads/{id_}")
    await expect(page.locator(".state").first).to_contain_text(state)
    facts = page.locator("#facts")
    for label, value in (
        ("Encoding", "utf-8"),
        ("Column delimiter", "comma"),
        ("Date order", "ymd"),
    ):
        await expect(facts.get_by_text(label, exact=True)).to_be_visible()
        await expect(facts.get_by_text(value, exact=True)).to_be_visible()
    for code, message in WARNED:
        await expect(page.locator("#warnings li").filter(has_text=code)).to_contain_text(message)
    columns = page.locator("#columns")
    await expect(columns.locator("summary")).to_have_text("5 columns, 2 mapped, 1 kept, 2 unused")
    rows = columns.locator("tbody tr")
    told = [" ".join((await row.inner_text()).split()) for row in await rows.all()]
    assert told == [
        "Day mapped daily_metric.date",
        "Campaign name mapped campaign.name, daily_metric.campaign_id",
        "Currency kept the currency of all amounts",
        f"{LONG} unused",
        "<b>Reach</b> unused",
    ]
    await expect(columns.locator("tbody .state")).to_have_count(2)
    missing = columns.locator("#missing li")
    await expect(missing).to_have_count(2)
    await expect(missing.first).to_contain_text("usual header: Amount spent; nearest column: Spent")
    over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0
    assert not await serious(page)


async def test_a_file_is_uploaded_with_the_options_of_the_form(
    console: Console, page: Page, tmp_path: Path
) -> None:
    await console.sign_in(page)
    await page.set_viewport_size({"width": 360, "height": 800})
    form = page.locator("wb-upload form")
    await expect(form.get_by_label("Encoding")).to_be_hidden()
    await form.get_by_text("Read options").click()
    await form.get_by_label("Encoding").select_option("windows-1252")
    await form.get_by_label("Column delimiter").select_option("Comma (,)")
    await form.get_by_label("Decimal mark").select_option("point")
    await form.get_by_label("Date order").select_option("ymd")
    await form.get_by_label("Add up breakdown rows").check()
    over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0
    assert not await serious(page)
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "a.csv", ads(3)))
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    assert console.rows("SELECT reading FROM data_uploads") == [
        (
            {
                "encoding": "windows-1252",
                "delimiter": ",",
                "decimal": ".",
                "date_order": "ymd",
                "sum_breakdowns": True,
            },
        )
    ]


async def test_the_form_and_a_retry_take_options_without_scripts(
    console: Console, browser: Browser, tmp_path: Path
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await console.sign_in(page)
    await page.get_by_label("File type").select_option("ads")
    await page.get_by_label("Platform").select_option("meta")
    await page.get_by_text("Read options").click()
    await page.get_by_label("Date order").select_option("mdy")
    await page.get_by_label("Column delimiter").select_option("comma")
    await page.get_by_label("Add up breakdown rows").check()
    await page.locator("input[name=file]").set_input_files([written(tmp_path, "a.csv", ads(10, broken=8))])
    await page.get_by_role("button", name="Send").click()
    for _ in range(100):
        if "Error" in await page.locator(".state").first.inner_text():
            break
        await page.reload()
    reading = {"date_order": "mdy", "delimiter": ",", "sum_breakdowns": True}
    assert console.rows("SELECT reading FROM data_uploads") == [(reading,)]
    await page.get_by_text("Retry with other read options").click()
    await expect(page.get_by_label("Date order")).to_have_value("mdy")
    await expect(page.get_by_label("Column delimiter")).to_have_value("comma")
    await page.get_by_label("Date order").select_option("ymd")
    await page.get_by_label("Column delimiter").select_option("Detect")
    await page.get_by_label("Add up breakdown rows").uncheck()
    await page.get_by_role("button", name="Retry with these options").click()
    await expect(page.locator(".noted")).to_have_text("The upload is queued again with the new read options.")
    assert console.rows("SELECT reading FROM data_uploads") == [({"date_order": "ymd"},)]
    await context.close()


async def test_an_attribute_sets_an_option_for_every_file(
    console: Console, page: Page, tmp_path: Path
) -> None:
    await console.sign_in(page)
    await page.locator("wb-upload").evaluate(
        "(element) => { element.setAttribute('date-order', 'dmy'); element.setAttribute('sum-breakdowns', ''); }"
    )
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "a.csv", ads(3)))
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    assert console.rows("SELECT reading FROM data_uploads") == [
        ({"date_order": "dmy", "sum_breakdowns": True},)
    ]
