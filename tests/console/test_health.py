"""Health: uploads by end time, stale uploads, failures to handle and open alerts, from rows with known times."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from playwright.async_api import Locator, Page, expect

from tests.api.conftest import make_upload
from weighbridge.app import App
from weighbridge.uploads import figures

from .conftest import Console, serious
from .files import ads

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MakeUpload = Callable[..., UUID]


async def intervals(app: App, workspace: UUID, each: timedelta, number: int) -> list[figures.Interval]:
    async with app.db.tx("weighbridge_tenant", workspace) as tx:
        return await figures.intervals(tx, each, number)


async def test_charts_show_uploads_by_the_time_they_ended(
    app: App, workspace: UUID, make_upload: MakeUpload
) -> None:
    *_, five, _, _, now = begins = [each.begins for each in await intervals(app, workspace, HOUR, 24)]
    assert [later - earlier for earlier, later in pairwise(begins)] == [HOUR] * 23

    def ended(at: object, status: str = "completed", **columns: object) -> None:
        said = {"error_code": "bad", "error_text": "Bad."} if status == "failed" else {}
        make_upload(**{"status": status, "finished_at": at, **said, **columns})

    ended(five, started_at=five - MINUTE, promoted_rows=10)  # to the first moment
    ended(five + HOUR - timedelta(microseconds=1), "partial", started_at=five + 57 * MINUTE, promoted_rows=5)
    ended(five + 30 * MINUTE, "failed", started_at=five, promoted_rows=2)
    ended(five + HOUR, "failed")  # the next one
    ended(now, promoted_rows=7, started_at=now - 10 * MINUTE)
    # Uploads that do not count: before the first interval, dismissed, of another workspace, not ended.
    ended(begins[0] - timedelta(microseconds=1))
    ended(five, "failed", error_code="discarded", preview=True)
    ended(five, workspace_id=uuid4())
    make_upload(status="processing", started_at=five)

    found = await intervals(app, workspace, HOUR, 24)
    shown = {at: each for at, each in zip(begins, found, strict=True) if each.completed or each.failed}
    assert list(shown) == [five, five + HOUR, now]
    assert (shown[five].completed, shown[five].failed, shown[five].rows) == (2, 1, 17)
    assert shown[five].seconds == pytest.approx((60 + 180) / 2, abs=1)  # of completed uploads
    assert shown[five + HOUR] == figures.Interval(five + HOUR, 0, 1, 0, None)
    assert (shown[now].completed, shown[now].rows, shown[now].seconds) == (1, 7, 600)
    # A longer time in longer intervals adds up to the same, and to what was before.
    week = await intervals(app, workspace, timedelta(hours=6), 28)
    assert (sum(each.completed for each in week), sum(each.failed for each in week)) == (4, 2)
    assert sum(each.rows for each in week) == 24


async def test_figures_show_stale_uploads_and_unhandled_failures(
    app: App, workspace: UUID, make_upload: MakeUpload
) -> None:
    [now] = [each.begins for each in await intervals(app, workspace, MINUTE, 1)]
    make_upload(status="processing", started_at=now - 2 * HOUR)  # without a worker
    make_upload(status="processing", started_at=now - 5 * MINUTE)
    make_upload(status="processing", started_at=now - 2 * HOUR, workspace_id=uuid4())
    bad = {"status": "failed", "error_code": "bad", "error_text": "Bad."}
    old, new = [make_upload(**bad, finished_at=now - at) for at in (30 * HOUR, HOUR)]
    make_upload(**bad, finished_at=now - HOUR, dismissed_at=now)
    again = make_upload(**bad, finished_at=now - 2 * HOUR, dismissed_at=now - 3 * HOUR)  # failed once more
    make_upload(**bad | {"error_code": "discarded"}, preview=True, finished_at=now - HOUR)
    make_upload(**bad, finished_at=now, workspace_id=uuid4())
    async with app.db.tx("weighbridge_tenant", workspace) as tx:
        told = await figures.of_workspace(tx)
        letters = await figures.dead_letters(tx, 10)
    assert (told.stale_runs, told.backlog_count, told.failed_24h) == (1, 2, 3)
    assert [letter.upload_id for letter in letters] == [new, again, old]


def section(page: Page, name: str) -> Locator:
    return page.locator("section").filter(has=page.get_by_role("heading", name=name, exact=True))


async def test_a_dismissed_failure_disappears(console: Console, page: Page) -> None:
    await console.send("good.csv", ads(7), platform="meta")
    await console.send("<b>poor & sad.csv", ads(10, broken=6), platform="meta")
    await console.sign_in(page)
    await expect(page.locator("#processed")).to_have_text("2 / 2", timeout=30_000)
    await console.open(page, "/health")
    now = page.locator("#figures")
    await expect(now).to_contain_text("Failed in 24 hours1")
    await expect(now).to_contain_text("Stale runs0")
    await expect(now).to_contain_text("Queued or running0")
    await expect(now).to_contain_text("Processed / uploaded2 / 2")
    # The charts have a text alternative, and their tables have a row for each interval.
    ended = section(page, "Finished uploads")
    await expect(ended.get_by_role("img")).to_have_attribute(
        "aria-label",
        re.compile("uploads: maximum [12] per interval, 1 in total, 1 failed"),  # 1: the hour has just struck
    )
    await ended.get_by_text("As a table").click()
    counts = [int(text) for text in await ended.locator("tbody td.number").all_inner_texts()]
    assert (sum(counts[::2]), sum(counts[1::2])) == (1, 1)
    await expect(section(page, "Rows written").get_by_role("img")).to_have_attribute(
        "aria-label", "rows: maximum 7 per interval, 7 in total"
    )
    # The failure is listed with a link to the page where it can be handled.
    await expect(section(page, "Alerts")).to_contain_text("[INGEST FAILURE]")
    leads = await section(page, "Alerts").get_by_role("link", name="The upload").get_attribute("href")
    assert leads == await section(page, "Dead letters").get_by_role("link", name="poor").get_attribute("href")
    dead = section(page, "Dead letters")
    await expect(dead.locator("li")).to_have_count(1)
    await expect(dead).to_contain_text("Only 40.0% of 10 rows are valid")
    assert not await serious(page)
    other = await page.context.new_page()
    await console.open(other, "/health")
    await dead.get_by_role("link", name="<b>poor & sad.csv").click()
    await page.get_by_role("button", name="Dismiss").click()
    await expect(page.locator(".noted")).to_contain_text("no longer listed as a dead letter")
    await expect(page.get_by_role("button", name="Dismiss")).to_have_count(0)
    # It disappears also from a page that was open all the time; the charts keep it.
    await expect(section(other, "Dead letters")).to_contain_text("None.", timeout=30_000)
    await expect(section(other, "Alerts")).to_contain_text("No open alerts for your uploads and sites.")
    await expect(other.locator("#figures")).to_contain_text("Failed in 24 hours1")


async def test_a_longer_period_shows_earlier_uploads(console: Console, page: Page) -> None:
    console.query("ALTER TABLE data_uploads DISABLE TRIGGER USER")
    for number, ago in enumerate(("2 hours", "3 days", "20 days")):
        console.query(
            "INSERT INTO data_uploads (workspace_id, platform, source, pipeline, file_url, content_sha256, byte_size,"
            " status, started_at, finished_at, promoted_rows) VALUES (%s, 'meta', 'api', 'ads', 'file:///x',"
            " sha256(%s::text::bytea), 1, 'completed', now() - %s::interval, now() - %s::interval, 100)",
            (console.workspace, number, ago, ago),
        )
    console.query("ALTER TABLE data_uploads ENABLE TRIGGER USER")
    await console.sign_in(page, "read")
    await console.open(page, "/health")
    for period, rows in (("24 hours", 100), ("7 days", 200), ("30 days", 300)):
        await page.get_by_role("link", name=period, exact=True).click()
        await expect(page.get_by_role("link", name=period, exact=True)).to_have_attribute(
            "aria-current", "true"
        )
        await expect(page.locator(".filters [aria-current]")).to_have_count(1)
        await expect(section(page, "Rows written").get_by_role("img")).to_have_attribute(
            "aria-label", f"rows: maximum 100 per interval, {rows} in total"
        )


__all__ = ["make_upload"]  # a fixture
