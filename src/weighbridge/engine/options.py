"""Options of a worker process. A module of its own, so that commands can read them without loading the steps."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from weighbridge.model.retry import MAX_CRASHES
from weighbridge.model.states import Status


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"


@dataclass(frozen=True)
class WorkerOptions:
    """How one worker process behaves; the settings of the same names document each option."""

    name: str = field(default_factory=_name)
    slots: int = 3  # the last one for another workspace than the others
    parses: bool = True
    promotes: bool = True
    per_workspace: int = 3
    lease: timedelta = timedelta(seconds=60)
    ceiling: timedelta = timedelta(hours=1)
    poll: timedelta = timedelta(seconds=2)
    max_crashes: int = MAX_CRASHES
    clean_every: timedelta = timedelta(hours=24)
    removes_history: bool = True
    alert_dead_letters: int = 5
    alert_backlog: int = 100
    alert_storage_queue: int = 100
    only_project: UUID | None = None  # the key of a project: process only its files

    @property
    def sources(self) -> tuple[Status, ...]:
        """The states it claims from."""
        both = ((self.parses, Status.PENDING), (self.promotes, Status.STAGING_COMPLETE))
        return tuple(status for wanted, status in both if wanted)
