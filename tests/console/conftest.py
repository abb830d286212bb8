"""A person at the console: a real `weighbridge up` in a process of its own, and a real Chromium.

async def test_…(console, page): …       signed in with upload, read and operate; `console.url`, `console.workspace`
await console.open(page, "/uploads")
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from tests import prefork
from tests.conftest import fresh_database
from weighbridge.access import keys
from weighbridge.postgres.transactions import Database

from .chromium import NONE, find

LOCAL = re.compile(r"(?:http://(?:127\.0\.0\.1|localhost):|blob:|data:|about:)")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def chromium() -> str:
    """Without a browser the tests fail; they are not left out."""
    found = find()
    assert found, NONE
    return found


@dataclass
class Console:
    """`weighbridge up` (or `api`) on a database of the test's own."""

    database_url: str
    home: Path
    settings: dict[str, str]
    workspace: UUID = field(default_factory=uuid4)
    process: subprocess.Popen[bytes] | None = None
    url: str = ""
    secrets: dict[tuple[str, ...], str] = field(default_factory=dict)

    def start(self, command: str = "up") -> None:
        """Started and listening; the second time at the same address."""
        log = self.home / "server.log"
        environment = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "WEIGHBRIDGE_HOME": str(self.home),
            "WEIGHBRIDGE_PORT": self.url.rsplit(":", 1)[1] if self.url else "0",
            **self.settings,
        }
        with log.open("wb") as out:
            self.process = subprocess.Popen([prefork.command(), command], env=environment, stderr=out)
        give_up = time.monotonic() + 60
        while True:
            told = log.read_text(errors="replace")
            if "listens on " in told:
                self.url = told.split("listens on ", 1)[1].split()[0]
                return
            assert self.process.poll() is None, told
            assert time.monotonic() < give_up, told
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def query(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What the person's workspace has, as its own role sees it."""
        with psycopg.connect(self.database_url) as connection:
            connection.execute("SET LOCAL ROLE weighbridge_tenant")
            connection.execute(
                "SELECT set_config('weighbridge.workspace_id', %s, true)", (str(self.workspace),)
            )
            return connection.execute(statement).fetchall()  # type: ignore[call-overload, no-any-return]

    async def key(self, *scopes: str) -> str:
        """The secret of a key with these scopes, made once."""
        if scopes not in self.secrets:
            db = Database(self.database_url, size=1)
            await db.open()
            try:
                async with db.tx() as tx:
                    _, self.secrets[scopes] = await keys.create(tx, self.workspace, "a person", scopes, None)
            finally:
                await db.close()
        return self.secrets[scopes]

    async def sign_in(self, page: Page, *scopes: str) -> None:
        """Through the form, as a person does."""
        await page.goto(f"{self.url}/sign-in")
        await page.get_by_label("API key").fill(await self.key(*(scopes or ("upload", "read", "operate"))))
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(f"{self.url}/uploads")

    async def open(self, page: Page, path: str) -> None:
        await page.goto(f"{self.url}{path}")

    async def send(self, name: str, content: bytes | str, **fields: Any) -> Any:
        """A file through the API, as a program sends it."""
        secret = await self.key("upload", "read", "operate")
        async with httpx.AsyncClient(base_url=self.url) as client:
            answer = await client.post(
                "/api/uploads",
                headers={"Authorization": f"Bearer {secret}"},
                data={name: str(value) for name, value in fields.items()},
                files={"file": (name, content if isinstance(content, bytes) else content.encode())},
            )
        assert answer.status_code < 300, answer.text
        return answer.json()


@pytest.fixture
def consoles(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Console]]:
    """`consoles(WEIGHBRIDGE_MAX_UPLOAD_MB=1)`: one with settings of its own."""
    started: list[Console] = []

    def make(command: str = "up", **settings: Any) -> Console:
        home = tmp_path_factory.mktemp("home")
        console = Console(database_url, home, {name: str(value) for name, value in settings.items()})
        started.append(console)
        console.start(command)
        return console

    yield make
    for console in started:
        console.stop()


@pytest.fixture(scope="session")
def running(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One that tests share, with an origin that may embed <wb-upload>; each test has a workspace of its own."""
    settings = {
        "WEIGHBRIDGE_POLL_SECONDS": "1",
        "WEIGHBRIDGE_CORS_ORIGINS": f"http://127.0.0.1:{free_port()}",
    }
    with fresh_database(postgres) as url:
        console = Console(url, tmp_path_factory.mktemp("home"), settings)
        console.start()
        yield console
        console.stop()


@pytest.fixture
def console(running: Console) -> Console:
    return replace(running, workspace=uuid4(), secrets={})


@pytest.fixture(scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"]
        )
        yield browser
        await browser.close()


@pytest.fixture
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(locale="en-GB", timezone_id="Europe/Berlin")
    context.set_default_timeout(15_000)
    yield context
    await context.close()


@pytest.fixture
async def page(context: BrowserContext) -> AsyncIterator[Page]:
    """A tab. Whatever its console complains of, and whatever it asks of another host, fails the test."""
    page = await context.new_page()
    complaints: list[str] = []
    context.on(
        "request",
        lambda request: None if LOCAL.match(request.url) else complaints.append(f"asked {request.url}"),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    yield page
    assert not complaints, complaints


async def scroll_down(page: Page, rows: Locator, expected: int) -> None:
    """To the end of an endless list. Pages load as they come into view; one turn of the wheel may load several."""
    assert await rows.count() < expected
    while (loaded := await rows.count()) < expected:
        await page.mouse.wheel(0, 50_000)
        await expect(rows).not_to_have_count(loaded)
    await expect(rows).to_have_count(expected)


async def serious(page: Page) -> list[str]:
    """What axe-core finds that keeps people out: serious and critical."""
    await page.evaluate(_axe())
    found = await page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
    )
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def _axe() -> str:
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
