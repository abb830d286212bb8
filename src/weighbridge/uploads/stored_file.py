"""The stored file of an upload: verified, opened as a sheet, and read again for single records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from weighbridge.formats import UnknownHeader, open_sheet, without_added_columns
from weighbridge.model.errors import FileRefused, Refused, RetryLater
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.sheet import Sheet
from weighbridge.model.upload import Upload
from weighbridge.rules.headers import field_counter, list_header
from weighbridge.rules.unknown_header import UnknownColumns, no_column_known
from weighbridge.storage.blobs import BlobMissing
from weighbridge.storage.files import sha256
from weighbridge.uploads.context import Context


@asynccontextmanager
async def stored_file(upload: Upload, ctx: Context) -> AsyncIterator[tuple[Path, Path]]:
    """The upload's file, verified, and a scratch folder that is removed at the end."""
    with TemporaryDirectory(prefix="parse-", dir=ctx.scratch) as folder:
        scratch = Path(folder)
        try:
            path = await ctx.blobs.fetch(upload.file_url or "", scratch)
        except BlobMissing as error:
            raise FileRefused("file_not_found", str(error)) from error
        except RetryLater as failure:
            if failure.kind != "connection":
                raise
            raise RetryLater("store", failure.message) from failure
        if await asyncio.to_thread(sha256, path) != upload.content_sha256:
            raise FileRefused(
                "file_changed", "The stored file differs from the file that was uploaded. Upload it again."
            )
        yield path, scratch


def sheet_of(upload: Upload, pipeline: Pipeline, path: Path, scratch: Path) -> Sheet:
    """The file as text columns. Raises FileRefused `unknown_header` if no column is known."""
    profile = pipeline.profile(upload.platform or "")
    try:
        sheet = open_sheet(
            path,
            upload.file_kind,
            count_fields=field_counter(pipeline, profile),
            scratch=scratch,
            headerless=list_header(pipeline, profile),
            options=upload.reading,
            show_cell=not pipeline.personal,
        )
    except UnknownHeader as unknown:
        found = UnknownColumns(unknown.columns, unknown.line, unknown.below)
        raise no_column_known(found, pipeline, profile) from None
    return without_added_columns(sheet)


async def raw_records(upload: Upload, ctx: Context, wanted_rows: set[int]) -> dict[int, list[str]]:
    """The cells of some records as they are in the file, by row index."""
    pipeline = pipeline_of(upload, ctx)

    def collect(path: Path, scratch: Path) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for batch in sheet_of(upload, pipeline, path, scratch).batches():
            for position, index in enumerate(batch.column("row_index").to_pylist()):
                if index in wanted_rows:
                    cells = batch.slice(position, 1).to_pylist()[0]
                    found[index] = [v or "" for k, v in cells.items() if k[0] == "c" and k[1:].isdigit()]
        return found

    async with stored_file(upload, ctx) as (path, scratch):
        return await asyncio.to_thread(collect, path, scratch)


def pipeline_of(upload: Upload, ctx: Context) -> Pipeline:
    pipeline = ctx.pipelines.get(upload.pipeline)
    if pipeline is None:
        raise Refused(
            "unknown_pipeline",
            f"This process has no pipeline {upload.pipeline!r}. Check WEIGHBRIDGE_PIPELINES.",
        )
    return pipeline
