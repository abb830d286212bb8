"""The pages of deliveries: a circuit opens and closes, the history of a conversion, a retry."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.cli.outbound import GOOGLE_ADS, KEY, SECRETS, google
from tests.deliver.conftest import Sell, sell
from weighbridge.delivery.vault import Vault
from weighbridge.testing.fake_providers import FakeGoogleAds, Fault

from .conftest import Console, scroll_down, serious
from .test_projects import fits

WAKE = "SELECT pg_notify('weighbridge_deliver', '')"
NOW = "UPDATE offline_conversion_queue SET next_retry_at = NULL WHERE status IN ('QUEUED', 'RETRY')"
MARKUP = "<b>Shop</b> & متجر"


@pytest.fixture
def delivering(consoles: Callable[..., Console], google: FakeGoogleAds) -> Console:
    """A console whose worker delivers to a fake on a real socket."""
    urls = f"google_ads={google.url}"
    return consoles(WEIGHBRIDGE_VAULT_KEY=KEY, WEIGHBRIDGE_PROVIDER_URLS=urls, WEIGHBRIDGE_POLL_SECONDS="0.2")


def make_site(console: Console, name: str = MARKUP, *, credentials: bool = True) -> UUID:
    [(site,)] = console.query(
        "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, %s, '{google_ads}') RETURNING id",
        (console.workspace, name),
    )
    if credentials:
        sealed = Vault.open(KEY).seal(site, "google_ads", GOOGLE_ADS, 1)
        console.query(
            "SELECT weighbridge.set_credentials(%s, 'google_ads', 1, %s, %s, %s, 'test')",
            (site, sealed.key_id, sealed.nonce, sealed.ciphertext),
        )
    return UUID(str(site))


def region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


async def try_until(console: Console, page: Page, state: Locator, text: str) -> None:
    """Retry postponed rows at once, until the page shows the result without a reload."""
    for _ in range(40):
        console.query(NOW)
        console.query(WAKE)
        await page.wait_for_timeout(250)
        if text in await state.inner_text():
            return
    raise AssertionError(f"the page never said {text!r}")


async def test_the_page_shows_a_circuit_open_and_close(
    delivering: Console, google: FakeGoogleAds, page: Page, sell: Sell, browser: Browser
) -> None:
    site = make_site(delivering)
    await delivering.sign_in(page)
    await delivering.open(page, "/deliveries")
    group = region(page, "By site and provider").get_by_role("row").filter(has_text="google_ads")
    await expect(group).to_contain_text("Closed")
    await expect(group).to_contain_text(MARKUP)

    google.script(*[Fault.status(503)] * 5)
    sell(site, 3)
    await page.reload()
    await try_until(delivering, page, group, "Open")
    await expect(group).to_contain_text("5 failures in a row; next probe")
    await expect(group).to_contain_text("The circuit is open until the next probe.")
    await expect(group.locator("td").nth(3)).to_have_text("3")
    await expect(region(page, "Errors by category")).to_contain_text("TRANSIENT")
    await expect(region(page, "Recent calls").get_by_role("row").nth(1)).to_contain_text("TRANSIENT")
    await expect(page.locator("#groups[data-active]")).to_have_count(1)
    assert not await serious(page)

    # The page of a conversion shows it too.
    other = await page.context.new_page()
    await delivering.open(other, "/deliveries?order_id=order-2")
    await other.get_by_role("link", name="order-2").click()
    await expect(other.locator("#to-google_ads")).to_contain_text("The circuit is open; next probe")

    # The time of the probe is reached and the provider works again; both pages show it without a reload.
    delivering.query("UPDATE provider_health_state SET next_probe_at = weighbridge.now()")
    await try_until(delivering, page, group, "Closed")
    await expect(group.locator("td").nth(3)).to_have_text("0")
    await expect(page.locator("#groups dl")).to_contain_text("Delivered in 24 hours3")
    await expect(page.locator("[data-active]")).to_have_count(0)
    await expect(other.locator("#to-google_ads")).to_contain_text("Delivered")
    await expect(other.locator("#to-google_ads .proof")).to_contain_text("Request id: ")

    # The circuit opens again, and a user resets it.
    google.script(*[Fault.status(503)] * 5)
    sell(site, 2, prefix="later")
    await page.reload()
    await try_until(delivering, page, group, "Open")
    plain = await (await browser.new_context(java_script_enabled=False)).new_page()
    await delivering.sign_in(plain)
    await delivering.open(plain, "/deliveries")
    await plain.get_by_role("button", name="Reset").click()
    await expect(plain.get_by_role("status").filter(has_text="The circuit is closed")).to_be_visible()
    await expect(group).to_contain_text("Closed")
    await expect(group.locator("td").nth(3)).to_have_text("0")
    assert len(google.accepted) == 5


async def test_a_conversion_shows_its_history_and_can_be_retried(
    delivering: Console, google: FakeGoogleAds, page: Page, sell: Sell, browser: Browser
) -> None:
    site = make_site(delivering)
    bare = make_site(delivering, "No keys yet", credentials=False)
    google.refuse("order-2", "INVALID_GCLID")
    google.refuse("order-3", "INVALID_GCLID")
    sell(site, 3)
    sell(bare, 2, prefix="waits")
    await delivering.sign_in(page)
    await delivering.open(page, "/deliveries")
    bare_row = region(page, "By site and provider").get_by_role("row").filter(has_text="No keys yet")
    await expect(bare_row).to_contain_text("No credentials are stored.")
    await expect(bare_row.locator("td").nth(7)).to_contain_text("0of 2 due")
    errors = region(page, "Errors by category").get_by_role("row").filter(has_text="INVALID_GCLID")
    await expect(errors).to_contain_text("VALIDATION")

    # The delivered conversion, with its proof.
    await page.get_by_label("Order id").fill("order-1")
    await page.get_by_role("button", name="Show").click()
    await page.get_by_role("link", name="order-1").click()
    story = page.locator("#to-google_ads")
    [(proof,)] = delivering.query(
        "SELECT provider_request_id FROM offline_conversion_queue WHERE order_id = 'order-1'"
    )
    assert proof
    await expect(story.locator(".proof")).to_have_text(f"Request id: {proof}")
    for word in ("Queued", "STARTED", "FINISHED", "of the call, 1 delivered, 2 failed", "Delivered"):
        await expect(story).to_contain_text(word)
    await expect(page.locator("dl.facts").first).to_contain_text("12.5 EUR")
    assert not await serious(page)
    shown = await page.content()
    assert not [secret for secret in SECRETS if secret in shown]

    # A failed conversion: its reason, and a retry once the provider accepts it; without JavaScript.
    plain = await (await browser.new_context(java_script_enabled=False)).new_page()
    await delivering.sign_in(plain)
    await delivering.open(plain, "/deliveries?status=FAILED")
    await plain.get_by_role("link", name="order-2").click()
    await expect(plain.locator("#to-google_ads .callout")).to_contain_text("VALIDATION · INVALID_GCLID")
    google.refuse("order-2")
    google.refuse("order-3")
    await plain.get_by_role("button", name="Retry").click()
    await expect(plain.get_by_role("status").filter(has_text="1 conversion is queued again")).to_be_visible()
    await plain.wait_for_timeout(1500)
    await plain.reload()
    await expect(plain.locator("#to-google_ads")).to_contain_text("Delivered")
    await expect(plain.get_by_role("button", name="Retry")).to_have_count(0)

    # A retry of all conversions with one error; the page shows the progress without a reload.
    await delivering.open(page, f"/deliveries?site_id={site}&status=FAILED")
    await expect(page.locator("[data-rows] tr")).to_have_count(1)
    await page.get_by_role("button", name="Retry all VALIDATION errors").click()
    await expect(page.get_by_role("status").filter(has_text="1 conversion is queued again")).to_be_visible()
    await expect(page.locator("#groups dl")).to_contain_text("Failed0")
    await expect(page.get_by_text("No conversion has failed or is waiting for a retry.")).to_be_visible()
    assert google.accepted == {"order-1": 1, "order-2": 1, "order-3": 1}


async def test_a_read_only_key_sees_everything_and_no_action(
    delivering: Console, google: FakeGoogleAds, sell: Sell, browser: Browser
) -> None:
    site = make_site(delivering)
    google.refuse("order-7", "INVALID_GCLID")
    sell(site, 120)
    delivering.query("UPDATE sales SET order_id = '<script>x</script>' WHERE order_id = 'order-9'")
    for scheme in ("light", "dark"):
        context = await browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 844})
        reader = await context.new_page()
        await delivering.sign_in(reader, "read")
        await delivering.open(reader, "/deliveries")
        await expect(reader.locator("[data-active]")).to_have_count(0)
        assert not await serious(reader)
        assert await fits(reader)
        await expect(reader.locator("main form[method=post]")).to_have_count(0)
        rows = reader.locator("[data-rows] tr")
        await expect(rows).to_have_count(50)
        await scroll_down(reader, rows, 120)
        await delivering.open(reader, "/deliveries?order_id=order-7")
        await reader.get_by_role("link", name="order-7").click()
        await expect(reader.locator("#to-google_ads")).to_contain_text("Failed")
        await expect(reader.locator("main form[method=post]")).to_have_count(0)
        assert not await serious(reader)
        assert await fits(reader)
        await context.close()


__all__ = ["google", "sell"]  # fixtures
