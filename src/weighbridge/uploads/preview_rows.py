"""Compares staged rows with production, by the same rules as promotion.

It cannot foresee a constraint or trigger of the table that rejects a row, or a row of a rejects file that would replace
another row of its original file: only promotion finds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID

from psycopg import sql

from weighbridge.model.pipeline import Entity, Pipeline
from weighbridge.model.upload import Changes, Upload
from weighbridge.postgres.pipeline_tables import staging_table
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one
from weighbridge.uploads import unchanged_groups
from weighbridge.uploads.preview_sql import Span, count_sql, params, rows_sql, shapes
from weighbridge.uploads.upsert_sql import StagingLost

KINDS = ("inserted", "updated", "unchanged")
WINDOW, WIDEST = 2_000, 50_000  # staged rows searched at once for a page: few first, then more


@dataclass(frozen=True)
class Change:
    """A column's value before and after, as text. A personal value shows only whether there is one."""

    column: str
    old: str | None
    new: str | None
    personal: bool = False


@dataclass(frozen=True)
class PreviewRow:
    """A record of the file, as a row of one table."""

    seq: int
    line: int
    key: dict[str, str | None]
    changes: tuple[Change, ...]


async def counts(tx: Tx, pipeline: Pipeline, upload: Upload) -> dict[str, Changes]:
    """Changes by entity, over all staged rows. StagingLost if some of them are missing."""
    if upload.staged.get(pipeline.grain.name) != upload.bins.accepted:
        raise StagingLost("other rows are staged than were accepted")
    return {entity.name: await _count(tx, pipeline, entity, upload) for entity in pipeline.entities}


async def _count(tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload) -> Changes:
    spans, known = await _spans(tx, pipeline, entity, upload)
    total, counted = Changes(unchanged=known), 0
    if spans:
        for shape in await shapes(tx, pipeline, entity, upload, spans):
            row = await fetch_one(tx, count_sql(pipeline, entity, shape), params(upload, spans))
            assert row is not None
            rows, inserted, updated = row
            total += Changes(inserted, updated, rows - inserted - updated)
            counted += rows
    if counted != sum(upto - after for after, upto in spans):
        raise StagingLost(f"{counted} staged rows of {entity.name} are there")
    return total


@dataclass(frozen=True)
class Page:
    """Which rows to return."""

    entity: str
    kind: str  # of KINDS
    after: int = 0  # a seq
    limit: int = 50
    known: int | None = None  # total of this kind, if known: the search stops there


async def rows(tx: Tx, pipeline: Pipeline, upload: Upload, page: Page) -> list[PreviewRow]:
    """A page of the rows of one kind, in the order in which they would be written.

    Rows that a receipt covers are not staged: the unchanged count includes them, this list does not.
    """
    entity = pipeline.entity(page.entity)
    spans, _ = await _spans(tx, pipeline, entity, upload)
    enough = page.limit if page.known is None or page.after else min(page.limit, page.known)
    found: list[PreviewRow] = []
    for window in _windows(spans, page.after) if enough else ():
        of_each = [
            await fetch_all(
                tx,
                rows_sql(pipeline, entity, shape, page.kind),
                {**params(upload, [window]), "limit": enough - len(found)},
            )
            for shape in await shapes(tx, pipeline, entity, upload, [window])
        ]
        merged = sorted(chain.from_iterable(of_each), key=lambda row: int(row[0]))
        found += [_row(entity, row) for row in merged[: enough - len(found)]]
        if len(found) == enough:
            break
    return await _with_names(tx, pipeline, entity, upload, found)


async def _spans(tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload) -> tuple[list[Span], int]:
    """Ranges to compare, and the number of rows that need no comparison because receipts say they are in production."""
    last = upload.staged.get(entity.name, 0)
    ranges = (
        await unchanged_groups.current_groups(tx, pipeline, upload.scope) if entity is pipeline.grain else []
    )
    edges = [0, *chain.from_iterable(ranges), last]
    between = zip(edges[::2], edges[1::2], strict=True)
    return [(after, upto) for after, upto in between if after < upto], sum(b - a for a, b in ranges)


def _windows(spans: Iterable[Span], after: int) -> Iterator[Span]:
    size = WINDOW
    for start, end in spans:
        first = max(start, after)
        while first < end:
            yield first, min(first + size, end)
            first, size = first + size, min(2 * size, WIDEST)


def _row(entity: Entity, row: Sequence[Any]) -> PreviewRow:
    seq, line, *rest = row
    personal = {declared.name for declared in entity.fields if declared.personal}
    key = dict(zip(entity.key, rest, strict=False))
    pairs = zip(entity.values, rest[len(entity.key) :], strict=True)
    hidden = "…"
    return PreviewRow(
        seq,
        line,
        {column: hidden if value and column in personal else value for column, value in key.items()},
        tuple(
            Change(column, pair[0] and hidden, pair[1] and hidden, personal=True)
            if column in personal
            else Change(column, *pair)
            for column, pair in pairs
            if pair is not None
        ),
    )


async def _with_names(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload, found: list[PreviewRow]
) -> list[PreviewRow]:
    """Replace ids of other rows by the name, or else the key, of the row."""
    names: dict[str, dict[str, str]] = {}
    for ref in entity.refs:
        ids = {row.key.get(ref.name) for row in found}
        for row in found:
            ids |= {value for c in row.changes if c.column == ref.name for value in (c.old, c.new)}
        wanted = [UUID(each) for each in ids if each]
        names[ref.name] = await _names(tx, pipeline, pipeline.entity(ref.entity), upload, wanted)

    def name(column: str, value: str | None) -> str | None:
        return names.get(column, {}).get(value or "", value)

    return [
        replace(
            row,
            key={column: name(column, value) for column, value in row.key.items()},
            changes=tuple(
                replace(c, old=name(c.column, c.old), new=name(c.column, c.new)) for c in row.changes
            ),
        )
        for row in found
    ]


async def _names(
    tx: Tx, pipeline: Pipeline, entity: Entity, upload: Upload, ids: Sequence[UUID]
) -> dict[str, str]:
    open_ = [f.name for f in entity.fields if not f.personal]
    key = [c for c in entity.key if c in open_]
    if not ids or not key:
        return {}
    shown = sql.SQL("coalesce({}, concat_ws(' ', {}))").format(
        sql.Identifier("name") if "name" in open_ else sql.SQL("NULL"),
        sql.SQL(", ").join(map(sql.Identifier, key)),
    )
    query = sql.SQL(
        "SELECT id::text, {0} FROM {1} WHERE workspace_id = %(workspace)s AND id = ANY (%(ids)s)"
        " UNION ALL"
        " SELECT id::text, {0} FROM {2}"
        " WHERE upload_id = %(upload)s AND workspace_id = %(workspace)s AND id = ANY (%(ids)s)"
    ).format(
        shown,
        sql.Identifier("public", entity.table),
        staging_table(pipeline, entity),
    )
    asked = {"workspace": upload.workspace_id, "upload": upload.id, "ids": list(ids)}
    return {id_: name for id_, name in await fetch_all(tx, query, asked) if name}
