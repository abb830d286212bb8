"""What the tests of metrics share: an application with a token, files that went through it, and scrapes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.conftest import run  # noqa: F401 (a fixture)
from weighbridge.app import App, open_app
from weighbridge.model.upload import Upload
from weighbridge.settings import read

from .conftest import MakeKey, Query

TOKEN = "scrape-me-ß"
BEARER = {"Authorization": f"Bearer {TOKEN}".encode()}
BROKEN = b"Day,Campaign name\n" + b"x" * 2_000_000  # a line without an end

Load = Callable[..., Awaitable[Upload]]
Scrape = Callable[[], Awaitable["Scraped"]]


class Scraped:
    """What one scrape said: `seen("weighbridge_uploads", state="failed")`."""

    def __init__(self, text: str) -> None:
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def since(self, before: Scraped, name: str, **labels: str) -> float:
        """How much a counter has grown; one that was not there yet was zero."""
        return self(name, **labels) - before.samples.get((name, frozenset(labels.items())), 0)


@pytest.fixture
async def app(database_url: str, home: Path, query: Query) -> AsyncIterator[App]:
    """With a token, and far from Greenwich, so that no time is right by chance."""
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    query(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
    async with open_app(read(home=home, DATABASE_URL=database_url, metrics_token=TOKEN)) as opened:
        yield opened


@pytest.fixture
def load_file(
    client: httpx.AsyncClient,
    make_key: MakeKey,
    run: Callable[..., Awaitable[Upload]],  # noqa: F811
) -> Load:
    """`await load_file(content)`: sent over HTTP and worked on; the upload as it ended."""

    async def load_file(content: bytes, **fields: str) -> Upload:
        answer = await client.post(
            "/api/uploads",
            headers=await make_key("upload"),
            data={"platform": "meta", **fields},
            files={"file": ("meta.csv", content)},
        )
        return await run(UUID(answer.json()["upload_id"]))

    return load_file


@pytest.fixture
def scrape(client: httpx.AsyncClient) -> Scrape:
    async def scrape() -> Scraped:
        answer = await client.get("/metrics", headers=BEARER)
        assert answer.status_code == 200, answer.text
        return Scraped(answer.text)

    return scrape
