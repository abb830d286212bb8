"""Figures over all subjects: waiting, failed and overdue work, for metrics; and the open alerts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from weighbridge.model.states import LIVE, Status
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named

_SQL = load(__name__)

# Reported even if zero, so that an empty queue does not look like a missing one.
CONDITIONS = (
    *("ingest_failure", "stale_takeover", "dead_letters", "backlog", "storage_queue", "storage_left"),
    *("circuit_open", "credentials_refused", "conversions_expiring", "conversions_expired"),
    *("conversions_unconfirmed", "provider_unclassified"),
)
QUEUES = ("uploads", "outbox", "projects", "storage", "deliveries")
CONVERSIONS = ("QUEUED", "RETRY", "PROCESSING", "FAILED")
CIRCUITS = ("CLOSED", "OPEN", "HALF_OPEN")
JOBS = ("queued", "running", "succeeded", "failed")


@dataclass(frozen=True)
class ServiceFigures:
    """Figures of all workspaces together. Ages are in seconds, and zero if nothing waits."""

    uploads: dict[str, int]  # by state
    backlog: int  # not ended, and not on hold
    previews_on_hold: int  # uploads on hold
    backlog_age: float  # of the upload that has waited longest
    failed_24h: int
    dead_letters: int  # failed, and neither retried nor dismissed
    stale_runs: int
    alerts_open: dict[str, int]  # by condition
    outbox_waiting: int  # deliveries of events
    outbox_age: float
    attempts_live: dict[str, int]  # by queue
    project_jobs: dict[str, int]  # by state
    project_job_seconds: float  # average duration of successful jobs
    storage_queue: int  # files that wait for the store
    storage_usage: int  # stored bytes
    conversions: dict[str, int]  # by state, without delivered ones
    conversions_age: float  # of the conversion that has been due longest
    circuits: dict[str, int]  # groups, by the state of their breaker
    oldest_transaction: float  # of any client in this database


@dataclass(frozen=True)
class OpenAlert:
    condition: str
    severity: str
    message: str
    opened_at: datetime
    upload_id: UUID | None  # the upload that it is about, if it is one
    site_id: UUID | None


async def of_service(tx: Tx) -> ServiceFigures:
    (row,) = await fetch_named(tx, _SQL["service_figures"])
    uploads = _counted(row["uploads"], Status)
    return ServiceFigures(
        uploads=uploads,
        backlog=sum(uploads[state] for state in LIVE) - row["previews_on_hold"],
        previews_on_hold=row["previews_on_hold"],
        backlog_age=_age(row["backlog_age"]),
        failed_24h=row["failed_24h"],
        dead_letters=row["dead_letters"],
        stale_runs=row["stale_runs"],
        alerts_open=_counted(row["alerts_open"], CONDITIONS),
        outbox_waiting=row["outbox_waiting"],
        outbox_age=_age(row["outbox_age"]),
        attempts_live=_counted(row["attempts_live"], QUEUES),
        project_jobs=_counted(row["project_jobs"], JOBS),
        project_job_seconds=float(row["project_job_seconds"] or 0),
        storage_queue=row["storage_queue"],
        storage_usage=row["storage_usage"],
        conversions=_counted(row["conversions"], CONVERSIONS),
        conversions_age=_age(row["conversions_age"]),
        circuits=_counted(row["circuits"], CIRCUITS),
        oldest_transaction=_age(row["oldest_transaction"]),
    )


async def open_alerts(tx: Tx, *, of_service: bool) -> list[OpenAlert]:
    """Open alerts about the workspace's uploads and sites; with `of_service`, also those about all workspaces."""
    rows = await fetch_all(tx, _SQL["open_alerts"], {"of_service": of_service})
    return [OpenAlert(*row) for row in rows]


def _counted(found: dict[str, int] | None, known: Iterable[str]) -> dict[str, int]:
    return {str(name): 0 for name in known} | (found or {})


def _age(seconds: Any) -> float:
    """Never below zero: work that is postponed is not waiting yet."""
    return max(0.0, float(seconds or 0))
