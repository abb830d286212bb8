"""`make screenshots`: every page of the console, light and dark, with something to see on it.

A real `weighbridge up` on an embedded Postgres in a temporary folder, files sent over HTTP, deliveries to fakes on
sockets, a real Chromium. Nothing is left behind but the pictures.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from playwright.async_api import Page, async_playwright

from weighbridge.testing.exports import write_demo_exports
from weighbridge.testing.fake_providers import FakeGoogleAds, FakeMeta, Fault

from .chromium import NONE, find, install
from .files import ads, keywords

SIZE = {"width": 1280, "height": 860}
WORDS = (
    ("red running shoes", "running shoes red", "red shoe for running", "blue running shoes", "trail shoes"),
    (
        "waterproof jacket",
        "jackets waterproof",
        "rain jacket",
        "red rain jacket",
        "hiking socks",
        "sock for hiking",
    ),
)
GOOGLE = json.loads((Path(__file__).parents[2] / "examples" / "google_ads.json").read_text())
META = {"dataset_id": "1234567890", "access_token": "demo"}


def main(folder: Path) -> None:
    chromium = find() or install()
    if chromium is None:
        raise SystemExit(NONE)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="weighbridge-screenshots-") as home,
        FakeGoogleAds() as google,
        FakeMeta() as meta,
    ):
        settings = {
            "WEIGHBRIDGE_HOME": home,
            "WEIGHBRIDGE_PORT": "0",
            "WEIGHBRIDGE_VAULT_KEY": _run(home, "vault", "key"),
            "WEIGHBRIDGE_PROVIDER_URLS": f"google_ads={google.url},meta_capi={meta.url}",
            "WEIGHBRIDGE_USER_TOTAL_MB": "500",
            "WEIGHBRIDGE_WORKSPACE_TOTAL_MB": "2000",
        }
        with _up(settings) as url:
            secret = _run(home, "keys", "create", "--name", "Ada", "--scope", "admin")
            seen = asyncio.run(_fill(url, secret, Path(home), meta))
            asyncio.run(_take(url, secret, folder, chromium, seen, _run(home, "db", "url")))


async def _fill(url: str, secret: str, home: Path, meta: FakeMeta) -> dict[str, str]:
    """Files, a project, a preview, sites with deliveries; the ids that pages are opened by."""
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:

        async def send(name: str, content: bytes, **fields: Any) -> str:
            said = {key: str(value) for key, value in fields.items()}
            answer = await client.post("/api/uploads", data=said, files={"file": (name, content)})
            return str(answer.raise_for_status().json()["upload_id"])

        sent = {}
        for export in write_demo_exports(home / "demo"):
            content = export.path.read_bytes()
            sent[export.path.name.split("-")[0]] = await send(export.path.name, content, pipeline="auto")
        for number, words in enumerate(WORDS):
            name = f"keywords-{number + 1}.csv"
            sent["project"] = await send(name, keywords(*words).encode(), pipeline="keywords", project_id=7)
        await send("lamps.csv", keywords("desk lamp", "lamp for desk", "red lamp").encode(), pipeline="keywords",
                   project_id=8)  # fmt: skip
        for number, name in ((7, "Outdoor shop"), (8, "Lamps")):
            await client.post("/api/projects", json={"name": name, "project_id": number})
        await send("spend-of-a-bad-day.csv", ads(12, broken=9).encode(), platform="meta")
        await _ended(client)
        merge = {"tokens": ["coat", "anorak"], "into": "jacket"}
        while (await client.post("/api/projects/7/tokens/merge", json=merge)).status_code == 409:
            await asyncio.sleep(0.3)  # its groups are being made
        changed = (home / "demo" / "meta-ads-daily.csv").read_bytes().replace(b",12.", b",13.")
        sent["preview"] = await send("meta-ads-daily-corrected.csv", changed, platform="meta", preview="true")
        sites = {}
        for name, provider, credentials in (("Shop", "google_ads", GOOGLE), ("Outlet", "meta_capi", META)):
            made = await client.post("/api/sites", json={"name": name, "providers": [provider]})
            sites[name] = made.raise_for_status().json()["site_id"]
            answer = await client.put(
                f"/api/sites/{sites[name]}/credentials/{provider}", json={"credentials": credentials}
            )
            answer.raise_for_status()
        meta.script(*[Fault.status(503)] * 20)
        moment = time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime())
        sales = [
            {"site_id": sites[name], "order_id": f"{name[0]}-{number}", "occurred_at": moment, "value": 20 + number,
             "currency": "EUR", **({"gclid": f"Cj0KCQ-{number}"} if name == "Shop" else {"fbclid": f"IwAR-{number}"})}
            for name in sites for number in range(1, 13)
        ]  # fmt: skip
        answer = await client.post("/api/conversions", json={"conversions": sales})
        sent["sale"] = answer.raise_for_status().json()["conversions"][0]["sale_id"]
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            told = (await client.get(f"/api/conversions/{sent['sale']}")).json()
            held = (await client.get(f"/api/uploads/{sent['preview']}")).json()
            if "COMPLETED" in str(told) and held["status"] == "staging_complete":
                break
            await asyncio.sleep(0.3)
        await asyncio.sleep(3)  # for the other site's circuit to open
    return sent


async def _ended(client: httpx.AsyncClient) -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        found = (await client.get("/api/uploads")).json()["uploads"]
        if all(each["status"] in ("completed", "partial", "failed") for each in found):
            return
        await asyncio.sleep(0.3)
    raise SystemExit("The files were not loaded within two minutes.")


async def _more_keywords(url: str, secret: str, name: str) -> None:
    """Two files for a project that has groups already."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {secret}"}) as client:
        for number in (1, 2):
            data = {"pipeline": "keywords", "project_id": "8"}
            content = keywords(f"{name} lamp {number}", f"lamp {name} {number}").encode()
            file = {"file": (f"{name}-{number}.csv", content)}
            (await client.post("/api/uploads", data=data, files=file)).raise_for_status()


@contextmanager
def _held_up(database: str) -> Iterator[None]:
    """Files of keywords stand in the middle of their processing, until this ends."""
    with psycopg.connect(database) as connection:
        connection.execute("LOCK TABLE keywords IN SHARE ROW EXCLUSIVE MODE")
        yield
        connection.rollback()


async def _take(
    url: str, secret: str, folder: Path, chromium: str, seen: dict[str, str], database: str
) -> None:
    pages = {
        "uploads": "/uploads",
        "upload": f"/uploads/{seen['meta']}",
        "preview": f"/uploads/{seen['preview']}/preview",
        "projects": "/projects",
        "project-files": "/projects/7",
        "project": "/projects/7?tab=groups",
        "project-keywords": "/projects/7?tab=keywords",
        "project-tokens": "/projects/7?tab=tokens",
        "deliveries": "/deliveries",
        "conversion": f"/deliveries/{seen['sale']}",
        "storage": "/storage",
        "health": "/health",
    }
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            context = await browser.new_context(color_scheme=scheme, viewport=SIZE, locale="en-GB")  # type: ignore[arg-type]
            page = await context.new_page()
            await page.goto(f"{url}/sign-in")
            await _shot(page, folder / f"sign-in-{scheme}.png")
            await page.get_by_label("API key").fill(secret)
            await page.get_by_role("button", name="Sign in").click()
            for name, path in pages.items():
                await page.goto(f"{url}{path}")
                await _shot(page, folder / f"{name}-{scheme}.png")
            await page.goto(f"{url}/uploads/{seen['meta']}")
            await page.locator("#rejected table a").first.click()  # the rows of the most frequent reason
            await _shot(page, folder / f"rejected-{scheme}.png")
            with _held_up(database):
                await _more_keywords(url, secret, scheme)
                await page.goto(f"{url}/projects/8?tab=groups")
                await _shot(page, folder / f"project-locked-{scheme}.png")
            await page.set_viewport_size({"width": 390, "height": 800})
            await page.goto(f"{url}/uploads")
            await _shot(page, folder / f"phone-{scheme}.png")
            await context.close()
        await browser.close()


async def _shot(page: Page, path: Path) -> None:
    await page.wait_for_timeout(700)  # fonts, local times, what refresh.js asks for
    await page.screenshot(path=path)
    sys.stdout.write(f"{path}\n")


def _run(home: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "weighbridge", *arguments],
        env={**os.environ, "WEIGHBRIDGE_HOME": home}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@contextmanager
def _up(settings: dict[str, str]) -> Iterator[str]:
    log = Path(settings["WEIGHBRIDGE_HOME"]) / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "weighbridge", "up"], env={**os.environ, **settings}, stderr=out
        )
    try:
        while "listens on " not in (told := log.read_text(errors="replace")):
            if process.poll() is not None:
                raise SystemExit(told)
            time.sleep(0.1)
        yield told.split("listens on ", 1)[1].split()[0]
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
