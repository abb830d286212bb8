"""`weighbridge verify golden-path`: check that a file passes through the whole system exactly once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.application import read_settings, run, with_app
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import out, print_json

if TYPE_CHECKING:
    from weighbridge.cli.verify.golden_path import Step

app = typer.Typer(help="Verify this installation end to end.", no_args_is_help=True)

SUCCESS = "[SUCCESS] Golden Path Verified - Data Moat is operational!"
FAILURE = "[FAILURE] Golden Path NOT verified - see docs/runbook.md#golden-path-failed."
DRY_RUN = (
    "[DRY RUN] Nothing was changed. Without --dry-run, one judgment is loaded in a separate workspace, "
    "sent again, and removed."
)


class Env(StrEnum):
    """Both use the database of the settings; prod asks for confirmation first."""

    DEV = "dev"
    PROD = "prod"


@app.callback()
def verify_group() -> None:
    """Verify this installation end to end."""


@app.command("golden-path")
def golden_path(
    env: Annotated[
        Env,
        typer.Option(
            "--env",
            help="Kind of the database in the settings. With prod, the command asks for confirmation.",
            metavar="|".join(Env),
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the preconditions without changing anything.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Load one generated judgment, send it again, and delete all its rows and files."""
    if env == Env.PROD and not dry_run and not yes:
        _ask()
    say = _silent if as_json else _say
    steps = _rehearsal(say) if dry_run else _verification(say)
    passed = all(step.fault is None for step in steps)
    if as_json:
        status = "passed" if passed else "failed"
        print_json({"env": env, "dry_run": dry_run, "status": status, "steps": list(map(_object, steps))})
    else:
        last = FAILURE if not passed else DRY_RUN if dry_run else SUCCESS
        out().print(f"  {last}", markup=False, soft_wrap=True)
    if not passed:
        raise typer.Exit(1)


def _ask() -> None:
    """Ask outside the event loop, where Ctrl-C would have to wait for the answer."""
    from weighbridge.app import database_url
    from weighbridge.uploads import golden_path_queries

    if not sys.stdin.isatty():
        raise typer.BadParameter("--env prod asks for confirmation, but stdin is not a terminal: add --yes")
    settings = read_settings()
    target = golden_path_queries.target(run(lambda: database_url(settings)))
    sys.stderr.write(
        f"Load one generated judgment into {target.database} on {target.host}, and delete it again? [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def _verification(say: Callable[[Step], None]) -> list[Step]:
    from weighbridge.cli.verify.golden_path import verify

    return with_app(lambda app: verify(app, say))


def _rehearsal(say: Callable[[Step], None]) -> list[Step]:
    from weighbridge.app import open_app
    from weighbridge.cli.verify.dry_run import check_preconditions
    from weighbridge.cli.verify.golden_path import Step
    from weighbridge.model.errors import ConfigError
    from weighbridge.observe.redact import redacted

    settings = read_settings()

    async def inside() -> list[Step]:
        async with AsyncExitStack() as stack:
            try:
                # Schema unchecked: the dry run reports what is missing. Any command creates the embedded database.
                opening = open_app(settings, check=not settings.database_url)
                app = await stack.enter_async_context(opening)
            except ConfigError as error:
                connection = Step("Connection", redacted(str(error)))  # it may contain a database URL
                say(connection)
                return [connection]
            connection = Step("Connection")
            say(connection)
            return [connection, *await check_preconditions(app, say)]

    return run(inside)


def _say(step: Step) -> None:
    out().print(str(step), markup=False, soft_wrap=True)


def _silent(step: Step) -> None:
    """With --json all steps are printed at the end."""


def _object(step: Step) -> dict[str, str | None]:
    return {"name": step.name, "status": "PASS" if step.fault is None else "FAIL", "reason": step.fault}
