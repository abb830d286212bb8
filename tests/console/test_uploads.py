"""The pages of uploads and of one upload, in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Browser, BrowserContext, Page, expect

from .conftest import Console, scroll_down, serious
from .files import NAMES, ads, keywords, written

SHIFTS = """() => {
    window.shifts = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
}"""


async def test_nine_files_are_followed_until_they_are_loaded(
    console: Console, page: Page, tmp_path: Path
) -> None:
    files = [written(tmp_path, f"day-{n}.csv", ads(400, campaign=f"C{n}")) for n in range(9)]
    await console.sign_in(page)
    await page.evaluate(SHIFTS)
    await expect(page.locator("#processed")).to_have_text("0 / 0")
    await page.locator("wb-upload input[type=file]").set_input_files(files)
    await expect(page.locator("#processed")).to_have_text("9 / 9", timeout=60_000)
    rows = page.locator("table tbody tr")
    await expect(rows).to_have_count(9)
    await expect(rows.filter(has_text="✓ Completed")).to_have_count(9)
    # Current without a reload, and as in the database.
    ((landed,),) = console.rows("SELECT sum(promoted_rows) FROM data_uploads")
    shown = [int(text.replace(",", "")) for text in await rows.locator("td:nth-child(4)").all_inner_texts()]
    assert sum(shown) == landed == 9 * 400
    # No layout shift, as Chromium measures it (good is below 0.1).
    assert await page.evaluate("window.shifts") < 0.1
    # The same file again is marked, not loaded.
    await page.locator("wb-upload input[type=file]").set_input_files(files[:1])
    await expect(page.get_by_text("sent again 1×")).to_be_visible()
    await expect(page.locator("#processed")).to_have_text("9 / 9")
    assert not await serious(page)


async def test_rejected_rows_are_fixed_and_uploaded_again(
    console: Console, page: Page, tmp_path: Path
) -> None:
    await console.send("spend.csv", ads(40, broken=2), platform="meta")
    await console.sign_in(page)
    await page.get_by_role("link", name="spend.csv").click()
    await expect(page.locator(".state").first).to_contain_text("Completed", timeout=30_000)
    # The bins add up to the file.
    shown = [int(text.replace(",", "")) for text in await page.locator(".legend b").all_inner_texts()]
    assert sum(shown) == 41
    await page.locator("#rejected").get_by_role("link", name="2 rows").click()
    cells = page.locator("tbody tr").first.locator("td")
    await expect(cells.nth(0)).to_have_text("40")
    await expect(page.locator("td.wrong-cell").first).to_have_text("see invoice")
    assert not await serious(page)
    await page.go_back()
    async with page.expect_download() as told:
        await page.get_by_role("link", name="Download as CSV").click()
    rejects = tmp_path / "mended.csv"
    await (await told.value).save_as(rejects)
    rejects.write_text(rejects.read_text().replace("see invoice", "7.25"))
    await page.get_by_role("link", name="Uploads", exact=True).first.click()
    await page.get_by_label("Platform").select_option("meta")
    await page.get_by_label("File type").select_option("ads")
    await page.locator("wb-upload input[type=file]").set_input_files(rejects)
    await expect(page.locator("#processed")).to_have_text("2 / 2", timeout=30_000)
    await page.get_by_role("link", name="mended.csv").first.click()
    await expect(page.locator("#changed")).to_contain_text("daily_metrics")
    assert console.rows("SELECT count(*) FROM daily_metrics WHERE spend = 7.25") == [(2,)]
    # The rows have left the open rejects of the first file, and the two uploads are linked.
    await expect(page.locator("#facts")).to_contain_text("Fixes rows of")
    await page.locator("#facts").get_by_role("link", name="spend.csv").click()
    await expect(page.locator("#rejected")).to_contain_text("2 fixed by mended.csv (2); 0 open.")
    await expect(page.get_by_role("link", name="Download as CSV")).to_have_count(0)
    assert not await serious(page)
    async with page.expect_download() as told:
        await page.get_by_role("link", name="Download all rejected rows").click()
    assert "see invoice" in (await (await told.value).path()).read_text()


async def test_rejected_rows_for_a_spreadsheet_program(console: Console, page: Page) -> None:
    await console.send("spend.csv", ads(40, broken=2).replace("see invoice", "=1+1"), platform="meta")
    await console.sign_in(page)
    await page.get_by_role("link", name="spend.csv").click()
    await expect(page.locator(".state").first).to_contain_text("Completed", timeout=30_000)
    async with page.expect_download() as told:
        await page.get_by_role("link", name="Download for a spreadsheet program").click()
    text = (await (await told.value).path()).read_text()
    assert text.count(",'=1+1,") == text.count(",yes\n") == 2


async def test_the_batch_name_of_a_failed_file_is_released(console: Console, page: Page) -> None:
    await console.send("poor.csv", ads(10, broken=6), platform="meta", source_batch_id="monday")
    await console.sign_in(page)
    await page.get_by_role("link", name="poor.csv").click()
    await expect(page.locator(".state").first).to_contain_text("Error", timeout=30_000)
    await page.get_by_role("button", name="Release the batch name").click()
    await expect(page.get_by_text("The batch name monday is free")).to_be_visible()
    await expect(page.locator("#facts")).to_contain_text("Released batch name")
    await expect(page.get_by_role("button", name="Release the batch name")).to_have_count(0)


async def test_a_file_with_few_valid_rows_fails_with_its_reason_and_can_be_forced(
    console: Console, page: Page
) -> None:
    await console.send("poor.csv", ads(10, broken=6), platform="meta")
    await console.sign_in(page)
    await page.get_by_role("link", name="poor.csv").click()
    await expect(page.locator(".state").first).to_contain_text("Error", timeout=30_000)
    await expect(page.locator(".callout.bad")).to_be_visible()
    await page.get_by_role("button", name="Force partial").click()
    await expect(page.locator(".noted")).to_contain_text("queued again")
    await expect(page.locator(".state").first).to_contain_text("Partially completed", timeout=30_000)
    await expect(page.locator("#changed td.number").first).not_to_have_text("0")
    told = page.locator("#timeline b")
    begun = ["received", "attempt opened", "processing"]
    ended = ["staging_complete", "promoting", "partial"]
    for moment in (*begun, "failed", *ended):
        await expect(told.get_by_text(moment, exact=True).first).to_be_visible()
    retried = page.locator("#timeline li").filter(has=page.get_by_text("upload.retry, by force"))
    await expect(retried).to_contain_text("a person (key ")
    happened = await told.all_inner_texts()
    assert happened.index("upload.retry, by force") < happened.index("pending"), (
        happened
    )  # the word, then what it did
    await expect(page.locator("#timeline")).not_to_contain_text("/api/")
    failed = page.locator("#timeline li").filter(has=page.get_by_text("failed", exact=True))
    await expect(failed).to_contain_text(
        "Only 40.0% of 10 rows are valid"
    )  # kept, though it went in after all
    assert (await told.all_inner_texts())[:3] == begun
    assert not await serious(page)


async def test_names_are_escaped(console: Console, page: Page) -> None:
    for number, name in enumerate(NAMES):
        await console.send(name, ads(3, campaign=f"N{number}"), platform="meta")
    await console.sign_in(page)
    for number, name in enumerate(reversed(NAMES)):
        link = page.locator("tbody tr").nth(number).get_by_role("link").first
        assert await link.text_content() == "".join(c for c in name if c.isprintable())[:255]
    assert await page.locator("img").count() == 0
    width = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
    await page.locator("tbody tr").nth(1).get_by_role("link").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(NAMES[1][:255])


async def test_a_read_only_key_sees_no_action(console: Console, page: Page) -> None:
    await console.send("poor.csv", ads(10, broken=6), platform="meta")
    await console.sign_in(page, "read")
    await expect(page.locator("wb-upload")).to_have_count(0)
    await page.get_by_role("link", name="poor.csv").click()
    await expect(page.locator(".state").first).to_contain_text("Error", timeout=30_000)
    assert await page.get_by_role("button").all_inner_texts() == ["Sign out"]


async def test_lists_are_filtered_searched_and_endless(console: Console, page: Page) -> None:
    console.query("ALTER TABLE data_uploads DISABLE TRIGGER USER")
    console.query(
        "INSERT INTO data_uploads (workspace_id, platform, source, pipeline, filename, file_url, content_sha256,"
        " byte_size, status, created_at, started_at, finished_at, error_code, error_text)"
        " SELECT %s, 'meta', 'api', CASE WHEN n %% 2 = 0 THEN 'ads' ELSE 'judgments' END, 'export-' || n || '.csv',"
        " 'file:///x', sha256(n::text::bytea), 1, CASE WHEN n %% 10 = 0 THEN 'failed' ELSE 'completed' END,"
        " now() - n * interval '1 s', now(), now(), CASE WHEN n %% 10 = 0 THEN 'bad' END,"
        " CASE WHEN n %% 10 = 0 THEN 'It was wrong.' END FROM generate_series(1, 160) n",
        (console.workspace,),
    )
    console.query("ALTER TABLE data_uploads ENABLE TRIGGER USER")
    await console.sign_in(page)
    rows = page.locator("tbody tr")
    await expect(page.locator("#processed")).to_have_text("160 / 160")
    await scroll_down(page, rows, 160)
    names = await rows.locator("td.name a").all_inner_texts()
    assert names == [f"export-{n}.csv" for n in range(1, 161)]
    # New uploads remove nothing from the list.
    await console.send("new.csv", ads(3), platform="meta")
    await page.mouse.wheel(0, -50_000)
    await expect(rows).to_have_count(161, timeout=15_000)
    await expect(rows.first).to_contain_text("Completed", timeout=15_000)
    # An upload that no longer matches the filter disappears, and no upload is shown twice.
    await console.open(page, "/uploads?kind=completed")
    await scroll_down(page, rows, 145)
    console.query(
        "UPDATE data_uploads SET created_at = created_at - interval '1 day' WHERE workspace_id = %s"
        " AND filename IN ('export-1.csv', 'export-61.csv', 'export-62.csv')",
        (console.workspace,),
    )
    await page.mouse.wheel(0, -50_000)
    await expect(page.locator("tbody tr").first).to_contain_text("new.csv")
    await expect(page.locator("tbody tr").nth(1)).to_contain_text("export-2.csv")
    for _ in range(10):  # what cannot be seen is fresh once it can
        await page.mouse.wheel(0, 1000)
        await page.wait_for_timeout(100)
    await expect(rows).to_have_count(145)
    ids = [await row.get_attribute("id") for row in await rows.all()]
    assert len(set(ids)) == len(ids)
    await page.get_by_role("link", name="Failed", exact=True).click()
    await expect(rows).to_have_count(16)
    await page.get_by_label("Name").fill("export-15")
    await page.get_by_role("button", name="Find").click()
    await expect(rows).to_have_count(1)
    await page.get_by_role("link", name="All", exact=True).click()
    await page.get_by_label("Pipeline").select_option("judgments")
    await page.get_by_role("button", name="Find").click()
    assert re.search(r"pipeline=judgments", page.url)
    await expect(rows.first).to_contain_text("judgments")
    await console.open(page, "/uploads?q=nothing-of-that-name")
    await expect(rows).to_have_text("No uploads match.")


async def test_every_page_works_without_scripts(console: Console, browser: Browser, tmp_path: Path) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await console.sign_in(page)
    await page.get_by_label("File type").select_option("ads")
    await page.get_by_label("Platform").select_option("meta")
    await page.locator("input[name=file]").set_input_files(
        [written(tmp_path, "plain.csv", ads(10, broken=6))]
    )
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".noted")).to_have_text("The file is uploaded.")
    for _ in range(100):
        if "Error" in await page.locator(".state").first.inner_text():
            break
        await page.reload()
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".noted")).to_have_text("The upload is queued again.")
    await console.open(page, "/uploads")
    await page.locator("input[name=file]").set_input_files(
        [written(tmp_path, "one.csv", ads(3, campaign="A")), written(tmp_path, "two.pdf", "%PDF-1.7\n")]
    )
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".noted")).to_contain_text("1 of 2 files uploaded. two.pdf:")
    await context.close()


async def test_pages_work_on_a_phone_and_in_dark_mode(console: Console, browser: Browser) -> None:
    await console.send("poor.csv", ads(10, broken=6), platform="meta")
    await console.send("words.csv", keywords("red shoes", "blue shoes"), pipeline="keywords", project_id=7)
    context: BrowserContext = await browser.new_context(
        color_scheme="dark", viewport={"width": 390, "height": 800}, has_touch=True
    )
    page = await context.new_page()
    await console.sign_in(page)
    for path in ("/uploads", "/storage", "/health", "/projects", "/deliveries"):
        await console.open(page, path)
        assert not await serious(page), path
        over = await page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert over <= 0, path
    await context.close()
