"""`weighbridge demo`: three sample exports, loaded and shown."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.cli.running import DEFAULT_WORKSPACE, out, with_app

if TYPE_CHECKING:
    from rich.console import Console

    from weighbridge.app import App
    from weighbridge.cli.report import Outcome


def demo() -> None:
    """Write sample exports of three ad platforms, load them, and show what happened."""
    from weighbridge.testing.exports import write_demo_exports

    console = out()

    async def work(app: App) -> None:
        from weighbridge.cli.load import load_files
        from weighbridge.steps.receive import Request

        folder = app.settings.home / "demo"
        files = [written.path for written in write_demo_exports(folder)]
        console.print(f"Three sample exports are in {folder}\n", markup=False)
        # force: a second run loads the same content again, to show that nothing changes by it.
        wanted = [
            (file, Request(DEFAULT_WORKSPACE, file.name.split("-")[0], filename=file.name, force=True))
            for file in files
        ]
        began = time.perf_counter()
        outcomes = await load_files(app, wanted, bar=True)
        seconds = time.perf_counter() - began
        await _show(app, console, outcomes, seconds)
        await _show_again(app, console, files[0])
        _next_steps(console, outcomes)

    with_app(work)


async def _show(app: App, console: Console, outcomes: list[Outcome], seconds: float) -> None:
    from weighbridge.cli import report

    pipeline = app.ctx.pipelines["ads"]
    uploads = [outcome.upload for outcome in outcomes if outcome.upload]
    rows = sum(upload.total_rows for upload in uploads)
    console.rule("What came", align="left", style="dim")
    console.print(report.outcome_table(outcomes, pipeline))
    console.rule("Where it landed", align="left", style="dim")
    console.print(report.entity_table(uploads, pipeline))
    console.rule("What was rejected, and why", align="left", style="dim")
    console.print(await _reasons(app, outcomes))
    console.rule("How fast", align="left", style="dim")
    size = sum(upload.byte_size for upload in uploads) / 2**20
    console.print(
        f"{rows:,} rows, {size:.1f} MB in {seconds:.2f} s: {rows / seconds:,.0f} rows a second, checked,"
    )
    console.print("deduplicated and committed with their counts.\n")


async def _reasons(app: App, outcomes: list[Outcome]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from weighbridge.db import history

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("file")
    table.add_column("rows", justify="right")
    table.add_column("line", justify="right")
    table.add_column("reason", overflow="fold")
    for outcome in outcomes:
        if outcome.upload is None:
            continue
        async with app.db.tx() as tx:
            for reason in await history.reasons(tx, outcome.upload.id, 10):
                place = f"{reason.column_name}: " if reason.column_name else ""
                sentence = reason.example if reason.example.startswith(place) else place + reason.example
                table.add_row(
                    outcome.file.name, f"{reason.rows:,}", f"{reason.first_line:,}", escape(sentence)
                )
    return table


async def _show_again(app: App, console: Console, file: Path) -> None:
    """The same file once more, as a person would send it: recognised by its content."""
    from weighbridge.steps.receive import Request, receive

    request = Request(DEFAULT_WORKSPACE, "meta", filename=file.name)
    first = await receive(app.ctx, request, file)
    began = time.perf_counter()
    again = await receive(app.ctx, request, file)
    milliseconds = (time.perf_counter() - began) * 1000
    console.rule("The same file again", align="left", style="dim")
    same = "the same upload" if again.upload_id == first.upload_id else "another upload"
    console.print(f"{file.name}: duplicate {str(again.duplicate).lower()}, {same}, {milliseconds:.0f} ms\n")


def _next_steps(console: Console, outcomes: list[Outcome]) -> None:
    console.rule("What to try next", align="left", style="dim")
    first = next((outcome.upload.id for outcome in outcomes if outcome.upload), "ID")
    for command, what in (
        (f"weighbridge uploads rejects {first}", "the refused rows as CSV, with line and reason"),
        (f"weighbridge uploads trace {first}", "what happened when"),
        ("weighbridge load FILE --platform meta", "an export of your own"),
        ("weighbridge up", "API, worker and database in one process"),
        ("weighbridge keys create", "a key for the API"),
        ("DATABASE_URL=postgresql://… weighbridge db migrate", "a Postgres of your own"),
    ):
        console.print(f"  {command:<62} {what}", markup=False, soft_wrap=True)
