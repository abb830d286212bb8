"""The command at a terminal: what it asks there, and how what it shows fits."""

from __future__ import annotations

import os
import pty
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress

from weighbridge import cli


def shown_on(columns: int, environment: Mapping[str, str], *arguments: str) -> list[str]:
    """The lines that a terminal of this width is sent, without their colours."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({**environment, "COLUMNS": str(columns), "TERM": "xterm"})
        os._exit(at_this_terminal(*arguments))
    shown = b""
    with suppress(OSError):  # when the terminal is gone
        while True:
            shown += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()


def at_this_terminal(*arguments: str) -> int:
    """The command, with the terminal that pty.fork has put in the place of stdin, stdout and stderr; with what is
    imported already, as a new process would take seconds."""
    sys.argv = ["weighbridge", *arguments]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    return 70
