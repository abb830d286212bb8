"""Where a Chromium is. `python -m tests.console.chromium` installs one where there is none, as `make test` does first.

In this order: what CHROMIUM names, Debian's, Chrome, the one that playwright keeps. Debian's headless shell is first.
It is the same engine without the window of the browser, which costs half a second of CPU for each test. Where none can
be had the tests of the console fail with a sentence; they are never left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NONE = "A Chromium is needed: apt install chromium, or python -m playwright install chromium, or set CHROMIUM to one."


def find() -> str | None:
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return _playwrights()


def install() -> str | None:
    """By apt where we may, else playwright's own; what they say goes to stderr."""
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        subprocess.run([apt, "update", "-qq"], stdout=sys.stderr, check=False)
        for package in ("chromium-headless-shell", "chromium"):  # older systems have only the second
            done = subprocess.run([apt, "install", "-qq", "--yes", package], stdout=sys.stderr, check=False)
            if done.returncode == 0:
                break
    else:
        subprocess.run(
            [sys.executable, "-m", "playwright", "install", "chromium"], stdout=sys.stderr, check=False
        )
    return find()


def _playwrights() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    return str(path) if path.exists() else None


if __name__ == "__main__":
    if (find() or install()) is None:
        sys.stderr.write(f"{NONE}\n")
