"""`weighbridge pipelines`: the available pipelines and the SQL generated from their declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weighbridge.cli.application import read_settings
from weighbridge.cli.options import AsJson
from weighbridge.cli.output import out, print_json
from weighbridge.cli.table import plain_table

if TYPE_CHECKING:
    from weighbridge.model.pipeline import Pipeline

app = typer.Typer(help="List pipelines and show their SQL.", no_args_is_help=True)


@app.command("list")
def listing(as_json: AsJson = False) -> None:
    """List the pipelines: built in, from the settings and from installed packages."""
    found = _find()
    if as_json:
        print_json(
            [
                {
                    "name": pipeline.name,
                    "accepts": list(pipeline.accepts),
                    "platforms": [profile.name for profile in pipeline.profiles],
                    "tables": [entity.table for entity in pipeline.entities],
                    "min_valid": pipeline.min_valid,
                }
                for pipeline in found
            ]
        )
        return

    table = plain_table()
    for title in ("pipeline", "accepts", "platforms", "tables", "valid rows"):
        table.add_column(title, overflow="fold")
    for each in found:
        platforms = ", ".join(profile.name for profile in each.profiles) or "any"
        tables = ", ".join(entity.table for entity in each.entities)
        table.add_row(each.name, ", ".join(each.accepts), platforms, tables, f"≥ {each.min_valid:.0%}")
    out().print(table)


@app.command()
def sql(name: Annotated[str, typer.Argument(help="The pipeline's name.", metavar="NAME")]) -> None:
    """Print the statements that write a pipeline's staged rows to its tables."""
    from weighbridge.model.errors import ConfigError, did_you_mean
    from weighbridge.uploads.upsert_sql import upsert_sql

    known = {pipeline.name: pipeline for pipeline in _find()}
    if name not in known:
        hint = did_you_mean(name, known) or "."
        raise ConfigError(f"There is no pipeline {name!r}{hint} List them: weighbridge pipelines list.")
    for entity in known[name].entities:
        text = upsert_sql(known[name], entity, None).decode()
        out().print(f"-- {entity.table}\n{text};\n", markup=False, soft_wrap=True)


def _find() -> list[Pipeline]:
    from weighbridge.pipelines import find

    return list(find(read_settings().pipelines).values())
