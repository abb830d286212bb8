"""Queries of storage usage, quotas and retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from weighbridge.postgres.pool import Tx, fetch_all, fetch_named, fetch_one
from weighbridge.postgres.queries import load

_SQL = load(__name__)

# What a limit can be set to, besides a number of bytes.
NO_LIMIT = -1
AS_SETTINGS_SAY = -2


@dataclass(frozen=True)
class Defaults:
    """The settings' limits, in bytes; None: none."""

    workspace_month: int | None = None
    workspace_total: int | None = None
    user_month: int | None = None
    user_total: int | None = None


@dataclass(frozen=True)
class Over:
    """The limit that a file would break."""

    whose: str  # user, workspace
    span: str  # month, total
    used: int
    allowed: int
    resets_at: datetime | None  # None: never
    seconds: float | None  # until then


@dataclass(frozen=True)
class Spent:
    """A user's readings of this month, none of which is left."""

    used: int
    allowed: int
    resets_at: datetime
    seconds: float


@dataclass(frozen=True)
class Usage:
    """How much one user, or the workspace, has stored and may store; by month as of now."""

    user_id: UUID | None  # None: the workspace itself
    total_bytes: int
    total_sources: int
    month_bytes: int
    waiting_bytes: int  # accepted, and waiting for the store
    reserved_bytes: int  # set aside for files on their way
    month_limit: int | None
    total_limit: int | None
    last_calculated: datetime | None
    interpretation_count_month: int
    interpretation_limit_month: int
    billing_month: str
    resets_at: datetime


@dataclass(frozen=True)
class Differing:
    """A user whose counters were not what lies in the store."""

    user_id: UUID
    recorded_bytes: int
    recorded_sources: int
    found_bytes: int
    found_sources: int


@dataclass(frozen=True)
class Recount:
    """What a comparison with the store found; keys are within the workspace."""

    users: tuple[Differing, ...]
    orphans: tuple[tuple[str, int], ...]  # blobs that no upload names
    missing: tuple[tuple[UUID, str], ...]  # uploads whose blob is not there


async def increment(tx: Tx, user_id: UUID, size: int) -> None:
    """A file more of so many bytes; with negative ones, one less."""
    await tx.execute(_SQL["increment_storage_usage"], (user_id, size))


async def take_interpretations(tx: Tx, user_id: UUID, number: int, *, limited: bool) -> Spent | None:
    """Count that files of a user are read again: all of them, or none and what is spent."""
    row = await fetch_one(tx, _SQL["take_interpretations"], (user_id, number, limited))
    return Spent(*row) if row else None


async def count(tx: Tx, user_id: UUID, size: int, file_url: str, grant: UUID | None) -> bool:
    """A blob of the workspace is stored, and its reservation ends. False: it was counted already."""
    row = await fetch_one(tx, _SQL["count_blob"], (user_id, size, file_url, grant))
    return bool(row and row[0])


@dataclass(frozen=True)
class Reservation:
    """Bytes to be set aside."""

    grant: UUID
    user_id: UUID
    size: int
    lasts: timedelta
    consumers: list[str]  # of the event, where they cannot be


async def reserve(tx: Tx, reservation: Reservation, defaults: Defaults) -> Over | None:
    """Set bytes aside; the limit that they would break, where they cannot be."""
    row = await fetch_one(tx, _SQL["reserve_storage"], asdict(reservation) | asdict(defaults))
    return Over(*row) if row else None


async def release(tx: Tx, grant: UUID) -> None:
    """Nothing is set aside under this grant any more."""
    await tx.execute(_SQL["release_storage"], (grant,))


async def sweep(tx: Tx) -> int:
    """Forget reservations that have run out."""
    row = await fetch_one(tx, _SQL["sweep_reservations"])
    assert row is not None
    return int(row[0])


async def standing(tx: Tx, defaults: Defaults) -> list[Usage]:
    """The workspace that the transaction acts for, then its users."""
    return [Usage(**row) for row in await fetch_named(tx, _SQL["storage_standing"], asdict(defaults))]


@dataclass(frozen=True)
class Limit:
    """New limits, of the workspace or of one user; None leaves one as it is."""

    user_id: UUID | None
    month: int | None = None
    total: int | None = None
    interpretations: int | None = None


async def set_limit(tx: Tx, limit: Limit, actor: str) -> None:
    await tx.execute(_SQL["set_storage_limit"], asdict(limit) | {"actor": actor})


async def workspaces(tx: Tx) -> list[UUID]:
    return [row[0] for row in await fetch_all(tx, _SQL["counted_workspaces"])]


async def recount(tx: Tx, listing: Sequence[tuple[str, int]], began: datetime, *, dry: bool) -> Recount:
    """Compare the workspace's counters with a listing that was begun then, and mend them."""
    keys, sizes = [key for key, _ in listing], [size for _, size in listing]
    row = await fetch_one(tx, _SQL["recount_storage"], (keys, sizes, began, dry))
    assert row is not None
    found: dict[str, list[dict[str, Any]]] = row[0]
    return Recount(
        users=tuple(Differing(**{**each, "user_id": UUID(each["user_id"])}) for each in found["users"]),
        orphans=tuple((each["key"], each["bytes"]) for each in found["orphans"]),
        missing=tuple((UUID(each["upload_id"]), each["key"]) for each in found["missing"]),
    )


async def expired(tx: Tx, days: int | None) -> list[tuple[UUID, UUID]]:
    """Workspace and an upload of each blob that may have to go; without days, where it has begun to."""
    return [(row[0], row[1]) for row in await fetch_all(tx, _SQL["expired_blobs"], (days,))]


async def retire(tx: Tx, upload_id: UUID, days: int | None) -> str | None:
    """Mark the blob of an upload as removed: its key. None: it has to stay."""
    row = await fetch_one(tx, _SQL["retire_blob"], (upload_id, days))
    return row[0] if row else None


async def note_removed(tx: Tx, upload_id: UUID) -> None:
    """The blob is gone, and counts no more."""
    await tx.execute(_SQL["note_blob_removed"], (upload_id,))


async def days_kept(tx: Tx, upload_id: UUID) -> int | None:
    """For how many days the file of an upload was kept; None where it still is."""
    row = await fetch_one(tx, _SQL["days_kept"], (upload_id,))
    return row[0] if row else None
