"""The command line. Its parts import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import errno
import os
import sys

_FULL = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main() -> None:
    """The entry point: 0 done, 1 refused or failed, 2 wrong usage."""
    from weighbridge.cli.root import command
    from weighbridge.cli.running import complain, silence_stdout
    from weighbridge.model.errors import WeighbridgeError

    # Modules of one's own that the settings name; last, so that they cannot stand in for others.
    sys.path.append(os.getcwd())
    try:
        try:
            command()(prog_name="weighbridge")
        finally:
            sys.stdout.flush()  # here a full disk can still be told; when Python itself flushes, it cannot
    except WeighbridgeError as error:
        complain(str(error))
        sys.exit(1)
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise  # neither a file that somebody named nor the output: a bug
        silence_stdout()
        if error.errno != errno.EPIPE:  # whoever reads our output has had enough
            complain(f"{error.filename or 'The output'} cannot be written or read: {error.strerror}.")
        sys.exit(1)


__all__ = ["main"]
