"""Pages stay current: after a network failure, in two tabs, after a restart, while the store is down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from playwright.async_api import BrowserContext, Page, Route, expect

from .conftest import Console
from .files import ads, written


async def test_a_network_failure_is_reported_and_recovered(
    console: Console, context: BrowserContext, page: Page
) -> None:
    await console.sign_in(page)
    await context.set_offline(True)
    await expect(page.locator("#connection")).to_contain_text("You are offline")
    await console.send("meanwhile.csv", ads(5), platform="meta")
    await context.set_offline(False)
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    await expect(page.locator("#connection")).to_be_hidden()


async def test_a_response_from_before_the_network_failure_does_not_hide_it(
    console: Console, context: BrowserContext, page: Page
) -> None:
    """Without uploads in progress the page does not poll, so its last text stays."""
    await console.send("before.csv", ads(5), platform="meta")
    await console.sign_in(page)
    processed, said = page.locator("#processed"), page.locator("#connection")
    await expect(processed).to_have_text("1 / 1", timeout=30_000)
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.route(f"{console.url}/uploads", held.put, times=1)
    await page.evaluate("dispatchEvent(new Event('online'))")
    route = await asyncio.wait_for(held.get(), 30)
    told = await (await route.fetch()).text()
    await context.set_offline(True)
    await expect(said).to_contain_text("You are offline")
    await route.fulfill(body=told.replace("1 / 1<", "2 / 2<"), content_type="text/html")
    await expect(processed).to_have_text("2 / 2")
    await expect(said).to_contain_text("You are offline")


async def test_a_missing_response_is_reported_and_requested_again(console: Console, page: Page) -> None:
    await console.sign_in(page)
    hung: list[Route] = []

    async def hang(route: Route) -> None:
        if "x-fresh" in route.request.headers and not hung:
            hung.append(route)  # and never answered
        else:
            await route.continue_()

    await page.route(f"{console.url}/uploads", hang)
    await console.send("meanwhile.csv", ads(5), platform="meta")
    await expect(page.locator("#connection")).to_contain_text("does not respond", timeout=20_000)
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=20_000)
    await expect(page.locator("#connection")).to_be_hidden()
    assert hung


async def test_a_change_without_an_event_is_shown_too(console: Console, page: Page) -> None:
    """An alert opens while the page is at rest."""
    sent = await console.send("poor.csv", ads(10, broken=6), platform="meta")
    await page.clock.install()
    await console.sign_in(page)
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    await console.open(page, "/health")
    alerts = page.locator("#alerts")
    await expect(alerts).to_contain_text("[INGEST FAILURE]")
    console.query("UPDATE weighbridge.alerts SET closed_at = now() WHERE subject = %s", (sent["upload_id"],))
    await page.clock.fast_forward(16_000)
    await expect(alerts).to_contain_text("No open alerts for your uploads and sites.")


async def test_a_new_sign_in_in_one_tab_keeps_the_other_tab_usable(
    console: Console, context: BrowserContext, page: Page, tmp_path: Path
) -> None:
    await console.sign_in(page)
    other = await context.new_page()
    await console.sign_in(other, "upload", "read")
    await page.evaluate("document.dispatchEvent(new Event('wb-upload-done'))")  # any reason to poll again
    await expect(page.locator(".who")).to_contain_text("a person")
    token = await other.locator("meta[name=csrf]").get_attribute("content")
    await expect(page.locator("meta[name=csrf]")).to_have_attribute("content", token or "")
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "a.csv", ads(5)))
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)


async def test_two_tabs_show_the_same(
    console: Console, context: BrowserContext, page: Page, tmp_path: Path
) -> None:
    await console.sign_in(page)
    other = await context.new_page()
    await console.open(other, "/uploads")
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "a.csv", ads(50)))
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    await expect(other.locator("#processed")).to_have_text("1 / 1")
    await expect(other.get_by_role("link", name="a.csv")).to_be_visible()


async def test_a_page_survives_a_server_restart(consoles: Callable[..., Console], page: Page) -> None:
    console = consoles()
    await console.sign_in(page)
    await console.send("before.csv", ads(5), platform="meta")
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)
    console.kill()
    await expect(page.locator("#connection")).to_contain_text("does not respond", timeout=15_000)
    await asyncio.to_thread(console.start)
    await console.send("after.csv", ads(6, campaign="Autumn"), platform="meta")
    await expect(page.locator("#processed")).to_have_text("2 / 2", timeout=60_000)
    await expect(page.locator("#connection")).to_be_hidden()


async def test_a_file_is_processing_while_the_store_is_down_and_then_done(
    consoles: Callable[..., Console], page: Page, tmp_path: Path
) -> None:
    """The answer is 202, the page says Processing, and once the store is back it is done by itself."""
    store = tmp_path / "store"
    store.mkdir()
    console = consoles(WEIGHBRIDGE_BLOB_URL=store, WEIGHBRIDGE_POLL_SECONDS=0.2)
    await console.sign_in(page)
    away = store.rename(tmp_path / "away")
    store.write_text("not a folder: nothing can be stored here")
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "kept.csv", ads(5)))
    row = page.locator("tbody tr").filter(has_text="kept.csv")
    await expect(row.locator(".state")).to_contain_text("Processing", timeout=20_000)
    await expect(row).to_contain_text("stored automatically")
    await console.open(page, "/storage")
    await expect(page.locator("#queue tbody tr")).to_have_count(1)
    store.unlink()
    os.rename(away, store)
    await page.get_by_role("button", name="Retry now").click()
    await expect(page.locator("#queue")).to_contain_text("No files wait for the store.", timeout=30_000)
    await expect(page.locator("#storage .figures")).to_contain_text("1 files")  # usage appears in the page
    await console.open(page, "/uploads")
    await expect(page.locator("#processed")).to_have_text("1 / 1", timeout=30_000)


async def test_a_file_that_could_not_be_stored_for_too_long_shows_what_to_do(
    consoles: Callable[..., Console], page: Page, tmp_path: Path
) -> None:
    """A message with a next step after the last retry."""
    store = tmp_path / "store"
    store.write_text("nothing can be stored here")
    console = consoles(
        WEIGHBRIDGE_BLOB_URL=store, WEIGHBRIDGE_STORAGE_RETRIES=1, WEIGHBRIDGE_POLL_SECONDS=0.2
    )
    await console.sign_in(page)
    await page.locator("wb-upload input[type=file]").set_input_files(written(tmp_path, "lost.csv", ads(5)))
    row = page.locator("tbody tr").filter(has_text="lost.csv")
    await expect(row).to_be_visible()
    console.query("UPDATE upload_queue SET next_retry_at = now() - interval '1 hour'")
    console.query("NOTIFY weighbridge_work")
    await row.get_by_role("link").first.click()
    await expect(page.locator(".callout.bad").last).to_contain_text("Upload it again", timeout=30_000)
