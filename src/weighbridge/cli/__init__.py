"""The command line. Commands import their dependencies when they run, so that `--help` is fast.

root               all commands, in the order of `--help`; reference makes docs/cli.md from them
options            options of several commands
application        opens the application for a command; output prints, table prints lists
stopping           the end of a process after a signal, in bounded time
demo               loads sample files and opens the console
uploads/           load, watch, uploads
serve              up, api, worker
delivery/          deliver, sites, providers, conversions, vault
projects/          projects
storage/           storage
keys               API keys
pipelines          the available pipelines and their SQL
database           the schema and the address of the database
doctor/            checks of the installation
verify/            one generated file through the whole system
recover_and_clean  recover and clean
"""

from __future__ import annotations

import errno
import os
import sys

_FULL = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main() -> None:
    """Entry point. Exit codes: 0 success, 1 refused or failed, 2 usage error."""
    from weighbridge.cli.output import complain, silence_stdout
    from weighbridge.cli.root import command
    from weighbridge.model.errors import WeighbridgeError

    # For the user's own modules named in the settings. Appended last, so that they cannot shadow other modules.
    sys.path.append(os.getcwd())
    try:
        try:
            command()(prog_name="weighbridge")
        finally:
            sys.stdout.flush()  # a full disk can still be reported here, but not when Python flushes at exit
    except WeighbridgeError as error:
        complain(str(error))
        sys.exit(1)
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise  # neither a file named by the user nor the output: a bug
        silence_stdout()
        if error.errno != errno.EPIPE:  # the reader closed the pipe: not an error
            complain(f"{error.filename or 'The output'} cannot be written or read: {error.strerror}.")
        sys.exit(1)


__all__ = ["main"]
