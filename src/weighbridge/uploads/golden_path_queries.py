"""Queries of `weighbridge verify golden-path`: its own workspace, and the deletion of everything in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from weighbridge.model.errors import RetryLater
from weighbridge.model.pipeline import Pipeline
from weighbridge.postgres.connections import connect
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one
from weighbridge.uploads import staging

_SQL = load(__name__)
# Judgments come before the plaintiffs that they reference.
_DELETE = (
    "events",
    "alerts",
    "turns",
    "audit",
    "receipts",
    "judgments",
    "plaintiffs",
    "rejections",
    "warnings",
    "queue",
    "uploads",
    "usage",
)


@dataclass(frozen=True)
class ImportRun:
    """A row of ingest.import_runs."""

    status: str
    record_count: int | None
    error_message: str | None


@dataclass(frozen=True)
class DatabaseTarget:
    """Host and name of a database, without credentials."""

    host: str
    database: str


def target(url: str) -> DatabaseTarget:
    parts = conninfo_to_dict(url)
    return DatabaseTarget(
        str(parts.get("host") or "localhost"), str(parts.get("dbname") or "the login's own")
    )


@asynccontextmanager
async def exclusive(url: str) -> AsyncIterator[bool]:
    """Whether this is the only golden path check on the database. The lock is held until the end."""
    connection = await connect(url)
    try:
        row = await fetch_one(connection, _SQL["lock_golden_path"])
        yield bool(row and row[0])
    finally:
        await connection.close()


async def import_run(tx: Tx, workspace_id: UUID, batch: str) -> ImportRun | None:
    row = await fetch_one(tx, _SQL["import_run"], {"workspace": workspace_id, "batch": batch})
    return ImportRun(*row) if row else None


async def snapshot(tx: Tx, workspace_id: UUID) -> str:
    """The whole content of the workspace as text, for comparison."""
    row = await fetch_one(tx, _SQL["snapshot"], {"workspace": workspace_id})
    return (row and row[0]) or ""


async def delete_all(tx: Tx, workspace_id: UUID, pipeline: Pipeline) -> None:
    """Delete everything that the pipeline wrote for the workspace, in any state.

    Raises RetryLater if a worker claimed an upload meanwhile; the next call sees the attempt and deletes it.
    """
    params: dict[str, Any] = {"workspace": workspace_id}
    await tx.execute(_SQL["revoke_attempts"], params)
    params["uploads"] = await _ids(tx, "lock_uploads", params)
    params["alerts"] = await _ids(tx, "alerts_about", params)
    await tx.execute(_SQL["revoke_alert_attempts"], params)
    params["deliveries"] = await _ids(tx, "lock_deliveries", params)
    row = await fetch_one(tx, _SQL["open_attempts"], params)
    if row and row[0]:
        raise RetryLater("deadlock", "A worker claimed an upload meanwhile.")
    for upload in params["uploads"]:
        await staging.purge(tx, [pipeline], upload)
    for name in _DELETE:
        await tx.execute(_SQL[f"delete_{name}"], params)


async def tables_with_rows(tx: Tx, workspace_id: UUID) -> list[str]:
    """Tables with a workspace_id column that still contain rows of this workspace."""
    found = []
    for schema, table in await fetch_all(tx, _SQL["tables_with_a_workspace"]):
        question = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE workspace_id = %s)")
        row = await fetch_one(tx, question.format(sql.Identifier(schema, table)), (workspace_id,))
        if row and row[0]:
            found.append(f"{schema}.{table}")
    return found


async def _ids(tx: Tx, query: str, params: dict[str, Any]) -> list[UUID]:
    return [row[0] for row in await fetch_all(tx, _SQL[query], params)]
