"""`weighbridge verify golden-path`: does a file go all the way, once, on the database that the settings name?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.running import AsJson, out, print_json, read_settings, run, with_app

if TYPE_CHECKING:
    from weighbridge.cli.verify.golden_path import Step

app = typer.Typer(help="Prove that it works, here and now.", no_args_is_help=True)

SUCCESS = "[SUCCESS] Golden Path Verified - Data Moat is operational!"
FAILURE = "[FAILURE] Golden Path NOT verified - docs/runbook.md#golden-path-failed says what to look at."
DRY_RUN = (
    "[DRY RUN] Nothing was changed. Without --dry-run: one judgment is loaded in a workspace of its own, "
    "sent again, and removed."
)


class Env(StrEnum):
    """Either way it is the database of the settings; in production one is asked first."""

    DEV = "dev"
    PROD = "prod"


@app.callback()
def what() -> None:
    """Prove that it works, here and now."""


@app.command("golden-path")
def golden_path(
    env: Annotated[Env, typer.Option("--env", help="What the settings' database is: prod asks first.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: say whether it would work.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Load one generated judgment, send it again, and remove all of it (S3 §4)."""
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
    """Outside of the event loop: there Ctrl-C would wait for the answer."""
    from weighbridge.app import database_url
    from weighbridge.uploads import golden

    if not sys.stdin.isatty():
        raise typer.BadParameter("--env prod asks before it begins, and nobody is there to answer: add --yes")
    settings = read_settings()
    place = golden.target(run(lambda: database_url(settings)))
    sys.stderr.write(
        f"Load one generated judgment into {place.database} on {place.host}, and remove it again? [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def _verification(say: Callable[[Step], None]) -> list[Step]:
    from weighbridge.cli.verify.golden_path import verify

    return with_app(lambda app: verify(app, say))


def _rehearsal(say: Callable[[Step], None]) -> list[Step]:
    from weighbridge.app import open_app
    from weighbridge.cli.verify.dry_run import rehearse
    from weighbridge.cli.verify.golden_path import Step
    from weighbridge.model.errors import ConfigError
    from weighbridge.observe.redact import redacted

    settings = read_settings()

    async def inside() -> list[Step]:
        async with AsyncExitStack() as stack:
            try:
                # Unchecked: what is missing is what is asked for. The embedded one is brought up by any command.
                opening = open_app(settings, check=not settings.database_url)
                app = await stack.enter_async_context(opening)
            except ConfigError as error:
                connection = Step("Connection", redacted(str(error)))  # it may quote an address
                say(connection)
                return [connection]
            connection = Step("Connection")
            say(connection)
            return [connection, *await rehearse(app, say)]

    return run(inside)


def _say(step: Step) -> None:
    out().print(str(step), markup=False, soft_wrap=True)


def _silent(step: Step) -> None:
    """For programs: they get all of it at the end."""


def _object(step: Step) -> dict[str, str | None]:
    return {"name": step.name, "status": "PASS" if step.fault is None else "FAIL", "reason": step.fault}
