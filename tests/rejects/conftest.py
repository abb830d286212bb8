"""What the tests of rejected rows share: load a file, download its rejects, fix them, load them."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.api.conftest import client, key, make_key  # noqa: F401 (fixtures)
from tests.cli.conftest import environment, main  # noqa: F401
from tests.engine.conftest import run  # noqa: F401
from weighbridge import Entity, Field, Pipeline, n, v
from weighbridge.delivery.context import Context
from weighbridge.model.upload import Upload
from weighbridge.postgres import pipeline_tables
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import receive
from weighbridge.uploads.write_rejects_file import RejectsForm, rejects_csv

Send = Callable[..., Awaitable[UUID]]
Load = Callable[..., Awaitable[Upload]]
Download = Callable[..., Awaitable[str]]
Query = Callable[..., list[tuple[Any, ...]]]

# A user's own columns have the names of columns that Weighbridge could add.
PARTS = Pipeline(
    name="parts",
    expects=(),
    entities=[
        Entity(
            table="parts",
            key=["number"],
            fields=[
                Field("number", header=["Number"], required=True),
                Field("code", header=["Code"]),
                Field("production_line", header=["Line"]),
                Field("reason", header=["Reason"]),
                Field("their_line", header=["weighbridge_line"]),
                Field("price", Decimal, header=["Price"], normalise=[n.money], validate=[v.at_least(0)]),
            ],
        )
    ],
    min_valid=0,
)


@pytest.fixture
async def parts(ctx: Context) -> Context:
    """The context with the pipeline `parts`, installed."""
    object.__setattr__(ctx, "pipelines", {**ctx.pipelines, "parts": PARTS})
    async with ctx.db.tx() as tx:
        await pipeline_tables.install(tx, list(ctx.pipelines.values()))
    return ctx


@pytest.fixture
def send(ctx: Context, workspace: UUID) -> Send:
    """`await send(text)`: the upload that the file is now."""

    async def send(text: str, *, of: UUID | None = None, **said: Any) -> UUID:
        async def content() -> AsyncIterator[bytes]:
            yield text.encode()

        values = {"pipeline": "parts", "filename": "parts.csv", **said}
        received = await receive(ctx, Request(workspace_id=of or workspace, **values), content())
        assert not received.duplicate
        return received.upload_id

    return send


@pytest.fixture
def load(send: Send, run: Any) -> Load:  # noqa: F811
    """`await load(text)`: sent and worked on; the upload as it ended."""

    async def load(text: str, **said: Any) -> Upload:
        return await run(await send(text, **said))  # type: ignore[no-any-return]

    return load


@pytest.fixture
def download(ctx: Context) -> Download:
    """`await download(upload, every=True)`: its rejects file."""

    async def download(upload: Upload, **form: bool) -> str:
        return "".join([piece async for piece in rejects_csv(ctx.db, upload, RejectsForm(**form))])

    return download


def table(text: str) -> list[dict[str, str]]:
    """The rows of a CSV by column; of columns with one name the last."""
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


def written(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def changed(text: str, change: Callable[[dict[str, str]], dict[str, str] | None]) -> str:
    """The CSV with its rows changed by column; a row that becomes None is removed."""
    rows = table(text)
    kept = [row for each in rows if (row := change(each)) is not None]
    return written([list(rows[0]), *(list(row.values()) for row in kept)])
