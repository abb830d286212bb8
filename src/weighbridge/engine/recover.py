"""Attempts whose lease expired → back to their queue. One statement serves every queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from weighbridge.observe import journal
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Database, Tx, fetch_all

log = structlog.get_logger()
_SQL = load(__name__)


@dataclass(frozen=True)
class Recovered:
    """An attempt whose lease expired."""

    queue: str
    subject: UUID
    worker: str
    opened_at: datetime
    hours: float  # since then
    batch: str | None
    gave_up: bool

    @classmethod
    def of(cls, found: dict[str, Any]) -> Recovered:
        """From JSON, as the claims of uploads and projects return it."""
        subject, opened_at = UUID(found["subject"]), datetime.fromisoformat(found["opened_at"])
        return cls(**{**found, "subject": subject, "opened_at": opened_at})


async def run(db: Database, max_crashes: int) -> list[Recovered]:
    """The chore of a worker: recover, and log what was recovered."""
    async with db.tx() as tx:
        abandoned = await recover(tx, max_crashes)
    log_recovered(abandoned)
    return abandoned


async def recover(tx: Tx, max_crashes: int) -> list[Recovered]:
    """Return everything whose lease expired to its queue."""
    return [Recovered(*row) for row in await fetch_all(tx, _SQL["recover"], (max_crashes,))]


def log_recovered(recovered: Sequence[Recovered]) -> None:
    """Log one line for each recovered attempt."""
    for each in recovered:
        match each.queue:
            case "projects":
                journal.lease_recovered(each.subject, each.worker)
            case "storage":
                journal.replay_recovered(each.subject, each.worker)
            case "deliveries":
                journal.delivery_recovered(each.subject, each.worker)
            case _ if each.batch is None:
                log.warning("Event delivery recovered", subject=str(each.subject), worker_id=each.worker)
            case _:
                journal.stale_takeover(each.batch, each.hours, each.opened_at, each.worker)
                if each.gave_up:
                    journal.job_failed(
                        each.batch, "worker_crashed", "Several workers stopped while processing the file."
                    )
