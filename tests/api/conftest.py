"""What the tests of the API share: keys, a client in this process, a server in another one."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests import prefork
from tests.conftest import worked_out
from weighbridge.access import keys
from weighbridge.api import create
from weighbridge.app import App
from weighbridge.engine.options import WorkerOptions
from weighbridge.postgres.transactions import Database
from weighbridge.projects import queue as projects_queue
from weighbridge.worker import kick

CSV = b"Day,Campaign name,Amount spent (USD)\n2025-01-01,Spring,10.50\n"
MakeKey = Callable[..., Awaitable[dict[str, str]]]
Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def make_key(app: App, workspace: UUID) -> MakeKey:
    """`await make_key("read")`: the headers of a new key with these scopes, for the test's workspace."""

    async def make_key(*scopes: str, of: UUID | None = None, expires_at: Any = None) -> dict[str, str]:
        return await new_key(app.db, of or workspace, scopes, expires_at)

    return make_key


async def new_key(
    db: Database, workspace: UUID, scopes: tuple[str, ...], expires_at: Any = None
) -> dict[str, str]:
    async with db.tx() as tx:
        _, secret = await keys.create(tx, workspace, "test", scopes, expires_at)
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
async def key(make_key: MakeKey) -> dict[str, str]:
    return await make_key("upload", "read", "operate")


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """The API without a socket."""
    transport = httpx.ASGITransport(worked_out(create(app)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
        yield client


@pytest.fixture
def left_behind(home: Path, query: Query) -> Callable[[], list[str]]:
    """What intake left: rows, blobs, scratch files. Nothing, after a refusal."""

    def left_behind() -> list[str]:
        rows = [f"row {id_}" for (id_,) in query("SELECT id FROM data_uploads")]
        files = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
        # What the folder of files that wait is called is there from the start.
        files = [each for each in files if not each.endswith("/spool-id")]
        return rows + files

    return left_behind


@pytest.fixture
def make_upload(query: Query, workspace: UUID) -> Callable[..., UUID]:
    """`make_upload(status="failed")`: a row of data_uploads as it would be by now."""

    def make_upload(**columns: Any) -> UUID:
        values = {
            "workspace_id": workspace,
            "platform": "meta",
            "source": "api",
            "pipeline": "ads",
            "filename": "export.csv",
            "file_url": "file:///nowhere",
            "content_sha256": uuid4().bytes * 2,
            "byte_size": 1,
            **columns,
        }
        names, places = ", ".join(values), ", ".join(["%s"] * len(values))
        ((id_,),) = query(
            f"INSERT INTO data_uploads ({names}) VALUES ({places}) RETURNING id", tuple(values.values())
        )
        return UUID(str(id_))

    return make_upload


@dataclass(frozen=True)
class Keywords:
    """A project whose files come through the API and are worked on by a real worker."""

    app: App
    client: httpx.AsyncClient
    key: dict[str, str]
    project: int = 7

    @property
    def url(self) -> str:
        return f"/api/projects/{self.project}"

    async def send(self, *lines: str, name: str = "a.csv", **fields: Any) -> UUID:
        """A file of `keyword,volume` lines, as a job that nobody works on: the project is locked."""
        data = {"pipeline": "keywords", "project_id": str(self.project), **fields}
        content = "\n".join(["Keyword,Volume", *lines]).encode()
        answer = await self.client.post(
            "/api/uploads", headers=self.key, data=data, files={"file": (name, content)}
        )
        assert answer.status_code in (200, 201), answer.text
        return UUID(answer.json()["upload_id"])

    async def work(self) -> None:
        """Run the project until nothing is left to do."""
        workspace = await self._workspace()
        async with self.app.db.tx() as tx:
            project = await projects_queue.get_project(tx, workspace, self.project)
        assert project is not None
        assert await kick(self.app.ctx, WorkerOptions(), project)

    async def load(self, *lines: str, **fields: Any) -> UUID:
        """A file, all the way."""
        sent = await self.send(*lines, **fields)
        await self.work()
        return sent

    async def ask(self, path: str = "", **params: Any) -> Any:
        answer = await self.client.get(f"{self.url}{path}", headers=self.key, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.client.post(f"{self.url}{path}", headers=self.key, json=body)

    async def status(self) -> Any:
        path = f"/projects/{self.project}/processing/status"
        return (await self.client.get(path, headers=self.key)).json()

    async def _workspace(self) -> UUID:
        async with self.app.db.tx() as tx:
            key = await keys.find(tx, self.key["Authorization"].removeprefix("Bearer "))
        assert key is not None
        return key.workspace_id


@pytest.fixture
def keywords(app: App, client: httpx.AsyncClient, key: dict[str, str]) -> Keywords:
    return Keywords(app, client, key)


@dataclass
class Server:
    """`weighbridge up` or `api` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    lines: queue.Queue[str]
    home: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def serve(
    shared_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """`serve("up", WEIGHBRIDGE_MAX_UPLOAD_MB=1)`: started and listening; ended with the module."""
    started: list[subprocess.Popen[str]] = []

    def serve(command: str = "api", **settings: Any) -> Server:
        home = tmp_path_factory.mktemp("home")
        environment = {
            **os.environ,
            "DATABASE_URL": shared_database_url,
            "WEIGHBRIDGE_HOME": str(home),
            "WEIGHBRIDGE_PORT": "0",
            **{name: str(value) for name, value in settings.items()},
        }
        process = subprocess.Popen(
            [prefork.command(), command],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        seen = []
        while True:
            seen.append(lines.get(timeout=30))
            if found := re.search(r"listens on (http://\S+)", seen[-1]):
                return Server(process, found.group(1), lines, home)

    yield serve
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        assert process.stderr is not None
        process.stderr.close()
