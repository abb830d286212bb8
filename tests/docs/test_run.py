"""Pages: every command runs in the order of the page and prints what the page shows.

Each page has an empty folder, a shell and ports of its own. README.md gets the project's files and the installed
command; the other pages get the faster one of tests/prefork. A page of EMBEDDED uses the embedded Postgres,
start-operator.md gets an empty database of the run's server as DATABASE_URL, and all others get a migrated one.
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

from tests.conftest import fresh_database

from .pages import ROOT, Command, Part, matches, parts
from .shell import Shell

PORTS = ("8080", "8090", "9000", "9101")  # a page prints these; the test replaces them with free ones
README = "README.md"
OPERATOR = "docs/start-operator.md"
EMBEDDED = [README, *(f"docs/start-{name}.md" for name in ("browser", "folders", "application"))]
SETUP = ROOT / "tests" / "docs" / "setup"


@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in parts()])
def test_a_page_runs_as_printed(part: Part, folder: Path, environment: dict[str, str]) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    environment |= {"WEIGHBRIDGE_PORT": ports["8080"]}
    with closing(Shell(folder, environment)) as shell:
        if part.setup.exists():
            for file in (SETUP / "all.sh", part.setup):
                shell.run(with_ports(file.read_text(), ports))
            shell.keep_running()
        for command in part.commands:
            try:
                follow(shell, with_other_ports(command, ports))
            except AssertionError as error:
                raise AssertionError(f"{part.page}:{command.line}: {command.text}\n{error}") from None
        assert shell.still_running(within=20) == []


def test_every_setup_is_of_a_page() -> None:
    assert {*SETUP.rglob("*.sh")} <= {SETUP / "all.sh", *(part.setup for part in parts())}


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
def folder(part: Part) -> Iterator[Path]:
    """Not in pytest's own folder: it takes away the rights that Postgres needs when tests run as root."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-page-") as made:
        if part.page == README:
            link_project(Path(made))
        # A reader sees an answer like 404, and the test must, too. Nor does a terminal show how fast a download is.
        (Path(made) / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
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
def environment(part: Part, folder: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The developer's, with a home of its own. README itself puts the command on the PATH."""
    path = [each for each in os.environ["PATH"].split(":") if not (Path(each) / "weighbridge").exists()]
    if part.page != README:
        path = [str(request.getfixturevalue("weighbridge_bin")), str(Path(sys.executable).parent), *path]
    plain = {**os.environ, "PATH": ":".join(path), "HOME": str(folder), "COLUMNS": "110", "SOURCE": str(ROOT)}
    if part.page in EMBEDDED:
        yield plain
        return
    database = empty_database if part.page == OPERATOR else fresh_database
    with database(request.getfixturevalue("postgres")) as url:
        yield {**plain, "DATABASE_URL": url, "WEIGHBRIDGE_HOME": str(folder / "home")}


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
    return re.sub(rf"\b({'|'.join(ports)})\b", lambda found: ports[found[0]], text)


def with_other_ports(command: Command, ports: dict[str, str]) -> Command:
    shown = [with_ports(line, ports) for line in command.shown]
    return Command(command.line, with_ports(command.text, ports), shown)
