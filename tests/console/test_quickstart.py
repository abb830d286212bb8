"""docs/start-browser.md: a user who follows the page sees the quoted texts."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from playwright.async_api import Page, expect

from weighbridge.testing.exports import write_samples

from .conftest import Console

TEXT = " ".join((Path(__file__).parents[2] / "docs" / "start-browser.md").read_text().split())


def quoted(begins: str) -> str:
    """A sentence that the page quotes, up to its end or to the part that it leaves out."""
    (found,) = re.findall(rf'"({begins}[^"…]*)', TEXT)
    return found.strip()


async def test_a_user_fixes_two_rows_of_the_sample(console: Console, page: Page, tmp_path: Path) -> None:
    sample = next(path for path in write_samples(tmp_path / "samples") if path.name == "meta-ads-daily.csv")
    uploads = page.locator("wb-upload")
    await console.sign_in(page)
    assert "**File type**" in TEXT
    assert quoted("Detect") == await page.get_by_label("File type").locator("option:checked").inner_text()
    await uploads.locator("input[type=file]").set_input_files(sample)
    await expect(uploads).to_contain_text(quoted("4,315 of"), timeout=30_000)
    await uploads.locator("input[type=file]").set_input_files(sample)
    await expect(uploads).to_contain_text(quoted("Duplicate,"))

    await page.locator("table").get_by_role("link", name=sample.name).click()
    reasons = re.findall(r"\| (\d) \| ([^|]+) \| ([^|]+) \| ([\d,]+) \|", TEXT)
    rows = page.locator("#rejected tbody tr")
    await expect(rows).to_have_count(len(reasons))
    for row, (count, column, reason, line) in zip(await rows.all(), reasons, strict=True):
        cells = await row.locator("td").all_inner_texts()
        assert (cells[0].split()[0], cells[1], cells[3]) == (count, column, line)
        assert cells[2].startswith(reason.removesuffix(" …"))

    async with page.expect_download() as told:
        await page.get_by_role("link", name="Download as CSV").click()
    fixed = tmp_path / "fixed.csv"
    await (await told.value).save_as(fixed)
    fix(fixed)
    await page.get_by_role("link", name="Uploads", exact=True).first.click()
    await uploads.locator("input[type=file]").set_input_files(fixed)
    await expect(uploads).to_contain_text("2 of 2 rows loaded", timeout=30_000)
    await page.locator("table").get_by_role("link", name=sample.name).click()
    await expect(page.locator("#rejected")).to_contain_text(quoted("2 fixed by"))


def fix(file: Path) -> None:
    """The edits that the page asks for."""
    for wrong, right in (("see invoice", "12.34"), ("-5", "5")):
        assert f"`{wrong}` with `{right}`" in TEXT
    with file.open(newline="") as opened:
        header, *rows = csv.reader(opened)
    marks = [number for number, name in enumerate(header) if name.startswith("weighbridge_")]
    kept = [
        row
        for row in rows
        if any(cell in ("see invoice", "-5") for n, cell in enumerate(row) if n not in marks)
    ]
    right = {"see invoice": "12.34", "-5": "5"}
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([header, *([right.get(cell, cell) for cell in row] for row in kept)])
