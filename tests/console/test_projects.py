"""The pages of a project: nine files finish while a user tries to edit the groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from playwright.async_api import Browser, Locator, Page, expect

from tests.projects.conftest import keyword_file, numbered

from .conftest import Console, scroll_down, serious

GATE = "LOCK TABLE keywords IN SHARE ROW EXCLUSIVE MODE"  # nobody gets a keyword in
LOCKED = "CSV processing in progress. Grouping is temporarily locked until import completes."
MARKUP = "<img src=x onerror=alert(1)> & co.csv"
RTL = "متجر 2024 أحذية.csv"


@contextmanager
def held_up(console: Console) -> Iterator[None]:
    """Files stay in processing until this context ends."""
    with psycopg.connect(console.database_url) as connection:
        connection.execute(GATE)
        yield
        connection.rollback()


async def sent(console: Console, name: str, content: bytes, project: int = 1) -> Any:
    return await console.send(name, content, pipeline="keywords", project_id=project)


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


async def fits(page: Page) -> bool:
    """Nothing but the tables' own boxes scrolls sideways."""
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def test_tokens_cannot_be_merged_until_nine_files_finish(
    consoles: Callable[..., Console], page: Page, browser: Browser
) -> None:
    console = consoles(WEIGHBRIDGE_POLL_SECONDS="0.2", WEIGHBRIDGE_BATCH_ROWS="20")
    await sent(console, "first.csv", keyword_file([("red tv", 10), ("red television", 90), ("blue tv", 5)]))
    await console.sign_in(page)
    await console.open(page, "/projects/1?tab=tokens")
    await expect(page.locator("#counts")).to_have_text("1 / 1")
    merge = page.get_by_role("button", name="Merge")
    await expect(merge).to_be_enabled()
    assert not await page.get_by_text(LOCKED).count()

    # Another user has the page open without JavaScript, so it does not show the lock.
    plain = await (await browser.new_context(java_script_enabled=False)).new_page()
    await console.sign_in(plain)
    await console.open(plain, "/projects/1?tab=tokens")

    await page.get_by_label("Words", exact=True).fill("tv")
    with held_up(console):
        for number in range(8):
            await sent(console, f"file {number}.csv", numbered(100 * number, 30))
        await sent(console, "again.csv", numbered(0, 30))  # what file 0 says
        # The page locks without a reload: the groups are readable, buttons are disabled, the reason is shown.
        await expect(merge).to_be_disabled()
        await expect(page.locator("#why")).to_contain_text(LOCKED)
        assert await merge.get_attribute("title") == LOCKED
        await expect(page.get_by_role("link", name=re.compile("^Words"))).to_contain_text("Processing…")
        await expect(page.get_by_role("link", name="Groups")).to_contain_text("Processing…")
        await expect(page.locator("#counts")).to_have_text("1 / 9")
        assert not await serious(page)
        # The old form gets the error message.
        await plain.get_by_label("Words", exact=True).fill("tv")
        await plain.get_by_label("Merge into").fill("television")
        await plain.get_by_role("button", name="Merge").click()
        await expect(plain.get_by_role("status").filter(has_text=LOCKED)).to_be_visible()
        assert console.rows("SELECT count(*) FROM token_merges") == [(0,)]
        # The groups stay to be read.
        await console.open(plain, "/projects/1?tab=groups")
        await expect(row(plain, "red television")).to_be_visible()
        await expect(plain.get_by_role("button", name="Confirm").first).to_be_disabled()
        await expect(plain.get_by_role("button", name="Regroup")).to_be_disabled()
        # Each file has its sign.
        await console.open(plain, "/projects/1")
        await expect(row(plain, "first.csv")).to_contain_text("Completed")
        await expect(row(plain, "file 0.csv").first).to_contain_text("⏳ Processing")
        await expect(row(plain, "file 7.csv")).to_contain_text("🕒 Queued")
        await expect(row(plain, "again.csv")).to_contain_text("Duplicate")
        await expect(plain.locator("#project")).to_contain_text("Now: file 0.csv")

    # Then it unlocks without a reload; the typed text is still there, and the merge succeeds.
    await expect(merge).to_be_enabled(timeout=30_000)
    await expect(page.locator("#why")).to_contain_text("can be edited")
    await expect(page.locator("#counts")).to_have_text("9 / 9")
    await expect(page.locator("#project dl")).to_contain_text("243 / 243")
    await expect(page.get_by_label("Words", exact=True)).to_have_value("tv")
    await expect(page.locator("[data-active]")).to_have_count(0)
    await page.get_by_label("Merge into").fill("television")
    await merge.click()
    await expect(row(page, "television")).to_contain_text("tv")
    await page.get_by_role("link", name="Groups").click()
    await expect(row(page, "red television")).to_contain_text(
        re.compile(r"red television.*2\s+100", re.DOTALL)
    )
    # And back.
    await page.get_by_role("link", name=re.compile("^Words")).click()
    await page.get_by_role("button", name="Unmerge tv").click()
    await expect(page.get_by_text("No words are merged yet.")).to_be_visible()


async def test_edited_groups_stay_current_in_a_long_list(console: Console, page: Page) -> None:
    await sent(console, "a.csv", numbered(100, 130))
    await console.sign_in(page)
    await console.open(page, "/projects/1?tab=groups")
    rows = page.locator("[data-rows] tr")
    await expect(page.locator("#counts")).to_have_text("1 / 1")
    await expect(rows).to_have_count(50)
    await scroll_down(page, rows, 130)

    # Another file: groups come in between, and one far down has other numbers.
    await sent(console, "b.csv", keyword_file([("thing 100 aaa", 1), ("number 229 thing", 1000)]))
    await expect(page.locator("#counts")).to_have_text("2 / 2")
    await page.mouse.wheel(0, -100_000)  # what cannot be seen is fresh once it can
    await expect(row(page, "number 229 thing")).to_contain_text("1,129")
    await page.mouse.wheel(0, 100_000)
    await expect(rows).to_have_count(131)
    names = await page.locator("[data-rows] tr td:nth-child(2)").all_inner_texts()
    assert len(set(names)) == 131

    # Search, rename, confirm.
    await page.get_by_label("Groups that contain").fill("THING 150")
    await page.get_by_role("button", name="Search").click()
    await expect(rows).to_have_count(1)
    await page.get_by_text("Rename…").click()
    await page.get_by_label("Name (empty: parent keyword)").fill('Mein "<b>Ding</b>"')
    await page.get_by_role("button", name="Rename").click()
    await expect(page.get_by_role("link", name='Mein "<b>Ding</b>"')).to_be_visible()
    await page.get_by_role("button", name="Confirm").click()
    await expect(rows).to_contain_text(["✓ confirmed"])
    await page.get_by_role("button", name="Unconfirm").click()
    await expect(page.get_by_role("button", name="Confirm", exact=True)).to_be_visible()

    # Keywords move: into a group by its name, into none there is, into a new one.
    await console.open(page, "/projects/1?tab=keywords&q=thing+15")
    await expect(rows).to_have_count(10)
    await page.get_by_label("Select thing 151 number").check()
    await page.get_by_label("Select thing 152 number").check()
    await page.get_by_label("Name or parent keyword of the group").fill("no such group")
    await page.get_by_role("button", name="Move").click()
    await expect(
        page.get_by_role("status").filter(has_text="No group is called 'no such group'")
    ).to_be_visible()
    await page.get_by_label("Select thing 151 number").check()
    await page.get_by_label("Name or parent keyword of the group").fill('Mein "<b>Ding</b>"')
    await page.get_by_role("button", name="Move").click()
    await expect(row(page, "thing 151 number")).to_contain_text("moved manually")
    await row(page, "thing 151 number").get_by_role("link", name="Mein").click()
    await expect(rows).to_have_count(2)
    await expect(page.locator("#of-group")).to_contain_text('Ding</b>": 2')
    await page.get_by_label("Select thing 151 number").check()
    await page.locator("#where").select_option("a new group")
    await page.get_by_label("Name or parent keyword of the group").fill("Own")
    await page.get_by_role("button", name="Move").click()
    await expect(rows).to_have_count(1)
    # A regroup with the option "by hand" undoes manual edits.
    await console.open(page, "/projects/1?tab=groups&q=own")
    await expect(rows).to_contain_text(["created manually"])
    await page.get_by_label("include manually moved keywords").check()
    await page.get_by_role("button", name="Regroup").click()
    await expect(page.get_by_role("status").filter(has_text="1 keyword was moved")).to_be_visible()


async def test_foreign_text_is_escaped_and_a_read_only_key_sees_no_action(
    console: Console, browser: Browser, page: Page
) -> None:
    long = "x" * 250 + ".csv"
    await sent(console, MARKUP, keyword_file([("<script>alert(1)</script>", 3), ("أحذية رياضية", 7)]))
    await sent(console, RTL, numbered(0, 3))
    await sent(console, long, numbered(10, 3))
    await sent(console, "broken.csv", b"Nonsense,Columns\n1,2\n")
    await console.sign_in(page)
    await console.open(page, "/projects")
    await page.get_by_label("Name").fill("<i>سوق</i> & Co")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("<i>سوق</i> & Co")
    await expect(page.get_by_text("No files yet.", exact=True)).to_be_visible()

    await console.open(page, "/projects/1")
    await expect(page.locator("#counts")).to_have_text("4 / 4")
    await expect(page.locator("[data-active]")).to_have_count(0, timeout=30_000)
    for name in (MARKUP, RTL, long):
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    await expect(row(page, "broken.csv")).to_contain_text("Error")
    await page.get_by_role("link", name="Error 1").click()
    await expect(page.locator("#files tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Retry 1 failed").click()
    await expect(page.get_by_role("status").filter(has_text="1 file queued again")).to_be_visible()
    await expect(page.locator("#counts")).to_have_text("4 / 4")

    for scheme in ("light", "dark"):
        context = await browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 844})
        reader = await context.new_page()
        await console.sign_in(reader, "read")
        for path in ("", "/1", "/1?tab=groups", "/1?tab=keywords", "/1?tab=tokens"):
            await console.open(reader, f"/projects{path}")
            await expect(reader.get_by_role("heading", level=1)).to_be_visible()
            assert not await serious(reader), path
            assert await fits(reader), path
            forms = reader.locator("main form[method=post]")
            await expect(forms).to_have_count(0)
            assert not await reader.locator("main input[type=checkbox]").count()
        await context.close()
    refused = await page.request.post(f"{console.url}/projects/1/regroup", form={})
    assert "out of date" in await refused.text()
