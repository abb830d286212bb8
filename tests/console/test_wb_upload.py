"""`<wb-upload>` on a page of another origin, under a strict policy: many files, cut connections, keyboard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import BrowserContext, Locator, Page, Route, expect

from weighbridge.testing.exports import ExportSpec, write_export, write_judgments, write_keywords

from .conftest import Console, free_port, serious

EXAMPLE = Path(__file__).parents[2] / "examples/embed/serve.py"
expect.set_options(timeout=60_000)
ADS = "Day,Campaign name,Amount spent (USD)\n"
SALES = b"GCLID,Conversion Time,Order ID\nx,2026-10-31 10:00:00,1\n"


@dataclass
class Site:
    """The example: a page on another origin, whose server has the key."""

    url: str
    console: Console

    async def open(self, page: Page) -> Locator:
        await page.goto(self.url)
        await page.wait_for_selector("wb-upload[key]:defined", state="attached")
        return page.locator("wb-upload")


@pytest.fixture
def serve_site() -> Iterator[Callable[[Console, str, int], Site]]:
    started: list[subprocess.Popen[str]] = []

    def serve(console: Console, key: str, port: int) -> Site:
        environment = {**os.environ, "UPLOADS_TO": console.url, "UPLOADS_WITH": key, "PORT": str(port)}
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE)], env=environment, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        return Site(process.stdout.readline().removeprefix("listens on ").strip(), console)

    yield serve
    for process in started:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
async def site(console: Console, serve_site: Callable[..., Site]) -> Site:
    """On the origin that the shared console allows."""
    port = int(console.settings["WEIGHBRIDGE_CORS_ORIGINS"].rpartition(":")[2])
    return serve_site(console, await console.key("upload"), port)


@pytest.fixture
def nine(tmp_path: Path) -> list[Path]:
    """Files of every kind that is built in."""
    for platform in ("meta", "google", "tiktok"):
        write_export(tmp_path / f"{platform}.csv", ExportSpec(platform))
    write_export(tmp_path / "google16.csv", ExportSpec("google", encoding="utf-16", seed=2))
    for layout in ("ahrefs", "semrush", "plain"):
        write_keywords(tmp_path / f"{layout}.txt", rows=200, layout=layout)
    write_judgments(tmp_path / "court.csv", rows=50, family="court")
    write_judgments(tmp_path / "vendor.csv", rows=50, family="vendor")
    return sorted(tmp_path.iterdir())


def row(uploads: Locator, name: str) -> Locator:
    return uploads.locator("li").filter(has=uploads.page.get_by_text(name, exact=True))


async def choose(uploads: Locator, *files: Any) -> None:
    await uploads.locator("input[type=file]").set_input_files(list(files))


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of three parts with few rows: most bytes are the same long campaign name."""
    lines = (
        f"2025-01-{day:02},{number} {'n' * 4000},1.00\n" for day in range(1, 29) for number in range(180)
    )
    (tmp_path / "big.csv").write_text(ADS + "".join(lines))
    assert (tmp_path / "big.csv").stat().st_size > 17 * 2**20
    return tmp_path / "big.csv"


def small(name: str, campaign: str = "a") -> Any:
    return {"name": name, "mimeType": "text/csv", "buffer": f"{ADS}2025-01-01,{campaign},1.00\n".encode()}


async def test_nine_files_of_several_kinds_are_uploaded_together(
    site: Site, page: Page, nine: list[Path]
) -> None:
    uploads = await site.open(page)
    await choose(uploads, *nine)
    await expect(row(uploads, "meta.csv").locator(".note")).to_contain_text("Detected: ads, meta")
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 9 / 9")
    await expect(uploads.locator("li[data-sign=done]")).to_have_count(9)
    await expect(row(uploads, "plain.txt").locator(".state")).to_have_text("✓ Completed")
    found = dict(
        site.console.rows("SELECT filename, pipeline || coalesce('/' || platform, '') FROM data_uploads")
    )
    assert found == {
        "meta.csv": "ads/meta", "google.csv": "ads/google", "google16.csv": "ads/google", "tiktok.csv": "ads/tiktok",
        "ahrefs.txt": "keywords", "semrush.txt": "keywords", "plain.txt": "keywords",
        "court.csv": "judgments", "vendor.csv": "judgments",
    }  # fmt: skip
    assert not await serious(page)
    told = await page.locator("#happened li").all_inner_texts()
    assert sum(line.startswith("done: ") for line in told) == 9


async def test_the_form_of_the_console_uses_the_element_with_the_session(
    console: Console, page: Page, nine: list[Path]
) -> None:
    made = "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, 'Shop', '{}')"
    console.query(made, (console.workspace,))
    await console.sign_in(page)
    uploads = page.locator("wb-upload")
    await expect(uploads.locator("form input[type=file]")).to_have_count(0)
    await expect(uploads.locator("form button")).to_have_count(0)
    await uploads.get_by_label("Project").fill("7")
    await choose(uploads, *nine)
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 9 / 9")
    assert not await serious(page)
    # Refused, and sent again with what was missing.
    await choose(uploads, {"name": "sales.csv", "mimeType": "text/csv", "buffer": SALES})
    await expect(row(uploads, "sales.csv").locator(".note")).to_contain_text("belong to a site")
    await uploads.get_by_label("Site").select_option("Shop")
    await uploads.get_by_role("button", name="Send sales.csv again").click()
    await expect(row(uploads, "sales.csv").locator(".state")).to_have_text("✓ Completed")
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 10 / 10")
    await uploads.get_by_role("link", name="court.csv").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("court.csv")
    assert console.rows("SELECT count(*) FROM data_uploads WHERE project_id = 7") == [(3,)]


async def test_a_broken_connection_repeats_only_the_current_part(
    site: Site, page: Page, context: BrowserContext, big: Path
) -> None:
    uploads = await site.open(page)
    sent: list[tuple[str, int]] = []
    page.on("request", lambda request: sent.append((request.method, _offset(request))))

    async def cut(route: Route) -> None:
        if route.request.method == "PATCH" and _offset(route.request) > 0 and ("cut", 0) not in sent:
            sent.append(("cut", 0))
            await context.set_offline(True)
            await route.abort("connectionfailed")
        else:
            await route.continue_()

    await page.route(f"{site.console.url}/api/files/**", cut)
    await choose(uploads, big)
    await expect(row(uploads, "big.csv").locator(".note")).to_have_text("Waiting for the network…")
    await expect(uploads.locator(".line")).to_have_text("Waiting for the network…")
    await context.set_offline(False)
    await expect(row(uploads, "big.csv").locator(".state")).to_have_text("✓ Completed")
    offsets = [offset for method, offset in sent if method == "PATCH"]
    assert offsets[0] == 0
    assert offsets.count(0) == 1, "the first part was not sent again"
    assert ("HEAD", -1) in sent
    assert sum(method == "POST" for method, _ in sent) == 2, "one question, one beginning"


def _offset(request: Any) -> int:
    return int(request.headers.get("upload-offset", "-1"))


async def test_an_upload_continues_after_a_server_restart(
    consoles: Callable[..., Console], serve_site: Callable[..., Site], page: Page, big: Path
) -> None:
    port = free_port()
    console = consoles(WEIGHBRIDGE_CORS_ORIGINS=f"http://127.0.0.1:{port}")
    site = serve_site(console, await console.key("upload"), port)
    uploads = await site.open(page)
    begun: list[int] = []
    page.on("request", lambda request: begun.append(_offset(request)) if request.method == "PATCH" else None)

    async def die(route: Route) -> None:
        if (
            route.request.method == "PATCH"
            and _offset(route.request) > 0
            and site.console.process is not None
        ):
            site.console.kill()
            site.console.process = None
            await route.abort("connectionreset")
        else:
            await route.continue_()

    await page.route(f"{site.console.url}/api/files/**", die)
    await choose(uploads, big)
    await expect(row(uploads, "big.csv").locator(".note")).to_contain_text("The server does not respond")
    await page.unroute(f"{site.console.url}/api/files/**")
    site.console.start()
    await expect(row(uploads, "big.csv").locator(".state")).to_have_text("✓ Completed")
    assert begun.count(0) == 1
    assert site.console.query("SELECT count(*) FROM data_uploads") == [(1,)]


async def test_a_file_that_was_already_uploaded_is_marked(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    await choose(uploads, small("one.csv"))
    await expect(row(uploads, "one.csv").locator(".state")).to_have_text("✓ Completed")
    await choose(uploads, small("again.csv"))
    await expect(row(uploads, "again.csv").locator(".note")).to_contain_text(
        re.compile(r"Duplicate, loaded on \d")
    )
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 2 / 2")


async def test_a_refused_file_shows_the_servers_message_and_the_others_continue(
    site: Site, page: Page
) -> None:
    uploads = await site.open(page)
    await choose(
        uploads,
        {"name": "strange.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"},
        {"name": "picture.csv", "mimeType": "text/csv", "buffer": b"\x89PNG\r\n\x1a\n" + bytes(100)},
        {"name": "empty.csv", "mimeType": "text/csv", "buffer": b""},
        {"name": "sales.csv", "mimeType": "text/csv", "buffer": SALES},
        {"name": "poor.csv", "mimeType": "text/csv", "buffer": (ADS + "never,a,b\n" * 3).encode()},
        small("good.csv"),
    )  # fmt: skip
    for name, sentence in {
        "strange.csv": "file ('strange.csv'): it fits no pipeline: ads, conversions, judgments and keywords recognise",
        "picture.csv": "expected CSV or JSON, got a PNG picture.",
        "empty.csv": "expected rows, got an empty file.",
        "sales.csv": "client_id: files of the pipeline conversions belong to a site, expected its id, got none.",
        "poor.csv": "rejected",
    }.items():
        await expect(row(uploads, name).locator(".state")).to_have_text("⚠️ Error")
        await expect(row(uploads, name).locator(".note")).to_contain_text(sentence)
        await expect(row(uploads, name).locator(".note")).not_to_contain_text("/api/")
    await expect(row(uploads, "good.csv").locator(".state")).to_have_text("✓ Completed")
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 2 / 2")
    assert not await serious(page)
    # A received file is retried as an upload; a file that was not received can be sent again.
    await expect(uploads.get_by_role("button", name=re.compile("^Send .* again$"))).to_have_count(4)


async def test_a_cancelled_file_is_removed(site: Site, page: Page) -> None:
    uploads = await site.open(page)

    async def hang(route: Route) -> None:
        if route.request.method != "PATCH":
            await route.continue_()

    await page.route(f"{site.console.url}/api/files/**", hang)
    async with page.expect_request(lambda asked: asked.method == "PATCH"):
        await choose(uploads, small("never.csv"))
    async with page.expect_response(lambda answer: answer.request.method == "DELETE") as ended:
        await uploads.get_by_role("button", name="Cancel never.csv").click()
    assert (await ended.value).status == 204
    await expect(row(uploads, "never.csv").locator(".state")).to_have_text("✕ Canceled")
    of_this = "SELECT count(*) FROM weighbridge.resumable_uploads WHERE workspace_id = %s"
    assert site.console.query(of_this, (site.console.workspace,)) == [(0,)]
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 0 / 0")
    await page.unroute(f"{site.console.url}/api/files/**")
    await uploads.get_by_role("button", name="Send never.csv again").click()
    await expect(row(uploads, "never.csv").locator(".state")).to_have_text("✓ Completed")
    await expect(uploads.locator("li")).to_have_count(1)


async def test_file_names_are_escaped(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    await page.set_viewport_size({"width": 360, "height": 740})
    names = ["<img src=x onerror=document.title='gone'>.csv", "ملف التقرير النهائي.csv", "n" * 296 + ".csv"]
    await choose(uploads, *(small(name, f"campaign {number}") for number, name in enumerate(names)))
    await expect(uploads.locator("li[data-sign=done]")).to_have_count(3)
    assert await uploads.locator(".name").all_text_contents() == names
    assert await uploads.locator("bdi.name").count() == 3
    assert await uploads.locator("img").count() == 0
    assert await page.title() == "Reports of our shop"
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_element_can_be_used_with_the_keyboard(site: Site, page: Page) -> None:
    page.on(
        "filechooser", lambda chooser: None
    )  # from now on: the first one would else open before it is waited for
    uploads = await site.open(page)
    await page.keyboard.press("Tab")
    outline = "e => getComputedStyle(e.nextElementSibling).outlineStyle"
    assert await uploads.locator("input[type=file]").evaluate(outline) == "solid"
    async with page.expect_file_chooser() as chooser:
        await page.keyboard.press("Enter")
    await (await chooser.value).set_files([small("typed.csv")])
    await expect(row(uploads, "typed.csv").locator(".state")).to_have_text("✓ Completed")
    live = uploads.locator("[aria-live=polite]")
    await expect(live).to_contain_text("typed.csv: Completed")


async def test_files_can_be_dropped(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    await page.evaluate(
        """text => {
            const dropped = new DataTransfer();
            dropped.items.add(new File([text], "dropped.csv"));
            for (const kind of ["dragenter", "dragover", "drop"])
                document.querySelector("wb-upload").dispatchEvent(
                    new DragEvent(kind, { dataTransfer: dropped, bubbles: true, cancelable: true, composed: true }));
        }""",
        f"{ADS}2025-01-01,a,1.00\n",
    )
    await expect(row(uploads, "dropped.csv").locator(".state")).to_have_text("✓ Completed")


async def test_the_files_of_a_dropped_folder_are_uploaded(
    site: Site, page: Page, context: BrowserContext, tmp_path: Path
) -> None:
    folder = tmp_path / "reports"
    (folder / "older").mkdir(parents=True)
    (folder / "notes.md").write_text("hello")
    for name, campaign in (("new.csv", "n"), (".hidden", "h"), ("older/old.csv", "o")):
        (folder / name).write_text(f"{ADS}2025-01-01,{campaign},1.00\n")
    uploads = await site.open(page)
    place = await uploads.bounding_box()
    assert place is not None
    chrome = await context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        await chrome.send(
            "Input.dispatchDragEvent",
            {
                "type": kind, "x": place["x"] + 20, "y": place["y"] + 20,
                "data": {"items": [], "files": [str(folder)], "dragOperationsMask": 1},
            },
        )  # fmt: skip
    await expect(uploads.locator("li[data-sign=done]")).to_have_count(2)
    assert await uploads.locator(".name").all_text_contents() == ["new.csv", "old.csv"]
    await expect(uploads.locator(".line")).to_contain_text("2 of 3 files in the folder")


async def test_a_right_to_left_page_and_a_preview_on_hold(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    await page.evaluate("document.documentElement.dir = 'rtl'")
    await uploads.evaluate("e => e.setAttribute('preview', '')")
    await choose(uploads, small("first.csv"))
    await expect(row(uploads, "first.csv").locator(".state")).to_have_text("⏸ On hold")
    await expect(uploads.locator(".total")).to_have_text("Processed / uploaded: 0 / 1")
    name, state = [
        await row(uploads, "first.csv").locator(f".{part}").bounding_box() for part in ("name", "state")
    ]
    assert name is not None
    assert state is not None
    assert name["x"] > state["x"], "the name comes first, from the right"
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    [(upload,)] = site.console.rows("SELECT id FROM data_uploads")
    secret = await site.console.key("operate")
    async with httpx.AsyncClient(base_url=site.console.url) as client:
        answer = await client.post(f"/api/uploads/{upload}/discard", headers={"X-Api-Key": secret})
    assert answer.status_code == 200, answer.text
    await expect(row(uploads, "first.csv").locator(".state")).to_have_text("✕ Discarded")


async def test_a_new_token_is_requested_after_the_old_one_expired(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    await uploads.evaluate("e => e.setAttribute('key', 'wbt_ended')")
    async with page.expect_request(f"{site.url}/token"):
        await choose(uploads, small("one.csv"))
    await expect(row(uploads, "one.csv").locator(".state")).to_have_text("✓ Completed")


async def test_a_page_of_an_origin_that_is_not_allowed_gets_nothing(
    console: Console, serve_site: Callable[..., Site], page: Page
) -> None:
    site = serve_site(console, await console.key("upload"), free_port())
    await page.goto(site.url)
    await page.wait_for_selector("wb-upload[key]", state="attached")
    assert await page.evaluate("customElements.get('wb-upload') === undefined")
    asked = "u => fetch(u, {method: 'POST', headers: {'Tus-Resumable': '1.0.0'}}).then(() => '', e => e.name)"
    assert await page.evaluate(asked, f"{console.url}/api/files") == "TypeError"


async def test_dark_and_light_have_contrast_and_the_layout_does_not_shift(site: Site, page: Page) -> None:
    uploads = await site.open(page)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await choose(
            uploads,
            small(f"{scheme}.csv", scheme),
            {"name": "bad.csv", "mimeType": "", "buffer": b"a,b\n1,2\n"},
        )
        height = await row(uploads, f"{scheme}.csv").evaluate("e => e.offsetHeight")
        await expect(row(uploads, f"{scheme}.csv").locator(".state")).to_have_text("✓ Completed")
        assert await row(uploads, f"{scheme}.csv").evaluate("e => e.offsetHeight") == height
        assert not await serious(page)


def test_the_element_is_small_and_requests_no_other_host() -> None:
    module = (Path(__file__).parents[2] / "src/weighbridge/console/static/wb-upload.js").read_text()
    assert len(module.encode()) <= 24 * 1024
    assert "import" not in module
    assert "innerHTML" not in module
