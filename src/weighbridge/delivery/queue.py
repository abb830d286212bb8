"""Queries of `offline_conversion_queue`: conversions to deliver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any, Literal
from uuid import UUID, uuid4

from psycopg import AsyncCursor
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from weighbridge.delivery.group_key import GroupKey
from weighbridge.model.delivery import Conversion, Outcome, Verdict
from weighbridge.model.retry import Backoff
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)

LONGEST_ERROR = 500
_NO_USER_DATA: Mapping[str, str] = {}
_made = tuple.__new__


@dataclass(frozen=True)
class DueGroup:
    """A site and a provider with due rows, and what blocks them."""

    site_id: UUID
    provider_key: str
    queued_count: int
    min_next_retry_at: datetime | None
    min_created_at: datetime
    state: str  # of the breaker
    probe_due: bool
    paused: bool  # the provider requested a pause for all sites
    key_id: str | None  # the vault key of its credentials; None: it has no credentials
    refused: bool  # the provider refuses its credentials
    unused: bool  # the site no longer uses the provider

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.site_id, self.provider_key)

    @property
    def name(self) -> str:
        return f"{self.site_id}/{self.provider_key}"


@dataclass(frozen=True)
class BatchRequest:
    """How many rows of a group may be claimed."""

    key: GroupKey
    limit: int


@dataclass(frozen=True)
class CallBatch:
    """Rows of one group for one call, claimed or only read. The id of a claimed batch is the token of its lease."""

    id: UUID
    key: GroupKey
    now: datetime  # the database's
    conversions: tuple[Conversion, ...]
    expired: int  # rows that the claim refuses


@dataclass(frozen=True)
class CallResult:
    """The result of a call: an outcome per row, and its meaning for the breaker, the credentials and the ledger."""

    batch: CallBatch
    outcomes: Sequence[Outcome]
    uses_retry: bool = True  # its temporary errors count as retries
    duration_ms: int = 0
    request_id: str | None = None
    error_code: str | None = None
    error_category: str | None = None
    success: bool = False
    breaker_failure: bool = False  # the breaker counts it
    credentials_refused: bool = False
    credentials_version: int | None = None
    pause: timedelta | None = None  # of the whole provider
    unclassified: bool = False  # an unknown error code
    confirm_after: timedelta | None = None


@dataclass(frozen=True)
class Settled:
    """Counts of the rows of a call by result."""

    completed: int
    failed: int
    retry: int


@dataclass(frozen=True)
class PendingConfirmation:
    """A request whose result is queried now."""

    site_id: UUID
    provider_key: str
    request_id: str
    rows: int
    tries: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.site_id, self.provider_key)


@dataclass(frozen=True)
class FailedFilter:
    """Filters for failed conversions; None: any. Those of canceled sales never match."""

    site_id: UUID | None = None
    provider_key: str | None = None
    category: str | None = None
    code: str | None = None
    sales: Sequence[UUID] | None = None


async def groups(tx: Tx, most: int) -> list[DueGroup]:
    """All groups with due rows; at most `most` rows of each are counted."""
    return [DueGroup(**row) for row in await fetch_named(tx, _SQL["groups"], (most,))]


async def next_due(tx: Tx) -> datetime | None:
    """The earliest time of all postponed rows; None: no row is postponed."""
    row = await fetch_one(tx, _SQL["next_due"])
    return row[0] if row else None


@dataclass(frozen=True)
class ClaimedRows:
    """The rows of a claim. They are read after the commit, so that the next claim does not wait for it."""

    cursor: AsyncCursor[TupleRow]
    requests: Sequence[BatchRequest]
    batches: Sequence[UUID]

    async def read(self) -> list[CallBatch]:
        return _batches(await self.cursor.fetchall(), self.requests, self.batches)


async def claim(tx: Tx, worker: str, lease: timedelta, requests: Sequence[BatchRequest]) -> ClaimedRows:
    """A batch for each request that finds rows, with STARTED in the ledger. A group may be requested once."""
    batches = [uuid4() for _ in requests]
    # Binary: of thousands of rows, ids and times take longer to read than to find.
    cursor = await tx.cursor(binary=True).execute(
        _SQL["claim_conversions"], (worker, lease, batches, *_columns(requests))
    )
    return ClaimedRows(cursor, requests, batches)


async def peek(tx: Tx, requests: Sequence[BatchRequest]) -> list[CallBatch]:
    """The rows that a claim would return, without claiming them."""
    rows = await fetch_all(tx, _SQL["peek"], _columns(requests))
    return _batches(rows, requests, [uuid4() for _ in requests])


def _columns(requests: Sequence[BatchRequest]) -> tuple[list[UUID], list[str], list[int]]:
    return (
        [each.key.site_id for each in requests],
        [each.key.provider_key for each in requests],
        [each.limit for each in requests],
    )


def _batches(
    rows: Sequence[tuple[Any, ...]], requests: Sequence[BatchRequest], batches: Sequence[UUID]
) -> list[CallBatch]:
    """Batches from the rows of a claim: refused rows first, then those of each request; the first has the time."""
    if not rows:
        return []
    now: datetime = rows[0][-1]
    refused = Counter(row[0] for row in takewhile(lambda row: not row[1], rows))
    live = {
        request_no: list(same) for request_no, same in groupby(rows[refused.total() :], key=itemgetter(0))
    }
    return [
        CallBatch(
            batches[request_no - 1],
            requests[request_no - 1].key,
            now + timedelta(microseconds=request_no - 1),
            tuple(map(_conversion, live.get(request_no, ()))),
            refused[request_no],
        )
        for request_no in sorted({*refused, *live})
    ]


def _conversion(row: tuple[Any, ...]) -> Conversion:
    """Build a conversion like _make, which takes a third of the time of a call with twelve keywords."""
    return _made(Conversion, (*row[2:9], row[9] or _NO_USER_DATA, *row[10:14]))


async def settle(
    tx: Tx, calls: Sequence[CallResult], retries: Backoff
) -> dict[UUID, Settled | Literal["held"]]:
    """Write the results of calls. Returns counts by batch; missing batches have lost their lease.

    "held": another transaction has locked rows or counters of this batch, and nothing is written for it.
    """
    outcomes: list[dict[str, Any]] = []
    batches: list[UUID] = []
    ids: list[UUID] = []
    numbers: list[int] = []
    for call in calls:
        known: dict[Outcome, int] = {}
        before, number = None, 0
        for conversion, outcome in zip(call.batch.conversions, call.outcomes, strict=True):
            if outcome is not before:
                before, number = outcome, known.setdefault(outcome, len(known))
            if number:  # most calls have one outcome for all rows
                batches.append(call.batch.id)
                ids.append(conversion.id)
                numbers.append(number)
        outcomes += [_outcome(call, number, outcome) for outcome, number in known.items()]
    results = [_result(call) for call in calls]
    exceptions = (batches, ids, numbers)
    params = (Jsonb(results), Jsonb(outcomes), *exceptions, retries.tries, retries.first, retries.longest)
    return {
        batch: "held" if None in counts else Settled(*counts)
        for batch, *counts in await fetch_all(tx, _SQL["settle_conversions"], params)
    }


def _outcome(call: CallResult, number: int, outcome: Outcome) -> dict[str, Any]:
    return {
        "batch_id": str(call.batch.id),
        "n": number,
        "status": outcome.verdict.value,
        "code": outcome.code,
        "category": outcome.category and outcome.category.value,
        "error": outcome.message and outcome.message[:LONGEST_ERROR],
        "request_id": outcome.request_id,
        "at_least": _seconds(outcome.retry_after),
        "counts": call.uses_retry and outcome.counts and outcome.verdict is Verdict.RETRY,
        "duplicate": outcome.duplicate,
        "confirm_after": _seconds(call.confirm_after) if outcome.awaits_confirmation else None,
    }


def _result(call: CallResult) -> dict[str, Any]:
    return {
        "batch_id": str(call.batch.id),
        "claimed_at": call.batch.now.isoformat(),
        "pause_seconds": call.pause and call.pause.total_seconds(),
        "duration_ms": call.duration_ms,
        "request_id": call.request_id,
        "error_code": call.error_code,
        "error_category": call.error_category,
        "success": call.success,
        "transient": call.breaker_failure,
        "refused": call.credentials_refused,
        "credentials": call.credentials_version,
        "unclassified": call.unclassified,
    }


def _seconds(length: timedelta | None) -> str | None:
    return None if length is None else f"{length.total_seconds()} seconds"


async def enqueue(
    tx: Tx, workspace_id: UUID, site_id: UUID, provider_key: str | None, since: datetime | None, actor: str
) -> int:
    """Queue sales of a site that are not queued yet for its providers, or for one; returns how many."""
    return await _number(tx, "enqueue_conversions", (workspace_id, site_id, provider_key, since, actor))


async def recover_stuck(tx: Tx, min_age_minutes: int) -> int:
    return await _number(tx, "recover_stuck_offline_conversion_jobs", (min_age_minutes,))


async def count_failed(tx: Tx, wanted: FailedFilter, workspace_id: UUID | None) -> dict[UUID, int]:
    """How many conversions `requeue` would queue, by workspace; of all workspaces if none is given."""
    return dict(await fetch_all(tx, _SQL["count_failed"], _failed_params(wanted, workspace_id)))


async def requeue(tx: Tx, wanted: FailedFilter, workspace_id: UUID, actor: str) -> int:
    """Queue failed conversions of a workspace again; returns how many. The action is audited."""
    params = {**_failed_params(wanted, workspace_id), "actor": actor}
    return await _number(tx, "requeue_deliveries", params)


def _failed_params(wanted: FailedFilter, workspace_id: UUID | None) -> dict[str, Any]:
    return {
        "workspace": workspace_id,
        "sales": None if wanted.sales is None else list(wanted.sales),
        "site": wanted.site_id,
        "provider": wanted.provider_key,
        "category": wanted.category,
        "code": wanted.code,
    }


async def watch(tx: Tx, ahead: timedelta, limit: int) -> int:
    """Refuse expired rows and alert about rows that expire soon; returns how many were refused."""
    return await _number(tx, "watch_deliveries", (ahead, limit))


async def claim_confirmations(tx: Tx, limit: int) -> list[PendingConfirmation]:
    return [
        PendingConfirmation(**row) for row in await fetch_named(tx, _SQL["claim_confirmations"], (limit,))
    ]


async def settle_confirmation(
    tx: Tx, pending: PendingConfirmation, state: str, reasons: Mapping[str, int]
) -> int:
    """Write a confirmation; returns how many conversions it covers."""
    params = (pending.site_id, pending.provider_key, pending.request_id, state, Jsonb(dict(reasons)))
    return await _number(tx, "settle_confirmation", params)


async def register_providers(
    tx: Tx, declared: Mapping[str, tuple[tuple[str, ...], timedelta | None, bool]]
) -> None:
    """Write the properties of providers to the database: click ids, window, and from when the window counts."""
    known = {key: rest for key, *rest in await fetch_all(tx, _SQL["known_providers"])}
    for key, (clicks, window, from_event) in declared.items():
        if known.get(key) != [list(clicks), window, from_event]:
            await tx.execute(_SQL["register_provider"], (key, list(clicks), window, from_event))


async def _number(tx: Tx, query: str, params: tuple[Any, ...] | dict[str, Any]) -> int:
    row = await fetch_one(tx, _SQL[query], params)
    assert row is not None
    return int(row[0])
