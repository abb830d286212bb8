"""`weighbridge uploads preview|promote|discard`: inspect an upload on hold, then promote or discard it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weighbridge.cli.application import with_app
from weighbridge.cli.options import AsJson, UploadId
from weighbridge.cli.output import err, out, print_json
from weighbridge.cli.uploads.manage import get

if TYPE_CHECKING:
    from weighbridge.app import App
    from weighbridge.model.pipeline import Pipeline
    from weighbridge.uploads.preview import Preview
    from weighbridge.uploads.preview_rows import PreviewRow

app = typer.Typer()


@app.command()
def preview(
    upload_id: UploadId,
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="Show rows of one kind: inserted, updated or unchanged.", metavar="KIND"),
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            help="The entity whose rows are shown. Default: the last entity of the pipeline.",
            metavar="NAME",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", help="Maximum number of rows.", metavar="N", min=1, max=10_000)
    ] = 50,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compare again instead of using the stored comparison.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an upload on hold would insert, update and leave unchanged."""

    async def work(app: App) -> tuple[Preview, Pipeline, list[PreviewRow]]:
        from weighbridge.uploads import preview
        from weighbridge.uploads.preview_rows import Page

        upload = await get(app, upload_id)
        compared = await preview.preview(app.ctx, upload, fresh=fresh)
        pipeline = app.ctx.pipelines[upload.pipeline]
        page = Page(entity or pipeline.grain.name, rows or "", 0, limit)
        return compared, pipeline, await preview.page(app.ctx, upload, page) if rows else []

    compared, pipeline, listed = with_app(work)
    from weighbridge.cli.uploads import report

    if as_json:
        shown = {"rows": [_as_json(row) for row in listed]} if rows else {}
        print_json({"upload_id": upload_id, **report.preview_as_json(compared), **shown})
        return
    if not rows:
        report.print_preview(compared.upload.filename or upload_id, compared, pipeline)
        return
    for row in listed:
        key = ", ".join(f"{column} {value}" for column, value in row.key.items() if value is not None)
        out().print(f"line {row.line}  {key}", markup=False, soft_wrap=True)
        for change in row.changes:
            old = "" if rows == "inserted" else f"{_shown(change.old)} → "
            out().print(f"    {change.column}: {old}{_shown(change.new)}", markup=False, soft_wrap=True)
    if not listed:
        err().print(f"No row would be {rows}." if rows != "unchanged" else "No rows.")


@app.command()
def promote(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Promote an upload that is on hold. A worker writes its rows.

    It counts as arrived now: its rows replace rows of files that were loaded while it was on hold.
    """

    async def work(app: App) -> None:
        from weighbridge.uploads.preview import promote_on_hold

        await promote_on_hold(app.ctx, await get(app, upload_id), actor="command line")

    with_app(work)
    if as_json:
        print_json({"upload_id": upload_id, "status": "staging_complete"})
    else:
        out().print(f"{upload_id} is queued for promotion. It counts as arrived now.", soft_wrap=True)


@app.command()
def discard(upload_id: UploadId, as_json: AsJson = False) -> None:
    """Discard an upload that is on hold. None of its rows are written; the same file can be uploaded again."""

    async def work(app: App) -> None:
        from weighbridge.uploads.preview import discard

        await discard(app.ctx, await get(app, upload_id), actor="command line")

    with_app(work)
    if as_json:
        print_json({"upload_id": upload_id, "status": "failed", "error_code": "discarded"})
    else:
        out().print(f"{upload_id} is discarded.")


def _as_json(row: PreviewRow) -> dict[str, Any]:
    return {"line": row.line, "key": row.key, "changes": [vars(change) for change in row.changes]}


def _shown(value: str | None) -> str:
    return "(empty)" if value is None else value
