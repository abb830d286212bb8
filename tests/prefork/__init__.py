"""`weighbridge` for tests that start it often: a command costs 0.1 s of CPU instead of 1 s.

The time of a short command goes into imports. Here one process, the server, has imported everything; for each
command it forks a child that runs it. `command()` is a client that passes its
arguments, folder, environment and open files to the child, forwards signals, and ends as the child ends.

A test of packaging, of imports or of the start of a process must use the installed command.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

# For tests that run functions in processes of their own, forked from a server that has imported everything.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["tests.prefork.preload", "tests.deliver.worker_processes", "tests.proof.workers", "tests.storage.site"]
)

HERE = Path(__file__).parent
INSTALLED = Path(sys.executable).parent / "weighbridge"

# The modules that a command finds depend on PYTHONPATH, so that with another one the installed command runs.
CLIENT = """#!/bin/sh
[ "$PYTHONPATH" = {pythonpath} ] || exec {installed} "$@"
exec {python} -IS {client} {address} {installed} "$@"
"""


@cache
def command() -> Path:
    """The faster `weighbridge` of this test process, for tests that start one. Its folder may be in PATH."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_started()) / "weighbridge"


@contextmanager
def _started() -> Iterator[Path]:
    """The folder of the client, which works until the end of the context."""
    # Not pytest's own folder, whose path can be too long for the address of a socket.
    with tempfile.TemporaryDirectory(prefix="weighbridge-prefork-") as made:
        address = Path(made) / "socket"
        bin_ = Path(made) / "bin"
        bin_.mkdir()
        with (bin_ / "weighbridge").open("w") as client:
            client.write(_client(address))
            os.fchmod(client.fileno(), 0o755)
        # Without these two, OpenBLAS and the allocator of pyarrow start threads, which a fork does not copy.
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
        }
        server = subprocess.Popen(
            [sys.executable, "-P", HERE / "server.py", address, INSTALLED.parent],
            cwd=made, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n", "the server of tests/prefork does not start"
            yield bin_
        finally:
            server.stdin.close()  # ends it
            server.wait(20)
            server.stdout.close()


def _client(address: Path) -> str:
    parts = {
        "pythonpath": os.environ.get("PYTHONPATH", ""),
        "installed": INSTALLED,
        "python": sys.executable,
        "client": HERE / "client.py",
        "address": address,
    }
    return CLIENT.format(**{name: shlex.quote(str(part)) for name, part in parts.items()})
