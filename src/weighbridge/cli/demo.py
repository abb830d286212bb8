"""`weighbridge demo`: load three sample exports and show the result; at a terminal, then start the console.

With --files it only writes the sample files.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE
from weighbridge.cli.output import out
from weighbridge.cli.table import plain_table
from weighbridge.model.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from weighbridge.app import App
    from weighbridge.cli.uploads.report import FileResult

_KEY = "weighbridge demo"


def demo(
    serve: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Start the console afterwards. Default: only at a terminal."),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files",
            help="Only write sample files to this folder; load nothing.",
            file_okay=False,
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Create sample exports of three ad platforms, load them and show the result."""
    from weighbridge.cli.serve import Level, up
    from weighbridge.testing.exports import write_demo_exports

    console = out()
    if files is not None:
        _write_samples(console, files)
        return

    async def work(app: App) -> None:
        import_module("weighbridge.worker")  # import now, so that the measured time contains no imports
        folder = app.settings.home / "demo"
        files = [written.path for written in write_demo_exports(folder)]
        console.print(f"Sample exports created in {folder}\n", markup=False)
        outcomes, seconds = await _load(app, files, force=False)
        if any(outcome.duplicate for outcome in outcomes):
            console.print(
                "These files were loaded before. Loading them again with --force: no row may change.\n"
            )
            outcomes, seconds = await _load(app, files, force=True)
        await _show(app, console, outcomes, seconds)
        await _show_again(app, console, files[0])
        _next_steps(console, outcomes)
        await _open_console(app, console, serving)

    serving = sys.stdout.isatty() if serve is None else serve
    with_app(work)
    if serving:
        up(log_level=Level.WARNING)


def _write_samples(console: Console, folder: Path) -> None:
    from weighbridge.testing.exports import write_samples

    try:
        paths = write_samples(folder)
    except OSError as error:
        raise ConfigError(f"--files: {folder} cannot be written: {error.strerror}.") from error
    console.print(f"{len(paths)} sample files written to {folder}; nothing was loaded.", markup=False)
    for path in paths:
        console.print(f"  {path}", markup=False, soft_wrap=True)


async def _load(app: App, files: list[Path], *, force: bool) -> tuple[list[FileResult], float]:
    from weighbridge.cli.uploads.load import load_files
    from weighbridge.uploads.check_request import Request

    wanted = [
        (file, Request(DEFAULT_WORKSPACE, file.name.split("-")[0], filename=file.name, force=force))
        for file in files
    ]
    began = time.perf_counter()
    return await load_files(app, wanted, bar=True), time.perf_counter() - began


async def _show(app: App, console: Console, outcomes: list[FileResult], seconds: float) -> None:
    from weighbridge.cli.uploads import report

    pipeline = app.ctx.pipelines["ads"]
    uploads = [outcome.upload for outcome in outcomes if outcome.upload]
    rows = sum(upload.total_rows for upload in uploads)
    console.rule("Files", align="left", style="dim")
    console.print(report.outcome_table(outcomes, pipeline))
    console.rule("Tables", align="left", style="dim")
    console.print(report.entity_table(uploads, pipeline))
    console.rule("Rejected rows", align="left", style="dim")
    console.print(await _reasons(app, outcomes))
    console.rule("Speed", align="left", style="dim")
    size = sum(upload.byte_size for upload in uploads) / 2**20
    console.print(
        f"{rows:,} rows, {size:.1f} MB in {seconds:.2f} s: {rows / seconds:,.0f} rows per second, validated,"
    )
    console.print("deduplicated and committed with their counts.\n")


async def _reasons(app: App, outcomes: list[FileResult]) -> Any:
    from rich.markup import escape

    from weighbridge.uploads import history

    table = plain_table()
    table.add_column("file")
    table.add_column("rows", justify="right")
    table.add_column("line", justify="right")
    table.add_column("column")
    table.add_column("reason", overflow="fold")
    for outcome in outcomes:
        if outcome.upload is None:
            continue
        async with app.db.tx() as tx:
            for reason in await history.reasons(tx, outcome.upload.id, 10):
                numbers = f"{reason.rows:,}", f"{reason.first_line:,}"
                words = escape(reason.column_name or ""), escape(reason.example)
                table.add_row(outcome.file.name, *numbers, *words)
    return table


async def _show_again(app: App, console: Console, file: Path) -> None:
    """Send the same file again: it is recognised by its content."""
    from weighbridge.uploads.check_request import Request
    from weighbridge.uploads.receive import receive

    began = time.perf_counter()
    again = await receive(app.ctx, Request(DEFAULT_WORKSPACE, "meta", filename=file.name), file)
    milliseconds = (time.perf_counter() - began) * 1000
    console.rule("Sending the same file again", align="left", style="dim")
    summary = (
        "duplicate by its content, not loaded again" if again.duplicate else "not recognised as a duplicate"
    )
    console.print(f"{file.name}: {summary} ({milliseconds:.0f} ms)\n")


def _next_steps(console: Console, outcomes: list[FileResult]) -> None:
    console.rule("Next steps", align="left", style="dim")
    first = next((outcome.upload.id for outcome in outcomes if outcome.upload), "ID")
    command = _command()
    for label, arguments in (
        ("rejected rows as CSV, with line and reason", f"uploads rejects {first}"),
        ("history of an upload", f"uploads trace {first}"),
        ("load your own export", "load FILE --platform meta"),
        ("run API, worker and database in one process", "up"),
        ("create an API key", "keys create"),
        ("use your own Postgres: set DATABASE_URL, then", "db migrate"),
    ):
        console.print(f"  {label:<47} {command} {arguments}", markup=False, soft_wrap=True)


async def _open_console(app: App, console: Console, serving: bool) -> None:
    """Print the console's address and a key. Each run of the demo creates a new key, valid for one day."""
    from weighbridge.access import keys
    from weighbridge.postgres import clock

    async with app.db.tx() as tx:
        for key in await keys.listing(tx, UUID(DEFAULT_WORKSPACE)):
            if key.name == _KEY and key.revoked_at is None:
                await keys.revoke(tx, key.id)
        ends = await clock.now(tx) + timedelta(days=1)
        _, secret = await keys.create(tx, UUID(DEFAULT_WORKSPACE), _KEY, ("upload", "read", "operate"), ends)
    console.print()
    console.rule("Console", align="left", style="dim")
    host = f"[{app.settings.host}]" if ":" in app.settings.host else app.settings.host
    steps = [] if serving else [("start it with", f"{_command()} up")]
    steps += [("sign in with the key", secret), ("open in a browser", f"http://{host}:{app.settings.port}/")]
    for label, value in steps:
        console.print(f"  {label:<47} {value}", markup=False, soft_wrap=True)


def _command() -> str:
    """The command as the user has to type it here."""
    if shutil.which("weighbridge"):
        return "weighbridge"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "weighbridge" else "python -m weighbridge"
