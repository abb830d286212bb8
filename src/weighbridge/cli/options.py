"""Options and arguments of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

# The workspace used when none is given: a first try works without setting up tenants.
DEFAULT_WORKSPACE = "00000000-0000-4000-8000-000000000001"

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Workspace = Annotated[str, typer.Option("--workspace", help="The workspace's UUID.", metavar="UUID")]
UploadId = Annotated[str, typer.Argument(help="The upload's id.", metavar="ID", show_default=False)]


def _print_version(requested: bool) -> None:
    if requested:
        from weighbridge import __version__

        print(f"weighbridge {__version__}")
        raise typer.Exit


def root_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Load export files into Postgres exactly once, with every row accounted for."""
