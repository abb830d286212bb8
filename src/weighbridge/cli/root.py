"""All commands, in the order in which `--help` lists them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from weighbridge.cli import database, demo, keys, pipelines, recover_and_clean, serve
from weighbridge.cli.delivery import (
    conversions,
    credentials,
    deliver,
    enqueue,
    providers,
    retry_conversions,
    sites,
    vault,
)
from weighbridge.cli.doctor import command as doctor_command
from weighbridge.cli.options import root_options
from weighbridge.cli.projects import groups
from weighbridge.cli.projects import manage as projects_manage
from weighbridge.cli.storage import queue, usage
from weighbridge.cli.uploads import load, preview, watch
from weighbridge.cli.uploads import manage as uploads_manage
from weighbridge.cli.verify import command as verify_command

HELP = ["-h", "--help"]

app = typer.Typer(
    name="weighbridge",
    help="Load export files into Postgres exactly once, with every row accounted for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP},
)
app.callback()(root_options)
app.command("demo")(demo.demo)
app.command("load")(load.load)
app.command("watch")(watch.watch)
app.command("up")(serve.up)
app.command("api")(serve.api)
app.command("worker")(serve.worker)
app.command("deliver")(deliver.deliver)
uploads_manage.app.add_typer(preview.app)
app.add_typer(uploads_manage.app, name="uploads")
projects_manage.app.add_typer(groups.app)
app.add_typer(projects_manage.app, name="projects")
queue.app.add_typer(usage.app)
app.add_typer(queue.app, name="storage")
app.add_typer(sites.app, name="sites")
providers.app.add_typer(credentials.app)
app.add_typer(providers.app, name="providers")
conversions.app.command("retry")(retry_conversions.retry)
conversions.app.command("enqueue")(enqueue.enqueue)
app.add_typer(conversions.app, name="conversions")
app.add_typer(vault.app, name="vault")
app.add_typer(keys.app, name="keys")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(database.app, name="db")
app.command("doctor")(doctor_command.doctor)
app.add_typer(verify_command.app, name="verify")
app.command("recover")(recover_and_clean.recover)
app.command("clean")(recover_and_clean.clean)


@cache
def command() -> Callable[..., Any]:
    """Build the command line. Removes the Python types that Typer prints next to flags and arguments."""
    root = typer.main.get_command(app)
    pending = [root]
    while pending:
        each = pending.pop()
        pending += each.commands.values() if isinstance(each, TyperGroup) else ()
        # The help option is created on first access and then cached.
        for option in (*each.params, each.get_help_option(typer.Context(each, help_option_names=HELP))):
            if isinstance(option, TyperOption) and option.is_flag:
                option.metavar = ""
            if isinstance(option, TyperArgument):
                vars(option)["display_type_rich"] = lambda ctx: None
    return root
