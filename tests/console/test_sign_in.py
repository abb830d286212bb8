"""Access to the console: a key opens a session with the pages and actions of its scopes."""

from __future__ import annotations

from playwright.async_api import Page, expect

from .conftest import Console, serious


async def test_a_key_signs_in_and_out(console: Console, page: Page) -> None:
    await console.open(page, "/health")
    await expect(page).to_have_url(f"{console.url}/sign-in?next=/health")
    assert not await serious(page)
    await page.get_by_label("API key").fill("wb_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text(
        "This key is unknown or no longer valid. Create one: weighbridge keys create."
    )
    await page.get_by_label("API key").fill(await console.key("read"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{console.url}/health")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("status").filter(has_text="signed out")).to_be_visible()
    await console.open(page, "/health")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
