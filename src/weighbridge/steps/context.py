"""What every step is given: the parts it works with and the limits it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weighbridge.blobs.base import Blobs
from weighbridge.db.events import Delivery
from weighbridge.db.pool import Database, Tx
from weighbridge.model.pipeline import Pipeline


@dataclass(frozen=True)
class Consumer:
    """Whoever hears of events. What raises is tried again."""

    # In the transaction that settles the delivery: happens exactly once.
    inside: Callable[[Tx, Delivery], Awaitable[None]] | None = None
    # Before it, with no transaction open: may happen again if the process dies in between.
    outside: Callable[[Delivery], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Limits:
    """Numbers from the settings that steps keep."""

    max_upload_bytes: int = 50 * 1024 * 1024
    batch_rows: int = 1000
    stage_rows: int = 40_000  # staged in one transaction
    parse_memory_mb: int = 96
    staging_days: int = 7


@dataclass(frozen=True)
class Context:
    db: Database
    blobs: Blobs
    pipelines: Mapping[str, Pipeline]
    scratch: Path
    limits: Limits = Limits()
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
