"""Queries of `weighbridge verify golden-path`: its own workspace, and the removal of everything in it."""

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
from weighbridge.postgres.pool import Tx, connect, fetch_all, fetch_one
from weighbridge.postgres.queries import load
from weighbridge.uploads import staging

_SQL = load(__name__)
# Judgments come before the plaintiffs that they reference.
_FORGET = (
    "events",
    "alerts",
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
class Run:
    """A row of ingest.import_runs."""

    status: str
    record_count: int | None
    error_message: str | None


@dataclass(frozen=True)
class Target:
    """Host and name of a database, without credentials."""

    host: str
    database: str


def target(url: str) -> Target:
    parts = conninfo_to_dict(url)
    return Target(str(parts.get("host") or "localhost"), str(parts.get("dbname") or "the login's own"))


@asynccontextmanager
async def alone(url: str) -> AsyncIterator[bool]:
    """Whether this is the only golden path check on the database. The lock is held until the end."""
    connection = await connect(url)
    try:
        row = await fetch_one(connection, _SQL["stay_alone"])
        yield bool(row and row[0])
    finally:
        await connection.close()


async def run(tx: Tx, workspace_id: UUID, batch: str) -> Run | None:
    row = await fetch_one(tx, _SQL["import_run"], {"workspace": workspace_id, "batch": batch})
    return Run(*row) if row else None


async def picture(tx: Tx, workspace_id: UUID) -> str:
    """The whole content of the workspace as text, for comparison."""
    row = await fetch_one(tx, _SQL["picture"], {"workspace": workspace_id})
    return (row and row[0]) or ""


async def forget(tx: Tx, workspace_id: UUID, pipeline: Pipeline) -> None:
    """Remove everything that the pipeline wrote for the workspace, in any state.

    Raises RetryLater if a worker claimed an upload meanwhile; the next call sees the attempt and takes it back.
    """
    ours: dict[str, Any] = {"workspace": workspace_id}
    await tx.execute(_SQL["take_back"], ours)
    ours["uploads"] = await _ids(tx, "hold_uploads", ours)
    ours["alerts"] = await _ids(tx, "alerts_about", ours)
    await tx.execute(_SQL["take_back_alerts"], ours)
    ours["deliveries"] = await _ids(tx, "hold_deliveries", ours)
    row = await fetch_one(tx, _SQL["still_held"], ours)
    if row and row[0]:
        raise RetryLater("deadlock", "A worker claimed an upload meanwhile.")
    for upload in ours["uploads"]:
        await staging.purge(tx, [pipeline], upload)
    for name in _FORGET:
        await tx.execute(_SQL[f"forget_{name}"], ours)


async def left(tx: Tx, workspace_id: UUID) -> list[str]:
    """Tables with a workspace_id column that still contain rows of this workspace."""
    found = []
    for schema, table in await fetch_all(tx, _SQL["tables_of_workspaces"]):
        question = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE workspace_id = %s)")
        row = await fetch_one(tx, question.format(sql.Identifier(schema, table)), (workspace_id,))
        if row and row[0]:
            found.append(f"{schema}.{table}")
    return found


async def _ids(tx: Tx, query: str, params: dict[str, Any]) -> list[UUID]:
    return [row[0] for row in await fetch_all(tx, _SQL[query], params)]
