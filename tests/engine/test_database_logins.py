"""A login that is no superuser, on a separate server: it creates the roles it needs, or asks for them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import prefork
from tests.engine.conftest import meta_file
from weighbridge.postgres import embedded

Weighbridge = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a new server, as its administrator: it has none of our roles."""
    return embedded.start(tmp_path_factory.mktemp("server"), "postgres")


def as_login(server: str, login: str, rights: str, tmp_path: Path) -> Weighbridge:
    """The command, with a database that belongs to a new login with these rights."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {login} LOGIN {rights}")
        connection.execute(f"CREATE DATABASE {login} OWNER {login}")
    url = psycopg.conninfo.make_conninfo(server, user=login, dbname=login)
    environment = {**os.environ, "DATABASE_URL": url, "WEIGHBRIDGE_HOME": str(tmp_path / "home")}

    def weighbridge(*arguments: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [prefork.command(), *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )

    return weighbridge


def loads(weighbridge: Weighbridge, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "meta.csv").write_bytes(meta_file())
    done = weighbridge("load", tmp_path / "meta.csv", "--platform", "meta", "--json")
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_a_login_that_may_create_roles_needs_no_administrator(server: str, tmp_path: Path) -> None:
    """Since Postgres 16 the creator of a role may administer it, but not use SET ROLE."""
    weighbridge = as_login(server, "maker", "CREATEROLE", tmp_path)
    assert weighbridge("db", "migrate").returncode == 0
    assert loads(weighbridge, tmp_path)["inserted"] == 12


def test_a_login_that_may_not_create_roles_prints_the_statements_for_an_administrator(
    server: str, tmp_path: Path
) -> None:
    weighbridge = as_login(server, "plain", "", tmp_path)
    refused = weighbridge("db", "migrate")
    assert refused.returncode == 1
    assert refused.stderr.startswith("weighbridge: The login plain may not use the roles")
    errand = refused.stderr.split("Have an administrator run: ")[1]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(errand.encode())
    assert weighbridge("db", "migrate").returncode == 0
    assert loads(weighbridge, tmp_path)["inserted"] == 12
