"""The first minute: no DATABASE_URL, nothing installed, an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


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
            [sys.executable, "-m", "weighbridge", "demo"],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        for heading in (
            "What came",
            "Where it landed",
            "What was rejected, and why",
            "How fast",
            "What to try next",
        ):
            assert heading in done.stdout
        assert done.stdout.count("completed") == 3
        counts = dict(
            zip(("inserted", "updated", "unchanged"), _counts(done.stdout, "daily_metrics"), strict=True)
        )
        assert [name for name, count in counts.items() if count] == [expected]
        assert "known by its content, not loaded again" in done.stdout
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(home / "postgres") in " ".join(process.info["cmdline"] or ())
    ]


def _counts(text: str, table: str) -> list[int]:
    (line,) = [line for line in text.splitlines() if line.startswith(table)]
    return [int(number.replace(",", "")) for number in line.split()[1:]]
