"""What the tests of storage share: a real S3 server, and a line to it that can be spoiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.api.conftest import client, key, left_behind, make_key, new_key  # noqa: F401 (fixtures)
from tests.proof.workers import until
from tests.storage.proxy import Proxy
from tests.storage.s3 import S3
from tests.storage.site import DEFAULT_USER, FILE, ROWS, Site
from weighbridge.postgres.transactions import Database


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3]:
    with S3(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def small_s3(tmp_path: Path) -> Iterator[S3]:
    """One whose disk is soon full. It needs user namespaces."""
    with S3(tmp_path / "small-s3", size="8m") as server:
        yield server


@pytest.fixture
def line(s3: S3) -> Iterator[Proxy]:
    """The way to `s3`."""
    with Proxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def sender(database_url: str, workspace: UUID) -> dict[str, str]:
    async def make() -> dict[str, str]:
        db = Database(database_url, size=1)
        await db.open()
        try:
            return await new_key(db, workspace, ("upload", "read", "operate"))
        finally:
            await db.close()

    return asyncio.run(make())


@pytest.fixture
def make_site(database_url: str, tmp_path: Path, sender: dict[str, str]) -> Iterator[Callable[..., Site]]:
    """`make_site(**s3.environment())`: another machine, with its API."""
    made: list[Site] = []

    def make_site(**settings: str) -> Site:
        site = Site(database_url, tmp_path / f"site-{len(made)}", sender, **settings)
        made.append(site)
        site.start("api")
        return site

    yield make_site
    for site in made:
        site.end()


@pytest.fixture
def site(make_site: Callable[..., Site], s3: S3, line: Proxy) -> Site:
    """A machine whose way to the store can be spoiled."""
    return make_site(WEIGHBRIDGE_BLOB_URL=s3.bucket_url, **s3.environment(line.port))


@pytest.fixture
def settled(query: Callable[..., Any]) -> Callable[[UUID | str], None]:
    """`settled(upload_id)`: wait until it is in production, and nothing of it waits anywhere."""

    def settled(upload_id: UUID | str) -> None:
        ended = (
            "SELECT status, error_text FROM data_uploads WHERE id = %s AND status IN ('completed', 'failed')"
        )
        assert until(lambda: query(ended, (upload_id,))) == [("completed", None)]
        assert query("SELECT count(*) FROM daily_metrics") == [(ROWS,)]
        assert query("SELECT count(*) FROM upload_queue") == [(0,)]
        usage = "SELECT total_bytes, total_sources FROM storage_usage WHERE user_id = %s"
        assert query(usage, (DEFAULT_USER,)) == [(len(FILE), 1)]
        assert query("SELECT storage_status FROM data_uploads WHERE id = %s", (upload_id,)) == [("stored",)]

    return settled
