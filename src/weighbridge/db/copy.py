"""Arrow columns into a table by binary COPY."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pgpq
from psycopg import sql

from weighbridge.db.pool import Tx


async def copy_batches(tx: Tx, table: sql.Identifier, batches: Iterable[Any]) -> int:
    """Append Arrow record batches of one schema; their column names are the table's. Returns the rows written."""
    rows = 0
    encoder: pgpq.ArrowToPostgresBinaryEncoder | None = None
    async with tx.cursor() as cursor:
        iterator = (batch for batch in batches if batch.num_rows)
        first = next(iterator, None)
        if first is None:
            return 0
        encoder = pgpq.ArrowToPostgresBinaryEncoder(first.schema)
        columns = sql.SQL(", ").join(map(sql.Identifier, first.schema.names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, columns)
        async with cursor.copy(statement) as copy:
            await copy.write(encoder.write_header())
            batch = first
            while batch is not None:
                await copy.write(encoder.write_batch(batch))
                rows += batch.num_rows
                batch = next(iterator, None)
            await copy.write(encoder.finish())
    return rows
