"""Prints the output of commands: results on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def complain(sentence: str) -> None:
    """Print one message on one line of stderr."""
    sys.stderr.write(f"weighbridge: {sentence}\n")


def silence_stdout() -> None:
    """Redirect stdout to /dev/null: it cannot be written, and Python would fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def out() -> Console:
    """A console on stdout for people; 160 columns wide if stdout is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def err() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)
