"""What every step is given: the parts it works with and the limits it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx

from weighbridge.blobs.base import Blobs
from weighbridge.blobs.spool import Spool
from weighbridge.db.deliveries import Patience
from weighbridge.db.events import Delivery
from weighbridge.db.pool import Database, Tx
from weighbridge.model.pipeline import Pipeline
from weighbridge.providers.base import Provider
from weighbridge.providers.vault import Vault
from weighbridge.slots.base import SlotLimits, Slots


@dataclass(frozen=True)
class Consumer:
    """Whoever hears of events. What raises is tried again."""

    # In the transaction that settles the delivery: happens exactly once.
    inside: Callable[[Tx, Delivery], Awaitable[None]] | None = None
    # Before it, with no transaction open: may happen again if the process dies in between.
    outside: Callable[[Delivery], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Allowance:
    """How many bytes may be stored; None: no limit."""

    month: int | None = None  # in a calendar month (UTC)
    total: int | None = None  # in the store at any time


@dataclass(frozen=True)
class Limits:
    """Numbers from the settings that steps keep."""

    max_upload_bytes: int = 50 * 1024 * 1024
    batch_rows: int = 1000
    stage_rows: int = 40_000  # staged in one transaction
    parse_memory_mb: int = 96
    staging_days: int = 7
    blob_days: int | None = None
    storage_retries: int = 5
    resumable: timedelta = timedelta(hours=24)
    workspace: Allowance = Allowance()
    user: Allowance = Allowance()


@dataclass(frozen=True)
class Outbound:
    """What deliveries to providers need, and how they are made."""

    providers: Mapping[str, Provider]
    vault: Vault
    slots: Slots
    http: httpx.AsyncClient
    limits: SlotLimits = field(default_factory=SlotLimits)
    patience: Patience = field(default_factory=Patience)
    full_counts: bool = True  # no free slot is a failure to the breaker, as S4 has it

    @property
    def lease(self) -> timedelta:
        """Of a call. It is not moved on: a call ends, or is given up, well before."""
        return self.limits.ttl


@dataclass(frozen=True)
class Context:
    db: Database
    blobs: Blobs
    spool: Spool
    pipelines: Mapping[str, Pipeline]
    scratch: Path
    limits: Limits = Limits()
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    outbound: Outbound | None = None  # None: without the vault's key nothing is delivered
