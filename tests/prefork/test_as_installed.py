"""A command of tests/prefork behaves as the installed one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.prefork import INSTALLED

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def environment(home: Path, database_url: str, weighbridge_bin: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{weighbridge_bin}:{os.environ['PATH']}",
        "DATABASE_URL": database_url,
        "WEIGHBRIDGE_HOME": str(home),
        "COLUMNS": "90",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    def run(script: str, **settings: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", script], env={**environment, **settings}, cwd=tmp_path,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    "command",
    [
        "weighbridge --version",
        "weighbridge pipelines show ads | head -3",
        "weighbridge laod",  # exit code 2
        "WEIGHBRIDGE_WORKER_SLOTS=none weighbridge uploads list",  # 1
        "weighbridge --version > /dev/full",
        "weighbridge vault status 3> file 2>&3; cat file",
    ],
)
def test_output_and_exit_code_are_the_installed_ones(command: str, run: Run) -> None:
    installed = run(command.replace("weighbridge ", f"{INSTALLED} ", 1))
    assert run(command) == installed


def test_it_runs_in_the_folder_and_with_the_files_of_its_shell(run: Run, tmp_path: Path) -> None:
    assert run("weighbridge demo --files samples; umask")[0] == 0
    assert len(list((tmp_path / "samples").iterdir())) == 6
    (tmp_path / "shop.py").write_text("open('seen', 'w').write('')")
    run("umask 077; weighbridge pipelines list", WEIGHBRIDGE_PIPELINES="shop")
    assert (tmp_path / "seen").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGINT, 128 + signal.SIGINT),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_ends_the_command(
    number: signal.Signals, code: int, environment: dict[str, str], tmp_path: Path
) -> None:
    """Ctrl-C and a kill reach the client only: it has the process id that the shell knows."""
    (tmp_path / "inbox").mkdir()
    process = subprocess.Popen(
        ["weighbridge", "watch", "inbox", "--pipeline", "auto", "--json"],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    (tmp_path / "inbox" / "notes.txt").write_text("no report")
    assert b"refused" in process.stdout.readline()  # it works
    process.send_signal(number)
    assert process.wait(20) == code
    process.stdout.close()
    give_up = time.monotonic() + 20
    while left := [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(tmp_path)]:
        assert time.monotonic() < give_up, left
        time.sleep(0.02)


def test_a_job_in_the_background_ignores_ctrl_c_as_bash_has_it(run: Run) -> None:
    script = """
        mkdir inbox; echo no report > inbox/1.txt
        weighbridge watch inbox --pipeline auto --move > log &
        until grep -q 1.txt log; do sleep 0.02; done; kill -INT $!
        echo no report > inbox/2.txt
        until grep -q 2.txt log; do sleep 0.02; done; kill $!; wait $!
    """
    assert run(script)[0] == 128 + signal.SIGTERM


def test_another_python_path_has_the_installed_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit(41)")
    assert run("weighbridge --version", PYTHONPATH=str(tmp_path))[0] == 41
