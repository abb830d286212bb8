"""Arrow columns → rows of a table, by binary COPY."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pgpq
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.copy import AsyncLibpqWriter
from psycopg.generators import copy_to

from weighbridge.postgres.transactions import Tx

PIECE = 256 * 1024


async def copy_batches(tx: Tx, table: sql.Identifier, batches: Iterable[Any]) -> int:
    """Append Arrow record batches of one schema; their column names are the table's. Returns the rows written."""
    rows = 0
    iterator = (_with_booleans(batch) for batch in batches if batch.num_rows)
    batch = next(iterator, None)
    if batch is None:
        return 0
    encoder = pgpq.ArrowToPostgresBinaryEncoder(batch.schema)
    columns = sql.SQL(", ").join(map(sql.Identifier, batch.schema.names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, columns)
    async with tx.cursor() as cursor, cursor.copy(statement, writer=_Writer(cursor)) as copy:
        await copy.write(encoder.write_header())
        while batch is not None:
            await copy.write(encoder.write_batch(batch))
            rows += batch.num_rows
            batch = next(iterator, None)
        await copy.write(encoder.finish())
    return rows


def _with_booleans(batch: Any) -> Any:
    """DuckDB exports booleans as `arrow.bool8`, one byte each; pgpq would write that as a smallint."""
    for position, column in enumerate(batch.schema):
        if getattr(column.type, "extension_name", "") == "arrow.bool8":
            values = batch.column(position).storage.cast("bool")
            batch = batch.set_column(position, column.name, values)
    return batch


class _Writer(AsyncLibpqWriter):
    """Sends every piece before it accepts the next. psycopg's own writer leaves this to libpq, whose buffer grows to
    the size of the data and keeps that size, on each connection of the pool.
    """

    async def write(self, data: Buffer) -> None:
        view = memoryview(data)
        for start in range(0, len(view), PIECE):
            await self.connection.wait(copy_to(self._pgconn, view[start : start + PIECE], flush=True))
