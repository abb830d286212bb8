"""What all tests share: one real Postgres for the whole run, and a fresh migrated database for each test.

    async def test_…(db, clock, workspace): …     async tests need no marker; they run on asyncio
    def test_…(database_url, home): …             for tests that start processes of their own

The server starts when the first test asks for it and lives in a temporary folder. The schema is migrated
once into a template; a test gets a copy (12 ms) that is dropped after it. Tests that stop or restart Postgres
start their own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import gc
import inspect
import logging
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import certifi
import psutil
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import pq

from tests import prefork
from weighbridge.cli import stopping
from weighbridge.pipelines import BUILT_IN
from weighbridge.postgres import embedded, migrate, pipeline_tables
from weighbridge.postgres.transactions import Database

# How long an example takes says nothing here: machines are busy, and a new clone first makes tables of all characters.
settings.register_profile("weighbridge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weighbridge")

if TYPE_CHECKING:
    from fastapi import FastAPI

    from weighbridge.app import App
    from weighbridge.delivery.context import Context

_SERVER = pytest.StashKey[Path]()
MEMORY = Path("/dev/shm")
END = "-----END CERTIFICATE-----\n"
SERVERS = "weighbridge-tests-"
TEMPLATE = "weighbridge_template"
# Somebody in the test's own database waits for a lock; pg_locks has those of all tests.
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
# Modules whose tests share processes of their own, or an import that takes seconds.
TOGETHER = {
    "tests/api/test_socket.py": "socket",
    "tests/projects/test_scenarios.py": "scenarios",
    "tests/providers/test_google_ads.py": "google types",
    "tests/providers/test_google_errors.py": "google types",
    "tests/storage/test_resumable_client.py": "resumable client",
}


# One server for the run -------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.option.anyio_mode = "auto"
    for name in [n for n in os.environ if n.startswith("WEIGHBRIDGE_")] + ["DATABASE_URL"]:
        os.environ.pop(name, None)  # the developer's own settings are not the tests'
    if hasattr(config, "workerinput"):
        config.stash[_SERVER] = Path(config.workerinput["postgres_home"])
    else:
        config.stash[_SERVER] = folder = server_folder()
        atexit.register(_remove, folder)
        # No test speaks TLS, but each client of httpx loads all certificates, which takes 0.1 s. One will do.
        certificates = Path(certifi.where()).read_text()
        (folder / "certificate.pem").write_text(certificates.partition(END)[0] + END)
        os.environ["SSL_CERT_FILE"] = str(folder / "certificate.pem")
        os.environ.pop("SSL_CERT_DIR", None)
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            # Each process would compile every library anew, which takes longer than the tests.
            os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")


def pytest_collection_finish() -> None:
    """What collection has made stays until the end: without this, the collector looks through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or extension modules report at exit that their objects are left


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of some modules on one worker: the mark xdist_group does nothing since pytest 9.2."""
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return TOGETHER.get(module) or super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["postgres_home"] = str(node.config.stash[_SERVER])


@pytest.fixture(autouse=True)
def no_log_left() -> Iterator[None]:
    """A command that ran inside a test has set up its log; what it writes to is closed with the test.

    If it was stopped by a signal, it would also end the process of the tests after a while.
    """
    yield
    stopping.go_on()
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if type(each) is not logging.StreamHandler]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> str:
    """The URL of the run's server, whose database `weighbridge_template` has the newest schema."""
    home = pytestconfig.stash[_SERVER]
    with (home / "lock").open("w") as lock:
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # the workers of a run share the server; the first one makes the template
        url = embedded.start(home, "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
            if found is None:
                _make_template(connection, url)
    return url


def _make_template(connection: psycopg.Connection, url: str) -> None:
    # Nothing here outlives the machine, and a copy of the template fills most of a segment.
    for setting in ("fsync", "full_page_writes", "wal_init_zero"):
        connection.execute(f"ALTER SYSTEM SET {setting} = off")
    connection.execute("SELECT pg_reload_conf()")
    connection.execute("CREATE DATABASE being_made")
    asyncio.run(_migrate(_named(url, "being_made")))
    connection.execute(f"ALTER DATABASE being_made RENAME TO {TEMPLATE}")


async def _migrate(url: str) -> None:
    db = Database(url, size=1)
    await db.open()
    try:
        async with db.tx() as tx:
            await migrate.migrate(tx)
            await pipeline_tables.install(tx, list(BUILT_IN.values()))
    finally:
        await db.close()


def _named(url: str, database: str) -> str:
    """The same server, another database."""
    before, _, after = url.partition("/postgres?")
    return f"{before}/{database}?{after}"


def server_folder() -> Path:
    """A new one for a Postgres: in memory where there is plenty, as a template is copied five times as quickly there.

    Not in pytest's own folder: it takes away the rights that Postgres needs when tests run as root.
    """
    plenty = psutil.virtual_memory().available > 8 * 2**30
    if not plenty or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 8 * 2**30:
        return Path(tempfile.mkdtemp(prefix=SERVERS))
    for owner in MEMORY.glob(f"{SERVERS}*/owner"):  # by a run that was killed
        with contextlib.suppress(OSError, ValueError):
            if not psutil.pid_exists(int(owner.read_text())):
                _remove(owner.parent)
    folder = Path(tempfile.mkdtemp(prefix=SERVERS, dir=MEMORY))
    (folder / "owner").write_text(str(os.getpid()))
    return folder


def _running(home: Path) -> int | None:
    """The server's process, where there is one."""
    with contextlib.suppress(FileNotFoundError, IndexError):
        pid = int((home / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        return pid if psutil.pid_exists(pid) else None
    return None


def _remove(home: Path) -> None:
    """Stop the server where its last user could not, and remove its folder."""
    if pid := _running(home):
        os.kill(pid, signal.SIGINT)  # Postgres's fast shutdown
        give_up = time.monotonic() + 10
        while (home / "postgres" / "postmaster.pid").exists() and time.monotonic() < give_up:
            time.sleep(0.02)
    shutil.rmtree(home, ignore_errors=True)


# A database for the test ------------------------------------------------------------------------------------


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """A fresh database with the newest schema and the built-in pipelines."""
    with fresh_database(postgres) as url:
        yield url


@pytest.fixture(scope="module")
def shared_database_url(postgres: str) -> Iterator[str]:
    """One for all tests of a module, where a process that they share uses it; give each test a workspace."""
    with fresh_database(postgres) as url:
        yield url


@contextlib.contextmanager
def fresh_database(postgres: str) -> Iterator[str]:
    name = f"test_{uuid4().hex[:12]}"
    _as_owner(postgres).execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
    yield _named(postgres, name)
    _as_owner(postgres).execute(f"DROP DATABASE {name} WITH (FORCE)")


@cache
def _as_owner(postgres: str) -> psycopg.Connection:
    """One connection for all databases of a test process."""
    connection = psycopg.connect(postgres, autocommit=True)
    atexit.register(connection.close)
    return connection


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """The test's database, opened."""
    database = Database(database_url)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@dataclass(frozen=True)
class Clock:
    """The database's clock, which tests move instead of sleeping."""

    query: Callable[..., Any]

    def forward(self, by: timedelta | None = None, **units: float) -> None:
        """`clock.forward(seconds=61)`, `clock.forward(days=8)`."""
        shift = (by or timedelta()) + timedelta(**units)
        self.query("UPDATE weighbridge.clock SET shift = shift + %s", (shift,))


class Inspector:
    """Runs statements as the owner of a database, for as many threads as ask at once.

    A connection costs as much as ten statements, and tests that wait for something ask often: it is used again. It
    is not after an error or a SET, so that no statement sees settings of an earlier one.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[psycopg.Connection] = []

    def __call__(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            # Not the description: that of rows without a column, as of SELECT FROM, is none either.
            cursor = connection.execute(statement, params)  # type: ignore[call-overload]
            has_rows = cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK
            rows = cursor.fetchall() if has_rows else []
        except BaseException:
            connection.close()
            raise
        if statement.lstrip().upper().startswith("SET"):
            connection.close()
        else:
            self._idle.append(connection)
        return rows

    def _connected(self) -> psycopg.Connection:
        while self._idle:
            connection = self._idle.pop()
            # An idle session has nothing to say, unless the server ended it.
            if not select.select([connection], [], [], 0)[0]:
                return connection
            connection.close()
        return psycopg.connect(self._url, autocommit=True, prepare_threshold=None)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


@pytest.fixture
def query(database_url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """`query("SELECT …", (param,))`: what stands in the test's database, seen as its owner."""
    inspector = Inspector(database_url)
    yield inspector
    inspector.close()


@pytest.fixture
def clock(query: Callable[..., Any]) -> Clock:
    return Clock(query)


# The rest of the parts --------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty WEIGHBRIDGE_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def weighbridge_bin() -> Path:
    """A folder for the beginning of PATH, with a `weighbridge` that starts within 0.1 s: see tests/prefork."""
    return prefork.command().parent


@pytest.fixture
def workspace() -> UUID:
    return uuid4()


@pytest.fixture
async def app(database_url: str, home: Path) -> AsyncIterator[App]:
    """The whole application as it runs, with blobs in `home` and the built-in pipelines."""
    from weighbridge.app import open_app
    from weighbridge.settings import read

    async with open_app(read(home=home, DATABASE_URL=database_url)) as opened:
        yield opened


@pytest.fixture
def ctx(app: App) -> Context:
    """What every step is given."""
    return app.ctx


_WORKED_OUT: dict[tuple[int, ...], list[Any]] = {}


def worked_out(api: FastAPI) -> FastAPI:
    """With the routes of the first one like it: FastAPI works them out for each application, which takes 0.2 s."""
    routes = api.router.routes
    like = tuple(id(getattr(each, "original_router", None)) for each in routes)
    first = _WORKED_OUT.setdefault(like, list(routes))
    pairs = zip(routes, first, strict=True)
    api.router.routes = [
        mine if hasattr(mine, "path") else its for mine, its in pairs
    ]  # those without: routers
    return api


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    """`await eventually(lambda: query("SELECT …"))`: the first true answer; fails after `within` seconds."""

    async def eventually(question: Callable[[], Any], *, within: float = 20) -> Any:
        give_up = time.monotonic() + within
        while True:
            answer = question()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            assert time.monotonic() < give_up, f"still {answer!r} after {within} s"
            await asyncio.sleep(0.01)

    return eventually
