"""Claims the batches of a run's plan ahead of their calls, as far as the in-flight limits allow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from time import monotonic

import structlog

from weighbridge.delivery import credential_queries, queue
from weighbridge.delivery.context import Context, Outbound, unsealed
from weighbridge.delivery.credential_queries import SealedCredentials
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.queue import BatchRequest, CallBatch, DueGroup, Settled
from weighbridge.delivery.run_counts import RunCounts
from weighbridge.delivery.vault import VaultError
from weighbridge.postgres import roles

log = structlog.get_logger()


@dataclass(frozen=True, eq=False)
class Prefetched:
    """A claimed batch that waits for its call."""

    batch: CallBatch
    credentials: Credentials
    version: int  # of the credentials
    leased_at: float  # monotonic

    @property
    def key(self) -> GroupKey:
        return self.batch.key


class Prefetcher:
    def __init__(
        self, ctx: Context, outbound: Outbound, worker: str, counts: RunCounts, in_flight: InFlight
    ) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._worker = worker
        self._counts = counts
        self._in_flight = in_flight
        self._unclaimed: dict[GroupKey, int] = {}  # rows of each share
        self._groups: dict[str, deque[GroupKey]] = {}  # by provider, in their turn
        # Groups whose credentials were refused, and providers that asked for a pause: batches of a claim that began
        # before this moment are not sent.
        self._blocked_before: dict[GroupKey | str, float] = {}
        self._claim_lock = asyncio.Lock()
        self.found_rows = False  # by any claim of this run

    def plan(self, shares: Sequence[tuple[DueGroup, int]]) -> None:
        for group, share in shares:
            self._unclaimed[group.key] = share
            self._groups.setdefault(group.provider_key, deque()).append(group.key)

    @property
    def has_plan(self) -> bool:
        """A part of the plan is not claimed yet."""
        return any(self._groups.values())

    def drop_plan(self) -> None:
        """Claim nothing more."""
        self._groups.clear()

    def block(self, target: GroupKey | str) -> None:
        """Claim nothing of this group or provider until `block_written`."""
        self._blocked_before[target] = inf

    def block_written(self, target: GroupKey | str) -> None:
        """Claims that begin from now on see it in the database."""
        self._blocked_before[target] = monotonic()

    def is_blocked(self, key: GroupKey, moment: float) -> bool:
        """A claim that began at `moment` may not have seen that its group or provider is blocked."""
        blocked = self._blocked_before
        return max(blocked.get(key, 0), blocked.get(key.provider_key, 0)) > moment

    def next_requests(self) -> list[BatchRequest]:
        """The next batches that the limits allow, each group in its turn."""
        requests: list[BatchRequest] = []
        limits = self._outbound.limits
        for provider_key, groups in self._groups.items():
            claimable = self._in_flight.claimable(provider_key, limits)
            for _ in range(len(groups)):
                if claimable <= 0:
                    break
                key = groups.popleft()
                if not self._unclaimed[key]:  # its credentials cannot be read, or it has no more rows
                    continue
                if key in self._in_flight.held.values():  # its calls cannot be settled now
                    continue
                if not self._in_flight.may_claim(key, limits) or self.is_blocked(key, monotonic()):
                    groups.append(key)
                    continue
                size = min(self._unclaimed[key], self._outbound.providers[provider_key].max_batch)
                requests.append(BatchRequest(key, size))
                self._unclaimed[key] -= size
                self._in_flight.add_batch(key)
                claimable -= 1
                if self._unclaimed[key]:
                    groups.append(key)
        return requests

    async def claim(self, requests: Sequence[BatchRequest]) -> list[Prefetched]:
        """Groups whose credentials cannot be read are skipped; a group without rows is not asked again."""
        claimed: list[CallBatch] = []
        try:
            async with AsyncExitStack() as until_commit, self._ctx.db.tx(roles.DELIVER) as tx:
                sealed = await credential_queries.by_group(tx, requests)
                opened = {key: self._unseal(each) for key, each in sealed.items()}
                readable = [each for each in requests if opened.get(each.key)]
                # One claim at a time until its commit: another would read past all rows that this one has locked.
                await until_commit.enter_async_context(self._claim_lock)
                # Before the claim: a worker that freezes right after it must not take its lease for fresh.
                leased_at = monotonic()
                found = await queue.claim(tx, self._worker, self._outbound.lease, readable)
            await asyncio.sleep(0)  # the next claim begins before these rows are read
            claimed = await found.read()
        finally:
            with_rows = {each.key for each in claimed if each.conversions}
            for key in {each.key for each in requests} - with_rows:
                self._unclaimed[key] = 0
                self._in_flight.remove_batch(key)
        self.found_rows = self.found_rows or bool(claimed)
        prefetched: list[Prefetched] = []
        for each in claimed:
            self._counts.add(Settled(0, each.expired, 0))
            credentials = opened[each.key]
            if each.conversions and credentials:
                prefetched.append(Prefetched(each, credentials, sealed[each.key].version, leased_at))
        return prefetched

    def _unseal(self, sealed: SealedCredentials) -> Credentials | None:
        try:
            return unsealed(self._outbound, sealed)
        except VaultError as error:
            known = (sealed.key, sealed.version)
            if known not in self._in_flight.unreadable:
                self._in_flight.unreadable.add(known)
                log.error("Credentials cannot be read", provider_key=sealed.provider_key, reason=str(error))
            self._counts.skipped["credentials_unreadable"] += 1
            return None
