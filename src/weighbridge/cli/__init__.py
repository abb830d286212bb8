"""The command line. Its parts import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point: 0 done, 1 refused or failed, 2 wrong usage."""
    from weighbridge.cli.root import app
    from weighbridge.cli.running import complain
    from weighbridge.model.errors import WeighbridgeError

    # Modules of one's own that the settings name; last, so that they cannot stand in for others.
    sys.path.append(os.getcwd())
    try:
        app(prog_name="weighbridge")
    except WeighbridgeError as error:
        complain(str(error))
        sys.exit(1)


__all__ = ["main"]
