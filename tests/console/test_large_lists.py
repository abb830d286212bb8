"""A list of a hundred thousand uploads: each page reads an index, and the first page is fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from playwright.async_api import Page, expect

from weighbridge.postgres.queries import load

from .conftest import Console

MANY = 100_000
_FILL = (
    "INSERT INTO data_uploads (workspace_id, platform, source, pipeline, filename, file_url, content_sha256, byte_size,"
    " status, created_at, started_at, finished_at, promoted_rows, total_rows)"
    " SELECT %s, 'meta', 'api', 'ads', 'export-' || n || '.csv', 'file:///x', sha256(n::text::bytea), 1, 'completed',"
    " now() - n * interval '1 min', now() - n * interval '1 min', now() - n * interval '1 min', 100, 100"
    " FROM generate_series(1, %s) n"
)


def _fill(url: str, workspace: UUID) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE data_uploads DISABLE TRIGGER USER")
        connection.execute(_FILL, (workspace, MANY))
        connection.execute("ALTER TABLE data_uploads ENABLE TRIGGER USER")
        connection.execute("VACUUM ANALYZE data_uploads")


async def test_a_page_of_a_large_list_takes_less_than_a_second_and_reads_as_little_as_one_of_a_small_list(
    consoles: Callable[..., Console], page: Page
) -> None:
    console = consoles()
    _fill(console.database_url, console.workspace)
    for depth in (0, 50_000):
        assert _blocks(console, depth) < 120
    await console.sign_in(page)
    times = []
    for _ in range(5):
        await page.reload()
        await expect(page.locator("#processed")).to_have_text(f"{MANY:,} / {MANY:,}")
        await expect(page.locator("wb-upload")).to_be_visible()
        times.append(await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1000, times  # the best of five: other tests run beside this one


def _blocks(console: Console, depth: int) -> int:
    """Blocks that are read for the page at this depth."""
    names = "statuses on_hold deferred set_aside pipeline project words before behind until last"
    asked: dict[str, Any] = dict.fromkeys(names.split())
    if depth:
        place = "SELECT created_at, id FROM data_uploads ORDER BY created_at DESC, id OFFSET %s LIMIT 1"
        [(asked["before"], asked["behind"])] = console.query(place, (depth,))
    explain = (
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + load("weighbridge.uploads.browse")["page_of_uploads"]
    )
    [(told,)] = console.query(explain, {**asked, "workspace": console.workspace, "limit": 51})
    plan = told[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_the_console_can_be_used_without_a_mouse(console: Console, page: Page) -> None:
    await console.open(page, "/sign-in")
    await expect(page.get_by_label("API key")).to_be_focused()
    await page.keyboard.type(await console.key("read", "upload", "operate"))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{console.url}/uploads")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    seen = []
    for _ in range(14):
        await page.keyboard.press("Tab")
        seen.append(await page.evaluate(FOCUSED))
    assert all(outline for _, outline in seen), seen
    assert {"Preview first", "Choose files", "Find"} <= {name for name, _ in seen}, seen


FOCUSED = """() => {
    let element = document.activeElement;
    while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    const style = getComputedStyle(element), label = element.labels?.[0] ?? element;
    const ring = style.outlineStyle !== "none" || style.boxShadow !== "none" || element.type === "file";
    return [label.textContent.trim(), ring];
}"""
