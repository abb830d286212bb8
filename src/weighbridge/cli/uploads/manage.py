"""`weighbridge uploads`: list, inspect and retry uploads."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import DEFAULT_WORKSPACE, AsJson, UploadId, Workspace
from weighbridge.cli.output import err, out, print_json
from weighbridge.cli.table import plain_table
from weighbridge.cli.uploads.read_options import (
    ChangeDateOrder,
    ChangeDecimal,
    ChangeDelimiter,
    ChangeEncoding,
    ChangeSumBreakdowns,
)
from weighbridge.model.counts import counted

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.model.upload import Upload

app = typer.Typer(help="List, inspect and retry uploads.", no_args_is_help=True)


@app.command("list")
def listing(
    workspace: Workspace = DEFAULT_WORKSPACE,
    status: Annotated[
        str | None, typer.Option("--status", help="Only uploads with this status.", metavar="STATUS")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of uploads.", metavar="N", min=1, max=1000)
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List the newest uploads of a workspace."""

    async def work(app: App) -> list[Upload]:
        from weighbridge.uploads import queue
        from weighbridge.uploads.check_request import uuid_of

        workspace_id = uuid_of(workspace, "workspace", "workspace")
        async with app.db.tx() as tx:
            return await queue.recent_uploads(tx, workspace_id, status=_status(status), limit=limit)

    found = with_app(work)
    if as_json:
        print_json([_brief(upload) for upload in found])
        return
    from rich.markup import escape

    table = plain_table()
    for name in ("upload", "received", "pipeline", "file", "status"):
        table.add_column(name, overflow="fold")
    for name in ("rows", "promoted", "rejected"):
        table.add_column(name, justify="right")
    for each in found:
        numbers = (each.total_rows, each.promoted_rows, each.failed_rows)
        kind = " ".join(filter(None, (each.pipeline, each.platform)))
        table.add_row(
            str(each.id), f"{each.created_at:%Y-%m-%d %H:%M:%S}", kind, escape(each.filename or ""),
            _state(each), *(f"{number:,}" for number in numbers),
        )  # fmt: skip
    out().print(table)


def _state(upload: Upload) -> str:
    from weighbridge.cli.uploads.report import status_text

    waits = upload.storage_status == "pending_retry"
    return f"{status_text(upload.status, on_hold=upload.on_hold)}{', not stored yet' if waits else ''}"


@app.command()
def show(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Show one upload: status, counts, columns, warnings, rejection reasons."""

    async def work(app: App) -> tuple[dict[str, Any], dict[str, list[str]]]:
        from dataclasses import asdict

        from weighbridge.cli.uploads.report import (
            WARNINGS,
            column_lines,
            missing_lines,
            reading_as_json,
            warning_lines,
        )
        from weighbridge.uploads import fixed_rows, history
        from weighbridge.uploads.read_options import in_words, read_as_in_words

        upload = await get(app, upload_id)
        async with app.db.tx() as tx:
            reasons = await history.reasons(tx, upload.id, 20)
            warned = await history.warnings(tx, upload.id, None, WARNINGS)
            rejects = (await fixed_rows.rejects(tx, [upload.id])).get(upload.id, fixed_rows.NO_REJECTS)
            links = await fixed_rows.links(tx, upload.id)
        linked = {name: [vars(link) for link in found] for name, found in vars(links).items()}
        found = {
            **_whole(upload),
            **reading_as_json(upload, warned),
            "open_rejects": rejects.open,
            "fixed_rows": rejects.fixed,
            **linked,
            "reasons": [asdict(reason) for reason in reasons],
        }
        people = {
            "reasons": [_sentence(reason) for reason in found["reasons"]],
            **{name: [_link(link) for link in some] for name, some in linked.items()},
            "reading": [", ".join(f"{name} {value}" for name, value in in_words(upload.reading).items())],
            "read_as": [", ".join(read_as_in_words(upload.read_as))],
            "columns": column_lines(upload.column_report.columns),
            "missing_fields": missing_lines(upload.column_report.missing),
            "warnings": warning_lines(warned),
            "warnings_total": [f"{found['warnings_total']}: weighbridge uploads warnings {upload.id}"]
            if warned
            else [],
        }
        return found, people

    found, people = with_app(work)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        lines = list(filter(None, people[name])) if name in people else _lines(value)
        for title, line in zip((name, *[""] * len(lines)), lines, strict=False):
            out().print(f"{title:<16} {line}", markup=False, soft_wrap=True)


@app.command()
def retry(
    upload_id: UploadId,
    force_partial: Annotated[
        bool,
        typer.Option("--force-partial", help="Promote the valid rows even if too many rows are invalid."),
    ] = False,
    as_newest: Annotated[
        bool,
        typer.Option(
            "--as-newest", help="Count the file as arrived now: its rows replace rows of later files."
        ),
    ] = False,
    encoding: ChangeEncoding = None,
    delimiter: ChangeDelimiter = None,
    decimal: ChangeDecimal = None,
    date_order: ChangeDateOrder = None,
    sum_breakdowns: ChangeSumBreakdowns = None,
    as_json: AsJson = False,
) -> None:
    """Retry a failed or partial upload: a worker parses the stored file again.

    Read options that are given replace the stored ones; the word detect removes a stored one.

    The file keeps its place in the order of arrival: rows of later files stay as they are, unless --as-newest is given.
    """
    given = {
        "encoding": encoding,
        "delimiter": delimiter,
        "decimal": decimal,
        "date_order": date_order,
        "sum_breakdowns": sum_breakdowns,
    }

    async def work(app: App) -> str:
        from weighbridge.uploads.operator_retry import reopen
        from weighbridge.uploads.read_options import read_options

        upload = await get(app, upload_id)
        return await reopen(
            app.db,
            upload,
            force_partial=force_partial,
            actor="command line",
            reading=read_options(given, upload.reading),
            newest=as_newest,
        )

    status = with_app(work)
    if as_json:
        print_json({"upload_id": upload_id, "status": status})
    else:
        later = "It counts as arrived now." if as_newest else "Rows of later files stay as they are."
        out().print(f"{upload_id}: status {status}. {later}", soft_wrap=True)


@app.command()
def dismiss(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Remove a failed upload from the dead letters: it needs no further action."""

    async def work(app: App) -> None:
        from weighbridge.uploads.operator_retry import dismiss

        await dismiss(app.db, await get(app, upload_id), actor="command line")

    with_app(work)
    if as_json:
        print_json({"upload_id": upload_id, "status": "failed", "dismissed": True})
    else:
        out().print(f"{upload_id} is dismissed. It can still be retried.")


@app.command("release-batch")
def release_batch(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Remove the batch name from a failed upload, so that the fixed file can use it."""

    async def work(app: App) -> tuple[str, Upload]:
        from weighbridge.uploads.release_batch import release_batch

        upload = await get(app, upload_id)
        return await release_batch(app.db, upload, actor="command line"), upload

    name, upload = with_app(work)
    if as_json:
        print_json({"upload_id": upload_id, "status": "failed", "released_batch_id": name})
    else:
        platform = f" --platform {upload.platform}" if upload.platform else ""
        command = f"weighbridge load FILE --pipeline {upload.pipeline}{platform} --batch {shlex.quote(name)}"
        out().print(
            f"The batch name is free. Load the fixed file: {command}",
            markup=False,
            soft_wrap=True,
        )


@app.command()
def rejects(
    upload_id: UploadId,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write to this file instead of stdout.", metavar="FILE")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Include the rows that a later file has fixed.")
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="Write an apostrophe before each cell that a spreadsheet program would run as a formula. "
            "Loading the file again removes it.",
        ),
    ] = False,
) -> None:
    """Write the rejected rows as CSV, to fix them and load the file again.

    The columns of the file come first, then columns that Weighbridge adds: weighbridge_line, weighbridge_reason and
    others. They are recognised and dropped when the file is loaded.
    """

    async def work(app: App) -> None:
        from weighbridge.uploads import fixed_rows
        from weighbridge.uploads.write_rejects_file import RejectsForm, rejects_csv

        upload = await get(app, upload_id)
        async with app.db.tx() as tx:
            found = (await fixed_rows.rejects(tx, [upload.id])).get(upload.id, fixed_rows.NO_REJECTS)
        if fixed_rows.removed(upload, found):
            err().print(fixed_rows.REMOVED)
        with _writing(file) as target:
            async for piece in rejects_csv(app.db, upload, RejectsForm(every, spreadsheet_safe)):
                target.write(piece.encode())

    with_app(work)
    if file:
        err().print(f"Written to {file}.")


@app.command()
def warnings(upload_id: UploadId, as_json: AsJson = False) -> None:
    """List all warnings: assumptions about the file, unused columns, missing fields, warnings about loaded rows."""

    async def work(app: App) -> list[Any]:
        from weighbridge.uploads import history

        upload = await get(app, upload_id)
        found: list[Any] = []
        async with app.db.tx() as tx:
            while page := await history.warnings(tx, upload.id, found[-1].cursor if found else None, 5000):
                found += page
        return found

    found = with_app(work)
    if as_json:
        print_json([vars(warning) for warning in found])
        return
    for warning in found:
        out().print(f"line {warning.line}  {warning.code}  {warning.message}", markup=False, soft_wrap=True)
    if not found:
        err().print("No warnings.")


@app.command()
def trace(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Show the history of an upload: time, event and actor."""

    async def work(app: App) -> list[Any]:
        from weighbridge.uploads import history

        upload = await get(app, upload_id)
        async with app.db.tx() as tx:
            return await history.trace(tx, upload.id)

    moments = with_app(work)
    if as_json:
        print_json([vars(moment) for moment in moments])
        return
    for moment in moments:
        out().print(f"{moment.at:%Y-%m-%d %H:%M:%S.%f}  {moment.what:<18} {moment.detail}", markup=False)


@contextmanager
def _writing(file: Path | None) -> Iterator[BinaryIO]:
    """`file` or stdout, flushed at the end, so that a full disk is reported here and not when Python exits."""
    with file.open("wb") if file else nullcontext(sys.stdout.buffer) as target:
        yield target
        target.flush()


def _lines(value: Any) -> list[str]:
    """A value of an upload for people: no line for an empty value, one line per part of a nested one."""
    match value:
        case None | "":
            return []
        case dict() if all(isinstance(part, dict) for part in value.values()):
            return [f"{key}: {', '.join(_lines(part))}" for key, part in value.items()]
        case dict():
            return [", ".join(f"{key} {part}" for key, part in value.items() if part != "")]
        case list():
            return [", ".join(map(str, value))] if value else []
        case datetime():
            return [f"{value:%Y-%m-%d %H:%M:%S %Z}"]
        case bool():
            return ["yes" if value else "no"]
    return [str(value)]


def _sentence(reason: dict[str, Any]) -> str:
    return f"{reason['rows']} × {reason['code']}, first in line {reason['first_line']}: {reason['example']}"


def _link(link: dict[str, Any]) -> str:
    return f"{counted(link['rows'], 'row')}: upload {link['upload_id']}"


async def get(app: App, upload_id: str) -> Upload:
    from weighbridge.model.errors import RequestRefused
    from weighbridge.uploads import queue
    from weighbridge.uploads.check_request import uuid_of

    async with app.db.tx() as tx:
        upload = await queue.get(tx, uuid_of(upload_id, "upload", "ID"))
    if upload is None:
        raise RequestRefused(
            404,
            "unknown_upload",
            f"There is no upload {upload_id}. List the uploads: weighbridge uploads list.",
        )
    return upload


def _status(text: str | None) -> str | None:
    from weighbridge.model.errors import did_you_mean
    from weighbridge.model.states import Status

    known = [status.value for status in Status]
    if text is not None and text not in known:
        hint = did_you_mean(text, known) or "."
        raise typer.BadParameter(f"--status: expected one of {', '.join(known)}, got {text!r}{hint}")
    return text


def _brief(upload: Upload) -> dict[str, Any]:
    names = (
        "status",
        "pipeline",
        "platform",
        "filename",
        "total_rows",
        "promoted_rows",
        "failed_rows",
        "error_code",
        "error_text",
    )
    return {"upload_id": upload.id, "created_at": upload.created_at, **{n: getattr(upload, n) for n in names}}


def _whole(upload: Upload) -> dict[str, Any]:
    from dataclasses import asdict

    values = asdict(upload)
    del values["column_report"]
    return {
        "upload_id": values.pop("id"),
        "held": values.pop("on_hold"),
        **values,
        "content_sha256": upload.content_sha256.hex(),
        "affected_dates": [day.isoformat() for day in upload.affected_dates],
    }
