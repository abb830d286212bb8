"""Preview: the changes of a file are shown before they are promoted or discarded."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from .conftest import Console, serious
from .files import ads, written


async def test_a_preview_shows_old_and_new_and_is_promoted_or_discarded(
    console: Console, context: BrowserContext, page: Page, tmp_path: Path
) -> None:
    await console.send("first.csv", ads(30), platform="meta")
    await console.sign_in(page)
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    changed = ads(40, broken=2).replace("1.50\n", "99.00\n", 1)
    await page.get_by_label("Preview first").check()
    await page.locator("wb-upload input[type=file]").set_input_files(
        written(tmp_path, "changed.csv", changed)
    )
    await page.get_by_role("link", name="Preview the changes").click(timeout=30_000)
    table = page.locator("table").first
    grain = table.get_by_role("row").filter(has_text="daily_metrics")
    await expect(grain.get_by_role("cell")).to_have_text(
        [
            "daily_metrics",
            "8 inserted in daily_metrics",
            "1 updated in daily_metrics",
            "29 unchanged in daily_metrics",
        ]
    )
    await expect(page.locator("ins").first).to_have_text("99.000000")
    await expect(page.locator("del").first).to_have_text("1.500000")
    await expect(page.get_by_text("2 rejected")).to_be_visible()
    assert not await serious(page)
    desk = page.viewport_size
    assert desk is not None
    await page.set_viewport_size({"width": 360, "height": 740})
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.set_viewport_size(desk)
    assert console.rows("SELECT count(*) FROM daily_metrics WHERE spend = 99") == [(0,)]
    await page.get_by_role("link", name="8 inserted").click()
    await expect(page.locator("[data-rows] tr")).to_have_count(8)
    # Two tabs: one decides, the other shows the decision.
    other = await context.new_page()
    await console.open(other, page.url.removeprefix(console.url))
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator(".state").first).to_contain_text("✕ Discarded")
    await other.get_by_role("button", name="Promote").click()
    await expect(other.locator(".noted")).to_contain_text("was discarded")
    assert console.rows("SELECT count(*) FROM daily_metrics WHERE spend = 99") == [(0,)]
    # No failure, in the list either. Sent again, and promoted.
    await console.open(page, "/uploads")
    figures = page.locator("#counts")
    await expect(figures).to_contain_text(re.compile(r"2 / 2.*Failed\s*0\s*Discarded\s*1", re.DOTALL))
    await page.get_by_role("link", name="Failed", exact=True).click()
    await expect(page.locator("[data-rows]")).to_contain_text("No uploads match.")
    await page.get_by_role("link", name="Discarded", exact=True).click()
    await expect(page.locator("[data-rows] tr")).to_have_count(1)
    await console.open(page, "/uploads")
    await page.get_by_label("Preview first").check()
    await page.locator("wb-upload input[type=file]").set_input_files(
        written(tmp_path, "changed.csv", changed)
    )
    await page.get_by_role("link", name="Preview the changes").click(timeout=30_000)
    await page.get_by_role("button", name="Promote").click()
    await expect(page.locator(".state").first).to_contain_text("Completed", timeout=30_000)
    await expect(
        page.locator("#changed").get_by_role("row").filter(has_text="daily_metrics")
    ).to_contain_text("8")
    assert console.rows("SELECT count(*) FROM daily_metrics WHERE spend = 99") == [(1,)]
