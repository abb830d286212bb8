"""The queue of conversions on their way to providers (S4): one function per named query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.db.pool import Tx, fetch_all, fetch_named, fetch_one
from weighbridge.db.queries import load
from weighbridge.model.delivery import Conversion, Outcome

_SQL = load("deliveries")


@dataclass(frozen=True)
class Group:
    """A site and a provider with rows whose time has come, and what stands in their way."""

    site_id: UUID
    provider_key: str
    queued_count: int
    min_next_retry_at: datetime | None
    min_created_at: datetime
    state: str  # of the breaker
    probe_due: bool
    paused: bool  # the provider has asked for a pause of all sites
    bare: bool  # without credentials
    refused: bool  # the provider does not accept its credentials

    @property
    def name(self) -> str:
        return f"{self.site_id}/{self.provider_key}"


@dataclass(frozen=True)
class SealedCredentials:
    """A row of provider_credentials, as the vault made it."""

    site_id: UUID
    provider_key: str
    version: int
    key_id: str
    nonce: bytes
    ciphertext: bytes


@dataclass(frozen=True)
class Wish:
    """Rows that may be claimed of a group."""

    site_id: UUID
    provider_key: str
    limit: int


@dataclass(frozen=True)
class Claimed:
    """Rows of one group that are sent in one call. Its id is also the token of its lease."""

    id: UUID
    site_id: UUID
    provider_key: str
    now: datetime
    conversions: tuple[Conversion, ...]
    retries: tuple[int, ...]  # of each, so far
    expired: int  # refused while they were claimed


@dataclass(frozen=True)
class Row:
    """What becomes of one conversion."""

    id: UUID
    outcome: Outcome
    delay: timedelta | None = None  # until it is tried again
    counts: bool = False  # towards the limit of its retries


@dataclass(frozen=True)
class Call:
    """What became of a call, for the rows that it had and for all that stands around them."""

    batch_id: UUID
    rows: Sequence[Row]
    duration_ms: int
    request_id: str | None = None
    error_code: str | None = None
    error_category: str | None = None
    success: bool = False
    transient: bool = False  # the breaker counts it
    refused: bool = False  # the credentials
    credentials: int | None = None  # their version
    pause: timedelta | None = None  # of the whole provider
    unclassified: bool = False  # an error that is in no table of ours
    confirm_after: timedelta | None = None


@dataclass(frozen=True)
class Awaited:
    """A request whose end is asked for now."""

    site_id: UUID
    provider_key: str
    request_id: str
    rows: int
    tries: int


async def groups(tx: Tx, most: int) -> list[Group]:
    """All groups with rows whose time has come; of each at most `most` are counted."""
    return [Group(**row) for row in await fetch_named(tx, _SQL["groups"], (most,))]


async def credentials(tx: Tx, wishes: Sequence[Wish]) -> list[SealedCredentials]:
    params = ([w.site_id for w in wishes], [w.provider_key for w in wishes])
    return [SealedCredentials(**row) for row in await fetch_named(tx, _SQL["credentials"], params)]


async def claim(tx: Tx, worker: str, lease: timedelta, wishes: Sequence[Wish]) -> list[Claimed]:
    """A batch for each wish that finds rows; STARTED stands in the ledger with it."""
    params = (worker, lease, *_columns(wishes))
    return _batches(await fetch_all(tx, _SQL["claim"], params))


async def peek(tx: Tx, wishes: Sequence[Wish]) -> list[Claimed]:
    """What a claim would find; nothing is claimed."""
    return _batches(await fetch_all(tx, _SQL["peek"], _columns(wishes)))


def _columns(wishes: Sequence[Wish]) -> tuple[list[UUID], list[str], list[int]]:
    return [w.site_id for w in wishes], [w.provider_key for w in wishes], [w.limit for w in wishes]


def _batches(rows: Sequence[tuple[Any, ...]]) -> list[Claimed]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[1:4], []).append(row)
    return [_batch(key, batch) for key, batch in found.items()]


def _batch(key: tuple[Any, ...], rows: Sequence[tuple[Any, ...]]) -> Claimed:
    batch_id, site_id, provider_key = key
    live = [row for row in rows if row[4] != "FAILED"]
    conversions = tuple(
        Conversion(
            id=row[0],
            order_id=row[5],
            click_type=row[6],
            click_id=row[7],
            occurred_at=row[8],
            clicked_at=row[9],
            value=row[10],
            currency=row[11],
            user_data=row[12],
            tries=row[13] - 1,
            last_code=row[15],
            last_code_times=row[16],
        )
        for row in live
    )
    return Claimed(
        id=batch_id,
        site_id=site_id,
        provider_key=provider_key,
        now=rows[0][17],
        conversions=conversions,
        retries=tuple(row[14] for row in live),
        expired=len(rows) - len(live),
    )


async def settle(tx: Tx, calls: Sequence[Call]) -> set[UUID]:
    """Write what became of calls. Those that come back were settled; the others have lost their lease."""
    rows = [(call, row, row.outcome) for call in calls for row in call.rows]
    params = (
        [call.batch_id for call, _, _ in rows],
        [row.id for _, row, _ in rows],
        [said.verdict.value for _, _, said in rows],
        [said.code for _, _, said in rows],
        [said.category and said.category.value for _, _, said in rows],
        [said.message for _, _, said in rows],
        [said.request_id for _, _, said in rows],
        [row.delay for _, row, _ in rows],
        [row.counts for _, row, _ in rows],
        [said.duplicate for _, _, said in rows],
        [call.confirm_after if said.awaits_confirmation else None for call, _, said in rows],
        Jsonb([_told(call) for call in calls]),
    )
    return {token for (token,) in await fetch_all(tx, _SQL["settle"], params)}


def _told(call: Call) -> dict[str, Any]:
    names = (
        *("duration_ms", "request_id", "error_code", "error_category", "success", "transient", "refused"),
        *("credentials", "unclassified"),
    )
    told = {name: getattr(call, name) for name in names}
    pause = call.pause and call.pause.total_seconds()
    return {"batch_id": str(call.batch_id), "pause_seconds": pause, **told}


async def begin_probe(tx: Tx, group: Group, turn: timedelta) -> int | None:
    """How many rows may be sent to find out whether the provider is well again; None: another does."""
    row = await fetch_one(tx, _SQL["begin_probe"], (group.site_id, group.provider_key, turn))
    return row[0] if row else None


async def park(tx: Tx, closed: Sequence[Group], limit: int) -> int:
    """Put rows of open groups off until after their probe; returns how many."""
    params = ([g.site_id for g in closed], [g.provider_key for g in closed], limit)
    return await _number(tx, "park", params)


async def recover_stuck(tx: Tx, min_age_minutes: int) -> int:
    return await _number(tx, "recover_stuck", (min_age_minutes,))


async def watch(tx: Tx, ahead: timedelta, limit: int) -> int:
    """Refuse what has expired, alert what is about to; returns how many were refused."""
    return await _number(tx, "watch", (ahead, limit))


async def claim_confirmations(tx: Tx, limit: int) -> list[Awaited]:
    return [Awaited(**row) for row in await fetch_named(tx, _SQL["claim_confirmations"], (limit,))]


async def settle_confirmation(tx: Tx, asked: Awaited, state: str, reasons: Mapping[str, int]) -> int:
    """Returns how many conversions it is about."""
    params = (asked.site_id, asked.provider_key, asked.request_id, state, Jsonb(dict(reasons)))
    return await _number(tx, "settle_confirmation", params)


async def know(tx: Tx, declared: Mapping[str, tuple[tuple[str, ...], timedelta | None, bool]]) -> None:
    """Tell the database what it has to know of providers: click ids, window, whether that counts from the event."""
    known = {key: rest for key, *rest in await fetch_all(tx, _SQL["known_providers"])}
    for key, (clicks, window, from_event) in declared.items():
        if known.get(key) != [list(clicks), window, from_event]:
            await tx.execute(_SQL["know_provider"], (key, list(clicks), window, from_event))


async def _number(tx: Tx, query: str, params: tuple[Any, ...]) -> int:
    row = await fetch_one(tx, _SQL[query], params)
    assert row is not None
    return int(row[0])
