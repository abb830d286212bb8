"""All commands, in the order in which one meets them."""

from __future__ import annotations

import typer

from weighbridge.cli import (
    conversions,
    credentials,
    database,
    deliver,
    demo,
    doctor,
    enqueue,
    groups,
    keys,
    load,
    pipelines,
    preview,
    projects,
    providers,
    serve,
    sites,
    storage,
    upkeep,
    uploads,
    usage,
    vault,
    verify,
    watch,
)
from weighbridge.cli.running import options

app = typer.Typer(
    name="weighbridge",
    help="Export files into Postgres, exactly once: every file weighed in, every row accounted for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(options)
app.command("demo")(demo.demo)
app.command("load")(load.load)
app.command("watch")(watch.watch)
app.command("up")(serve.up)
app.command("api")(serve.api)
app.command("worker")(serve.worker)
app.command("deliver")(deliver.deliver)
uploads.app.add_typer(preview.app)
app.add_typer(uploads.app, name="uploads")
projects.app.add_typer(groups.app)
app.add_typer(projects.app, name="projects")
storage.app.add_typer(usage.app)
app.add_typer(storage.app, name="storage")
app.add_typer(sites.app, name="sites")
providers.app.add_typer(credentials.app)
app.add_typer(providers.app, name="providers")
conversions.app.command("enqueue")(enqueue.enqueue)
app.add_typer(conversions.app, name="conversions")
app.add_typer(vault.app, name="vault")
app.add_typer(keys.app, name="keys")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(database.app, name="db")
app.command("doctor")(doctor.doctor)
app.add_typer(verify.app, name="verify")
app.command("recover")(upkeep.recover)
app.command("clean")(upkeep.clean)
