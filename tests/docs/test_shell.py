"""The shell of the page tests leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from .pages import ROOT

DIES = """
import os, sys
from pathlib import Path
from tests.docs.shell import Shell

shell = Shell(Path(sys.argv[1]), os.environ)
try:
    shell.run("touch begun; while true; do sleep 0.05; done", within=2)
except AssertionError:
    os.kill(os.getpid(), 9)
"""


def test_a_loop_of_a_page_ends_when_the_test_process_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="weighbridge-page-") as folder:
        killed = subprocess.run([sys.executable, "-c", DIES, folder], cwd=ROOT, timeout=60, check=False)
        assert killed.returncode == -9
        assert (Path(folder) / "begun").exists()
        give_up = time.monotonic() + 20
        while left := [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == folder]:
            assert time.monotonic() < give_up, left
            time.sleep(0.02)
