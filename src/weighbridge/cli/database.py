"""`weighbridge db`: the schema and the address of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.application import read_settings, run
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import err, out, print_json

if TYPE_CHECKING:
    from weighbridge.model.pipeline import Pipeline
    from weighbridge.postgres.transactions import Tx

app = typer.Typer(help="Migrate and inspect the database schema.", no_args_is_help=True)

Reapply = Annotated[
    bool,
    typer.Option(
        "--reapply", help="Reapply SQL functions, triggers and views even if they have not changed."
    ),
]


@app.command()
def migrate(as_json: AsJson = False, reapply: Reapply = False) -> None:
    """Upgrade the database to this version's schema, and create the tables of every pipeline."""

    async def work(tx: Tx, pipelines: list[Pipeline]) -> list[str]:
        from weighbridge.postgres import readiness

        return await readiness.make_ready(tx, pipelines, reapply=reapply)

    done = _unchecked(work)
    if as_json:
        print_json({"applied": done})
    else:
        out().print("\n".join(f"applied {each}" for each in done) or "Nothing to do: the schema is current.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show whether the schema is current. Exit code 1: it is not."""

    async def work(tx: Tx, pipelines: list[Pipeline]) -> list[str]:
        from weighbridge.postgres import readiness

        return await readiness.missing(tx, pipelines)

    missing = _unchecked(work)
    if as_json:
        print_json({"current": not missing, "missing": missing})
    else:
        out().print("\n".join(f"missing: {each}" for each in missing) or "The schema is current.")
    if missing:
        raise typer.Exit(1)


@app.command()
def url() -> None:
    """Print the database URL, for psql and other clients."""
    from weighbridge.app import database_url

    settings = read_settings()
    address = run(lambda: database_url(settings))
    out().print(address, markup=False, soft_wrap=True)
    if not settings.database_url:
        err().print("The embedded Postgres is reachable there only while Weighbridge runs: weighbridge up.")


def _unchecked(work: Callable[[Tx, list[Pipeline]], Awaitable[list[str]]]) -> list[str]:
    """Run `work` in a transaction, without checking first that the schema is current."""
    from weighbridge.app import open_database
    from weighbridge.pipelines import find

    settings = read_settings()
    pipelines = list(find(settings.pipelines).values())

    async def inside() -> list[str]:
        async with open_database(settings) as db, db.tx() as tx:
            return await work(tx, pipelines)

    return run(inside)
