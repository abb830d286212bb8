"""What the tests of the command line share: the command, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests import prefork


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def environment(database_url: str, home: Path) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url, "WEIGHBRIDGE_HOME": str(home), "COLUMNS": "200"}


@pytest.fixture
def weighbridge(environment: dict[str, str], tmp_path: Path) -> Command:
    """`weighbridge("load", file, "--json")`: run it to its end. Settings as keywords."""

    def weighbridge(*arguments: object, **settings: str) -> Ended:
        done = subprocess.run(
            [prefork.command(), *map(str, arguments)],
            env={**environment, **settings},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    return weighbridge


# All commands with their options: a process makes them once, and so does that of the tests.
_commands = cache(typer.main.get_command)


@pytest.fixture
def main(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Command:
    """The same without a process, where starting one would take longer than what it does."""
    from weighbridge.cli import main

    def run(*arguments: object, **settings: str) -> Ended:
        with monkeypatch.context() as patched:
            patched.chdir(tmp_path)
            patched.setattr(sys, "argv", ["weighbridge", *map(str, arguments)])
            patched.setattr(sys, "path", [*sys.path])
            patched.setattr(typer.main, "get_command", _commands)
            for name, value in {**environment, **settings}.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Ended(int(ended.value.code or 0), out, err)

    return run
