"""Quickstarts: every command runs in the order of the page and prints what the page shows.

Each page has an empty folder, a shell and ports of its own. README.md gets the project's files.
start-operator.md gets an empty database of the run's server as DATABASE_URL; the others use the embedded
Postgres.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from .pages import ROOT, RUN, Command, commands, matches, text_of
from .shell import Shell

PORTS = ("8080", "8090", "9000")  # a page prints these; the test replaces them with free ones
OPERATOR = "docs/start-operator.md"


@pytest.mark.parametrize("page", RUN)
def test_a_page_runs_as_printed(page: str, folder: Path, environment: dict[str, str]) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    environment |= {"WEIGHBRIDGE_PORT": ports["8080"]}
    with closing(Shell(folder, environment)) as shell:
        for command in commands(with_ports(text_of(page), ports)):
            try:
                follow(shell, command)
            except AssertionError as error:
                raise AssertionError(f"{page}:{command.line}: {command.text}\n{error}") from None
        assert shell.still_running(within=20) == []


def follow(shell: Shell, command: Command, within: float = 20) -> None:
    """Run it, and wait for the output that the page shows: a job in the background may print it."""
    begins = shell.written
    shell.run(command.text)
    give_up = time.monotonic() + within
    while command.shown and not matches(command.shown, shell.output(begins)):
        if time.monotonic() > give_up:
            shown = "\n".join(command.shown)
            raise AssertionError(f"the page shows\n{shown}\nbut it prints\n{shell.output(begins)}")
        time.sleep(0.02)


@pytest.fixture
def folder(page: str) -> Iterator[Path]:
    """Not in pytest's own folder: it takes away the rights that Postgres needs when tests run as root."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-page-") as made:
        if page == "README.md":
            link_project(Path(made))
        yield Path(made)


def link_project(folder: Path) -> None:
    """The project's files, and its environment as already installed: nothing is downloaded."""
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".installed").touch()


@pytest.fixture
def environment(page: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The developer's, with a home of its own. README itself puts the command on the PATH."""
    path = [each for each in os.environ["PATH"].split(":") if not (Path(each) / "weighbridge").exists()]
    if page != "README.md":
        path.insert(0, str(Path(sys.executable).parent))
    plain = {**os.environ, "PATH": ":".join(path), "HOME": str(folder), "COLUMNS": "110"}
    if page != OPERATOR:
        yield plain
        return
    with empty_database(request.getfixturevalue("postgres")) as url:
        yield {**plain, "DATABASE_URL": url}


@contextmanager
def empty_database(postgres: str) -> Iterator[str]:
    name = f"page_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {name}")
        yield postgres.replace("/postgres?", f"/{name}?")
        owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


def free_ports(count: int) -> list[str]:
    with contextmanager(_bound)(count) as sockets:
        return [str(each.getsockname()[1]) for each in sockets]


def _bound(count: int) -> Iterator[list[socket.socket]]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    yield sockets
    for each in sockets:
        each.close()


def with_ports(text: str, ports: dict[str, str]) -> str:
    return re.sub(r"\b(8080|8090|9000)\b", lambda found: ports[found[0]], text)
