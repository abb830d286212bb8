"""Queries of storage usage, quotas and retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)

# Values of a limit besides a number of bytes.
NO_LIMIT = -1
AS_SETTINGS_SAY = -2


@dataclass(frozen=True)
class Defaults:
    """The limits from the settings, in bytes; None: no limit."""

    workspace_month: int | None = None
    workspace_total: int | None = None
    user_month: int | None = None
    user_total: int | None = None


@dataclass(frozen=True)
class ExceededLimit:
    """The limit that a file would exceed."""

    whose: str  # user, workspace
    span: str  # month, total
    used: int
    allowed: int
    resets_at: datetime | None  # None: never
    seconds: float | None  # until then


@dataclass(frozen=True)
class ExceededInterpretations:
    """A user's monthly interpretations, all used."""

    used: int
    allowed: int
    resets_at: datetime
    seconds: float


@dataclass(frozen=True)
class Usage:
    """Storage used and allowed, for one user or the workspace; monthly figures are of the current month."""

    user_id: UUID | None  # None: the workspace itself
    total_bytes: int
    total_sources: int
    month_bytes: int
    waiting_bytes: int  # accepted, not stored yet
    reserved_bytes: int  # reserved for files in transfer
    month_limit: int | None
    total_limit: int | None
    last_calculated: datetime | None
    interpretation_count_month: int
    interpretation_limit_month: int
    billing_month: str
    resets_at: datetime


@dataclass(frozen=True)
class CounterDifference:
    """A user whose counters differed from the store."""

    user_id: UUID
    recorded_bytes: int
    recorded_sources: int
    found_bytes: int
    found_sources: int


@dataclass(frozen=True)
class Recount:
    """The result of a comparison with the store; keys are within the workspace."""

    users: tuple[CounterDifference, ...]
    orphans: tuple[tuple[str, int], ...]  # blobs without an upload
    missing: tuple[tuple[UUID, str], ...]  # uploads whose blob is missing


async def take_interpretations(
    tx: Tx, user_id: UUID, number: int, *, limited: bool
) -> ExceededInterpretations | None:
    """Count that files of a user are read again: all of them, or none if that exceeds the limit."""
    row = await fetch_one(tx, _SQL["take_interpretations"], (user_id, number, limited))
    return ExceededInterpretations(*row) if row else None


async def count(tx: Tx, user_id: UUID, size: int, file_url: str, grant: UUID | None) -> bool:
    """Count a stored blob of the workspace and end its reservation. False: it was already counted."""
    row = await fetch_one(tx, _SQL["count_blob"], (user_id, size, file_url, grant))
    return bool(row and row[0])


async def note_uncounted(tx: Tx, upload_id: UUID, user_id: UUID, size: int, grant: UUID | None) -> None:
    """The blob of an upload could not be counted: a worker tries again."""
    await tx.execute(_SQL["note_uncounted"], (upload_id, user_id, size, grant))


@dataclass(frozen=True)
class CountedAgain:
    counted: int
    failed: int
    error: str | None  # SQLSTATE of a failure


async def count_uncounted(tx: Tx, limit: int) -> CountedAgain | None:
    """Count blobs that could not be counted with their uploads; None: there is none."""
    row = await fetch_one(tx, _SQL["count_uncounted"], (limit,))
    return CountedAgain(*row) if row else None


@dataclass(frozen=True)
class Reservation:
    """Bytes to reserve."""

    grant: UUID
    user_id: UUID
    size: int
    lasts: timedelta
    consumers: list[str]  # of the event if the bytes cannot be reserved


async def reserve(tx: Tx, reservation: Reservation, defaults: Defaults) -> ExceededLimit | None:
    """Reserve bytes; returns the limit that they would exceed, if any."""
    row = await fetch_one(tx, _SQL["reserve_storage"], asdict(reservation) | asdict(defaults))
    return ExceededLimit(*row) if row else None


async def release(tx: Tx, grant: UUID) -> None:
    """End the reservation of this grant."""
    await tx.execute(_SQL["release_storage"], (grant,))


async def sweep(tx: Tx) -> int:
    """Remove expired reservations."""
    row = await fetch_one(tx, _SQL["sweep_reservations"])
    assert row is not None
    return int(row[0])


async def usage_and_limits(tx: Tx, defaults: Defaults) -> list[Usage]:
    """The workspace that the transaction acts for, then its users."""
    return [Usage(**row) for row in await fetch_named(tx, _SQL["usage_and_limits"], asdict(defaults))]


@dataclass(frozen=True)
class Limit:
    """New limits of the workspace or of one user; None leaves a limit unchanged."""

    user_id: UUID | None
    month: int | None = None
    total: int | None = None
    interpretations: int | None = None


async def set_limit(tx: Tx, limit: Limit, actor: str) -> None:
    await tx.execute(_SQL["set_storage_limit"], asdict(limit) | {"actor": actor})


async def workspaces(tx: Tx) -> list[UUID]:
    return [row[0] for row in await fetch_all(tx, _SQL["counted_workspaces"])]


async def recount(tx: Tx, listing: Sequence[tuple[str, int]], began: datetime, *, dry: bool) -> Recount:
    """Compare the workspace's counters with a listing that began at `began`, and correct them."""
    keys, sizes = [key for key, _ in listing], [size for _, size in listing]
    row = await fetch_one(tx, _SQL["recount_storage"], (keys, sizes, began, dry))
    assert row is not None
    found: dict[str, list[dict[str, Any]]] = row[0]
    return Recount(
        users=tuple(
            CounterDifference(**{**each, "user_id": UUID(each["user_id"])}) for each in found["users"]
        ),
        orphans=tuple((each["key"], each["bytes"]) for each in found["orphans"]),
        missing=tuple((UUID(each["upload_id"]), each["key"]) for each in found["missing"]),
    )


async def expired(tx: Tx, days: int | None) -> list[tuple[UUID, UUID]]:
    """Workspace and one upload of each blob that may be due for removal; without days, those already marked."""
    return [(row[0], row[1]) for row in await fetch_all(tx, _SQL["expired_blobs"], (days,))]


async def retire(tx: Tx, upload_id: UUID, days: int | None) -> str | None:
    """Mark the blob of an upload as removed and return its key. None: it must stay."""
    row = await fetch_one(tx, _SQL["retire_blob"], (upload_id, days))
    return row[0] if row else None


async def note_removed(tx: Tx, upload_id: UUID) -> None:
    """The blob is removed and no longer counted."""
    await tx.execute(_SQL["note_blob_removed"], (upload_id,))


async def days_kept(tx: Tx, upload_id: UUID) -> int | None:
    """How many days the file of an upload was kept; None if it is still kept."""
    row = await fetch_one(tx, _SQL["days_kept"], (upload_id,))
    return row[0] if row else None
