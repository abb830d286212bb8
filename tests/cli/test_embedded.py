"""The first start: no DATABASE_URL, nothing installed, an empty home folder."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests import prefork

START = """
import sys, psycopg
from pathlib import Path
from weighbridge.postgres import embedded
from weighbridge.model.errors import ConfigError
try:
    with psycopg.connect(embedded.start(Path(sys.argv[1]))) as connection:
        print(*connection.execute("SHOW shared_buffers").fetchone())
except ConfigError as error:
    print(error)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Not in pytest's own folder: it takes away the rights that Postgres needs when tests run as root."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-home-") as folder:
        yield Path(folder)


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "WEIGHBRIDGE_HOME": str(home), "COLUMNS": "160"}


def test_the_demo_loads_three_exports_and_leaves_no_server_running(
    environment: dict[str, str], home: Path
) -> None:
    for expected in ("inserted", "unchanged"):  # a second run changes nothing
        done = subprocess.run(
            [prefork.command(), "demo"],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        for heading in (
            "Files",
            "Tables",
            "Rejected rows",
            "Speed",
            "Next steps",
        ):
            assert heading in done.stdout
        assert done.stdout.count("completed") == 3
        counts = dict(
            zip(("inserted", "updated", "unchanged"), _counts(done.stdout, "daily_metrics"), strict=True)
        )
        assert [name for name, count in counts.items() if count] == [expected]
        assert "duplicate by its content, not loaded again" in done.stdout
        assert done.stdout.split()[-1] == "http://127.0.0.1:8080/"
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(home / "postgres") in " ".join(process.info["cmdline"] or ())
    ]


def test_the_demo_writes_a_sample_of_each_kind_and_loads_nothing(
    environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [prefork.command(), "demo", "--files", "samples"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first, *names = done.stdout.splitlines()
    assert first == "6 sample files written to samples; nothing was loaded."
    assert {name.strip() for name in names} == {
        str(path.relative_to(tmp_path)) for path in (tmp_path / "samples").iterdir()
    }
    assert _left(home) == []  # no database was started


def test_samples_that_cannot_be_written_are_refused_in_one_sentence(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "notes").touch()
    done = subprocess.run(
        [prefork.command(), "demo", "--files", "notes/samples"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "weighbridge: --files: notes/samples cannot be written: Not a directory.\n"


def test_the_demo_goes_on_with_the_console(environment: dict[str, str]) -> None:
    demo = subprocess.Popen(
        [prefork.command(), "demo", "--serve"],
        env={**environment, "WEIGHBRIDGE_PORT": "0"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert demo.stderr is not None
        address = demo.stderr.readline().rsplit(None, 1)[-1]
        assert demo.stdout is not None
        secret = next(line.split()[-1] for line in demo.stdout if "sign in with the key" in line)
        with httpx.Client(base_url=address, follow_redirects=True) as browser:
            page = browser.post("/sign-in", data={"key": secret}).text
        assert "meta-ads-daily.csv" in page
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=30)
    assert demo.returncode == 0


def test_first_starts_at_once_make_one_server(home: Path) -> None:
    starts = [_start(home / "new") for _ in range(3)]
    assert [start.communicate(timeout=60) for start in starts] == [("256MB\n", "")] * 3
    assert _left(home / "new") == ["postgres", "postgres.lock"]


def test_files_of_another_user_in_tmp_do_not_block_a_start(home: Path) -> None:
    """pgserver's own lock is /tmp/.lockfile, which the first user owns. Not even root opens a folder as a file."""
    (home / "tmp" / ".lockfile").mkdir(parents=True)
    assert _start(home / "new", TMPDIR=str(home / "tmp")).communicate(timeout=60) == ("256MB\n", "")


async def test_a_first_start_that_is_killed_leaves_nothing_that_looks_like_a_server(
    home: Path, eventually: Callable[..., Awaitable[Any]]
) -> None:
    killed = _start(home)
    await eventually(lambda: list(home.glob("*/PG_VERSION")))  # initdb is in the middle of its work
    orphans = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.communicate()
    psutil.wait_procs(orphans, timeout=30)  # an initdb that lives on would write what is being removed
    assert _start(home).communicate(timeout=60) == ("256MB\n", "")
    assert _left(home) == ["postgres", "postgres.lock"]


def test_a_folder_that_cannot_be_started_is_named_with_the_reason_and_what_to_do(home: Path) -> None:
    folder = home / "postgres"
    folder.mkdir()
    (folder / "notes.txt").write_text("not ours")
    begins = f"The embedded Postgres in {folder} did not start: "
    ends = "Move the folder away to start with an empty one. Or set DATABASE_URL to use your own Postgres.\n"
    told, errors = _start(home).communicate(timeout=60)
    assert (told, errors) == (f"{begins}it is not a data folder of Postgres. {ends}", "")
    assert [file.name for file in folder.iterdir()] == ["notes.txt"]
    (folder / "PG_VERSION").write_text("18\n")  # and nothing else of what belongs to it
    told, errors = _start(home).communicate(timeout=60)
    assert told.startswith(f"{begins}could not ")
    assert "pg_control" in told
    assert f"Its log is {folder / 'log'}." in told
    assert told.endswith(ends)
    assert (told.count("\n"), errors) == (1, "")


def test_a_disk_that_is_too_small_is_reported_and_left_clean(home: Path) -> None:
    def small() -> None:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (2**20, 2**20)
        )  # as a full disk: the first WAL does not fit

    told, errors = _start(home, before=small).communicate(timeout=60)
    assert told.startswith(
        f"WEIGHBRIDGE_HOME: {home} cannot hold the embedded Postgres: could not write to file "
    )
    assert (told.count("\n"), errors) == (1, "")
    assert _left(home) == ["postgres.lock"]


def _start(home: Path, before: Callable[[], None] | None = None, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", START, str(home)],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def _left(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def _counts(text: str, table: str) -> list[int]:
    (line,) = [line for line in text.splitlines() if line.startswith(table)]
    return [int(number.replace(",", "")) for number in line.split()[1:]]
