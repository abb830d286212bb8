"""Without JavaScript, every page opens and every form works."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.cli.outbound import google
from tests.deliver.conftest import Sell, sell
from tests.projects.conftest import keyword_file
from weighbridge.app import App
from weighbridge.testing.fake_providers import FakeGoogleAds

from .conftest import Console
from .files import ads
from .test_access import _routes
from .test_deliveries import delivering, make_site


@pytest.fixture
async def plain(browser: Browser) -> AsyncIterator[Page]:
    """A tab with JavaScript disabled."""
    context = await browser.new_context(java_script_enabled=False)
    context.set_default_timeout(15_000)
    yield await context.new_page()
    await context.close()


async def until(page: Page, place: Locator, text: str) -> None:
    """Reload the page until it shows the text."""
    for _ in range(150):
        if text in await place.inner_text():
            return
        await page.wait_for_timeout(100)
        await page.reload()
    raise AssertionError(f"the page never said {text!r}, but {await place.inner_text()!r}")


def noted(page: Page, text: str) -> Any:
    return expect(page.locator(".noted")).to_contain_text(text)


# The heading of each page; `/` redirects to the uploads.
HEADINGS = {
    "/sign-in": "Sign in",
    "/": "Uploads",
    "/uploads": "Uploads",
    "/uploads/{upload_id}": "poor.csv",
    "/uploads/{upload_id}/rows": "Rejected: ",
    "/uploads/{upload_id}/preview": "Preview: no rows are written yet",
    "/projects": "Projects",
    "/projects/{project_id}": "Project 7",
    "/deliveries": "Deliveries",
    "/deliveries/{sale_id}": "Order order-1",
    "/storage": "Storage",
    "/health": "Health",
}


async def test_every_page_opens(
    delivering: Console, google: FakeGoogleAds, plain: Page, sell: Sell, app: App
) -> None:
    pages = {route.path for route in _routes(app) if getattr(route.endpoint, "__module__", "").startswith(
        "weighbridge.console") and "GET" in route.methods}  # fmt: skip
    assert set(HEADINGS) == {path for path in pages if not path.startswith("/static")}

    poor = (await delivering.send("poor.csv", ads(10, broken=6), platform="meta"))["upload_id"]
    held = (await delivering.send("held.csv", ads(3), platform="meta", preview="true"))["upload_id"]
    await delivering.send("k.csv", keyword_file([("red tv", 1)]), pipeline="keywords", project_id=7)
    [sale] = sell(make_site(delivering), 1)
    await delivering.sign_in(plain)
    await delivering.open(plain, f"/uploads/{held}")
    await until(plain, plain.locator("#now"), "On hold")
    await delivering.open(plain, f"/uploads/{poor}")
    await until(plain, plain.locator("#rejected"), "Download")
    rows = await plain.locator("#rejected table a").first.get_attribute("href")
    paths = {
        "/uploads/{upload_id}": [f"/uploads/{poor}"],
        "/uploads/{upload_id}/rows": [rows or ""],
        "/uploads/{upload_id}/preview": [f"/uploads/{held}/preview"],
        "/projects/{project_id}": [
            f"/projects/7?tab={tab}" for tab in ("files", "groups", "keywords", "tokens")
        ],
        "/deliveries/{sale_id}": [f"/deliveries/{sale}"],
    }
    for route, heading in HEADINGS.items():
        for path in paths.get(route, [route]):
            answer = await plain.goto(f"{delivering.url}{path}")
            assert answer is not None
            assert answer.status == 200, path
            await expect(plain.get_by_role("heading", level=1)).to_contain_text(heading)
            await expect(plain.locator("main")).to_be_visible()


async def test_a_preview_is_promoted_or_discarded(console: Console, plain: Page) -> None:
    await console.sign_in(plain)
    for number, (button, said, state) in enumerate(
        (
            ("Discard", "None of its rows were written", "Discarded"),
            ("Promote", "The upload is promoted", "Completed"),
        )
    ):
        sent = await console.send(f"{number}.csv", ads(3, campaign=button), platform="meta", preview="true")
        await console.open(plain, f"/uploads/{sent['upload_id']}")
        await until(plain, plain.locator("#now"), "On hold")
        await plain.get_by_role("link", name="Preview", exact=True).click()
        await plain.get_by_role("button", name=button).click()
        await noted(plain, said)
        await until(plain, plain.locator("#now"), state)
        assert console.rows("SELECT count(*) FROM daily_metrics") == [(3 * number,)]


async def test_files_that_wait_for_the_store_are_retried_and_dropped(
    consoles: Callable[..., Console], plain: Page, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_text("not a folder: nothing can be stored here")
    console = consoles(
        WEIGHBRIDGE_BLOB_URL=store, WEIGHBRIDGE_STORAGE_RETRIES=1, WEIGHBRIDGE_POLL_SECONDS=0.2
    )
    await console.sign_in(plain)
    await console.send("lost.csv", ads(3), platform="meta")
    await console.open(plain, "/uploads")
    await expect(plain.locator("tbody tr")).to_contain_text("Processing")
    # A waiting file counts as in progress, in the count and in its row.
    standing = plain.locator("#counts")
    await expect(standing).to_contain_text("Queued0")
    await expect(standing).to_contain_text("Processing1")
    await console.open(plain, "/storage")
    queue = plain.locator("#queue")
    await plain.get_by_role("button", name="Retry now").click()
    await noted(plain, "The file is queued for an immediate retry")
    await until(plain, queue, "Failed")
    await plain.get_by_role("button", name="Drop").click()
    await noted(plain, "has to upload it again")
    await expect(queue).to_contain_text("No files wait for the store.")
    # Another file, which is stored after the store is back.
    await console.send("kept.csv", ads(4), platform="meta")
    await plain.reload()
    os.unlink(store)
    store.mkdir()
    await plain.get_by_role("button", name="Retry now").click()
    await until(plain, queue, "No files wait for the store.")
    await console.open(plain, "/uploads")
    await until(plain, plain.locator("tbody tr").filter(has_text="kept.csv"), "Completed")


async def test_a_project_is_created_filled_and_edited(console: Console, plain: Page) -> None:
    await console.sign_in(plain)
    await console.open(plain, "/projects")
    await plain.get_by_label("Name").fill("Shop")
    await plain.get_by_role("button", name="Create").click()
    await expect(plain.get_by_role("heading", level=1)).to_contain_text("Shop")
    await plain.get_by_text("Rename the project").click()
    await plain.get_by_label("Name", exact=True).fill("Outlet")
    await plain.get_by_role("button", name="Rename").click()
    await expect(plain.get_by_role("heading", level=1)).to_contain_text("Outlet")
    words = [("red tv", 9), ("red television", 8), ("blue shoes", 7), ("shoes blue", 6)]
    await console.send("good.csv", keyword_file(words), pipeline="keywords", project_id=1)
    await console.send("broken.csv", b"Nonsense,Columns\n1,2\n", pipeline="keywords", project_id=1)
    await plain.reload()
    # The first may be grouped before the second is received.
    await until(plain, plain.locator("#counts"), "2 / 2")
    await until(plain, plain.locator("#project"), "Grouped")
    await plain.get_by_label("load the valid rows even if too many are invalid").check()
    await plain.get_by_role("button", name="Retry 1 failed").click()
    await noted(plain, "1 file queued again.")
    await until(plain, plain.locator("#project .heading"), "Complete")
    await expect(plain.get_by_role("row").filter(has_text="broken.csv").locator("td").last).to_have_text("2")

    # Tokens.
    await plain.get_by_role("link", name=re.compile("^Words")).click()
    await plain.get_by_label("Words", exact=True).fill("tv")
    await plain.get_by_label("Merge into").fill("television")
    await plain.get_by_role("button", name="Merge").click()
    await noted(plain, "The groups are updated.")
    await plain.get_by_role("link", name="Groups").click()
    groups = plain.locator("[data-rows] tr")
    await expect(groups).to_have_count(2)
    await plain.get_by_role("link", name=re.compile("^Words")).click()
    await plain.get_by_role("button", name="Unmerge tv").click()
    await noted(plain, "no longer merged")
    # Groups.
    await plain.get_by_role("link", name="Groups").click()
    await expect(groups).to_have_count(3)
    await plain.get_by_label("Groups that contain").fill("blue")
    await plain.get_by_role("button", name="Search").click()
    await expect(groups).to_have_count(1)
    await plain.get_by_text("Rename…").click()
    await plain.get_by_label("Name (empty: parent keyword)").fill("Blues")
    await plain.get_by_role("button", name="Rename").click()
    await expect(groups).to_contain_text("Blues")
    for button, text in (
        ("Confirm", "automatic grouping no longer changes this group"),
        ("Unconfirm", "Automatic grouping may change this group again"),
    ):
        await plain.get_by_role("button", name=button, exact=True).click()
        await noted(plain, text)
    # Keywords, and back to where grouping has them.
    await plain.get_by_role("link", name="Keywords").click()
    await plain.get_by_label("Select red tv").check()
    await plain.get_by_label("Name or parent keyword of the group").fill("Blues")
    await plain.get_by_role("button", name="Move").click()
    await noted(plain, "1 keyword moved to the group")
    await expect(plain.get_by_role("row").filter(has_text="red tv")).to_contain_text("moved manually")
    await plain.get_by_role("link", name="Groups").click()
    await plain.get_by_label("include manually moved keywords").check()
    await plain.get_by_role("button", name="Regroup").click()
    await noted(plain, "1 keyword was moved")


async def test_failed_conversions_are_found_and_requeued_by_their_error(
    delivering: Console, google: FakeGoogleAds, plain: Page, sell: Sell
) -> None:
    site = make_site(delivering, "Shop")
    for order in ("order-1", "order-2"):
        google.refuse(order, "INVALID_GCLID")
    sell(site, 3)
    await delivering.sign_in(plain)
    await delivering.open(plain, "/deliveries")
    figures = plain.locator("#groups dl")
    await until(plain, figures, "Failed\n2")
    await plain.locator("#site_id").select_option("Shop")
    await plain.locator("#status").select_option("Failed")
    await plain.locator("#category").select_option("VALIDATION")
    await plain.get_by_role("button", name="Show").click()
    await expect(plain.locator("[data-rows] tr")).to_have_count(2)
    google.refuse("order-1")
    await plain.get_by_role("button", name="Retry all conversions that failed with INVALID_GCLID").click()
    await noted(plain, "2 conversions are queued again.")
    await until(plain, figures, "Delivered in 24 hours\n2")
    google.refuse("order-2")
    await until(plain, figures, "Failed\n1")
    await plain.get_by_role("button", name="Retry all VALIDATION errors").click()
    await noted(plain, "1 conversion is queued again.")
    await until(plain, figures, "Delivered in 24 hours\n3")


__all__ = ["delivering", "google", "sell"]  # fixtures
