"""A shell that runs the commands of one page, as a reader's terminal does: variables, folders and jobs stay."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

# Background jobs do not inherit the two pipes: the end of the shell must be seen while they run.
LOOP = """
set -eo pipefail
while IFS= read -r -d "" command <&{commands}
do eval "$command" {commands}<&- {ended}>&-; echo >&{ended}
done
"""

# When the test process has died, loops of the page must end: a watcher then kills everything in the group. It is
# started before the shell, so that it is not a job of the page.
WATCHED = """
(cd /; cat <&{alive} >/dev/null; kill -KILL -- -$$) {commands}<&- {ended}>&- &
exec bash -c "$0" {alive}<&-
"""


class Shell:
    """The first command that fails ends it, so that no failure is overlooked."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._kept: set[int] = set()
        commands, self._commands = os.pipe()
        self._ended, ended = os.pipe()
        alive, self._alive = os.pipe()
        pipes = {"commands": commands, "ended": ended}
        self._log = folder / ".output"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", WATCHED.format(**pipes, alive=alive), LOOP.format(**pipes)],
                cwd=folder, env=environment, pass_fds=(commands, ended, alive), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        for each in (commands, ended, alive):
            os.close(each)

    @property
    def written(self) -> int:
        """How many bytes of output there are."""
        return self._log.stat().st_size

    def output(self, begins: int) -> str:
        return self._log.read_bytes()[begins:].decode()

    def run(self, command: str, *, within: float = 60) -> None:
        """AssertionError if it fails or does not end."""
        begins = self.written
        os.write(self._commands, command.encode() + b"\0")
        ready = select.select([self._ended], [], [], within)[0]
        assert ready, f"has not ended after {within} s:\n{self.output(begins)}"
        if not os.read(self._ended, 1):
            raise AssertionError(f"exit code {self._process.wait()}:\n{self.output(begins)}")

    def keep_running(self) -> None:
        """The processes that run now may run until the shell is closed: the setup's servers."""
        self._kept = {process.pid for process in self._left()}

    def still_running(self, within: float) -> list[str]:
        """The commands of processes that the page has started and that do not end within this time, in seconds."""
        give_up = time.monotonic() + within
        while left := [process for process in self._left() if process.pid not in self._kept]:
            if time.monotonic() > give_up:
                return [" ".join(process.info["cmdline"] or ()) for process in left]
            time.sleep(0.02)
        return []

    def close(self) -> None:
        """End the shell and everything that it started."""
        os.close(self._commands)
        os.close(self._ended)
        left = self._left()
        for process in left:
            with suppress(psutil.NoSuchProcess):  # it has ended with its parent
                process.terminate()
        for process in psutil.wait_procs(left, timeout=20)[1]:
            process.kill()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # a command that does not end, as one that waits in a loop
            self._process.kill()
            self._process.wait()
        os.close(self._alive)

    def _left(self) -> list[psutil.Process]:
        """Processes in the folder of the page, or with it in their command, apart from the shell itself."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if process.pid != self._process.pid
            and str(self._folder) in f"{process.info['cwd']} {' '.join(process.info['cmdline'] or ())}"
        ]
