"""Last step: conversions that wait → their providers, with proof (S4).

One run lists the groups that wait, gives each its share, and sends the shares side by side. Nothing of one group waits
for another, and no transaction is open while a provider is called.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

import structlog

from weighbridge.db import deliveries
from weighbridge.db.deliveries import Call, Claimed, Group, SealedCredentials, Settled, Wish
from weighbridge.model.errors import ConfigError
from weighbridge.model.shares import in_turn, shares
from weighbridge.observe import journal
from weighbridge.providers.base import Batch, Credentials
from weighbridge.providers.vault import Sealed, VaultError
from weighbridge.slots.base import Held, Place
from weighbridge.steps import verdict
from weighbridge.steps.context import Context, Outbound
from weighbridge.steps.gather import Gather
from weighbridge.steps.settle import settle

log = structlog.get_logger()

ROLE = "weighbridge_deliver"
COUNTED = 10_000  # rows of a group that its share is weighed by; groups that are longer weigh the same
AT_ONCE = 32  # calls under way
TOGETHER = 0.005  # seconds in which the ends of calls gather
PATIENCE = 0.05  # and for which a claim waits to be a larger one
TURN = 0.5  # and for which a run with nothing under way waits for others to make room


@dataclass
class Tally:
    """What one run did. The first four are S4's."""

    processed: int = 0
    completed: int = 0
    failed: int = 0
    retry: int = 0
    calls: int = 0
    full: int = 0  # batches that found no free slot: nobody was called for them
    parked: int = 0  # rows of groups whose breaker is open
    skipped: Counter[str] = field(default_factory=Counter)  # groups, by what stands in their way

    def add(self, settled: Settled) -> None:
        self.processed += settled.completed + settled.failed + settled.retry
        self.completed += settled.completed
        self.failed += settled.failed
        self.retry += settled.retry


@dataclass
class Room:
    """What the runs of one process have under way, so that none stands in another's way: calls that hold a slot, or
    are about to."""

    of_provider: Counter[str] = field(default_factory=Counter)
    of_group: Counter[tuple[UUID, str]] = field(default_factory=Counter)
    news: set[asyncio.Event] = field(default_factory=set)  # of each run: there is room again
    claimed: asyncio.Event = field(default_factory=asyncio.Event)  # a run has claimed all of its share
    claims: dict[asyncio.Event, float] = field(default_factory=dict)  # when each run claimed last

    def busy(self) -> int:
        """Runs that claim one batch after another. More of them would only claim fewer groups at a time."""
        return sum(monotonic() - last < 1 for last in self.claims.values())

    def leave(self, site_id: UUID, provider_key: str) -> None:
        self.of_group[site_id, provider_key] -= 1
        self.of_provider[provider_key] -= 1
        for news in self.news:
            news.set()


async def deliver(ctx: Context, worker: str, limit: int, room: Room | None = None) -> Tally:
    """Send at most `limit` conversions, and see every call through. Any number may do this at once.

    Runs that share their `room` leave to each other what the other is at.
    """
    outbound = outbound_of(ctx)
    tally = Tally()
    async with ctx.db.tx(ROLE) as tx:
        waiting = await deliveries.groups(tx, COUNTED)
    closed, probed = await _sort_out(ctx, outbound, waiting, limit, tally)
    plan = [*probed, *shares(closed, limit - sum(share for _, share in probed))]
    await _Run(ctx, outbound, worker, tally, room or Room()).through(plan)
    return tally


def outbound_of(ctx: Context) -> Outbound:
    if ctx.outbound is None:
        raise ConfigError(
            "Nothing can be delivered without the key to the credentials. Set WEIGHBRIDGE_VAULT_KEY; "
            "`weighbridge vault key` makes one."
        )
    return ctx.outbound


def unsealed(outbound: Outbound, found: SealedCredentials) -> Credentials:
    """Raises VaultError."""
    sealed = Sealed(found.key_id, found.nonce, found.ciphertext, found.version)
    return outbound.vault.unseal(found.site_id, found.provider_key, sealed)


async def _sort_out(
    ctx: Context, outbound: Outbound, waiting: Sequence[Group], limit: int, tally: Tally
) -> tuple[list[Group], list[tuple[Group, int]]]:
    """Groups that may be sent to, and those that are probed, with how many rows. Open ones are parked."""
    closed: list[Group] = []
    due: list[Group] = []
    open_groups: list[Group] = []
    for group in waiting:
        reason = in_the_way(group, outbound)
        if reason:
            tally.skipped[reason] += 1
        elif group.state == "CLOSED":
            closed.append(group)
        elif group.probe_due:
            due.append(group)
        else:
            tally.skipped["circuit_open"] += 1
            open_groups.append(group)
    probed: list[tuple[Group, int]] = []
    # However many are broken, those that are well have their share.
    left = (limit + 1) // 2 if closed else limit
    for group in in_turn(due):
        if left <= 0:
            break
        async with ctx.db.tx(ROLE) as tx:
            rows = await deliveries.begin_probe(tx, group, outbound.lease)
        if rows is None:
            tally.skipped["being_probed"] += 1
        else:
            probed.append((group, min(rows, group.queued_count, left)))
            left -= probed[-1][1]
    if open_groups:
        async with ctx.db.tx(ROLE) as tx:
            tally.parked = await deliveries.park(tx, open_groups, limit)
    return closed, probed


def in_the_way(group: Group, outbound: Outbound) -> str | None:
    if group.provider_key not in outbound.providers:
        return "unknown_provider"  # another version's, or another machine's: rows wait for one that knows it
    if group.unused:
        return "not_in_use"
    if group.key_id is None:
        return "no_credentials"
    if group.key_id not in outbound.vault.key_ids:
        return "credentials_unreadable"
    if group.refused:
        return "credentials_refused"
    if group.paused:
        return "provider_paused"
    return None


class _Run:
    """The shares of one run, as calls: as many at once as the limits allow, those of a group in their order."""

    def __init__(self, ctx: Context, outbound: Outbound, worker: str, tally: Tally, room: Room) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._worker = worker
        self._tally = tally
        self._left: dict[tuple[UUID, str], int] = {}
        self._queues: dict[str, deque[tuple[UUID, str]]] = {}  # by provider, groups in their turn
        self._calls: set[asyncio.Task[None]] = set()
        self._room = room
        self._news = asyncio.Event()  # there is room again
        self._release = Gather(self._released, self._pause)
        self._settle = Gather(self._settled, self._pause)

    async def through(self, plan: Sequence[tuple[Group, int]]) -> None:
        for group, share in plan:
            key = (group.site_id, group.provider_key)
            self._left[key] = share
            self._queues.setdefault(group.provider_key, deque()).append(key)
        self._room.news.add(self._news)
        try:
            eager = False
            until = monotonic() + TURN
            while True:
                self._news.clear()
                if wishes := self._wishes(eager=eager):
                    await self._start(wishes)
                    until = monotonic() + TURN
                    self._room.claims[self._news] = monotonic()
                    if not any(self._queues.values()):
                        self._room.claimed.set()
                        self._room.claims.pop(self._news, None)
                elif self._calls:
                    eager = not await self._told_within(PATIENCE)
                elif not eager:
                    eager = True
                elif not any(self._queues.values()) or not await self._told_within(until - monotonic()):
                    return
        finally:
            self._room.news.discard(self._news)
            self._room.claims.pop(self._news, None)
            # Whatever went wrong here: calls that are under way are seen through.
            for ended in await asyncio.gather(*self._calls, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("Delivery failed", exc_info=ended)

    async def _told_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._news.wait()
        except TimeoutError:
            return False

    def _wishes(self, *, eager: bool) -> list[Wish]:
        """The next claims that there is room for. Unless `eager`, none until half of a provider's calls are free: fewer
        and larger claims."""
        found: list[Wish] = []
        for provider_key, queue in self._queues.items():
            room = min(self._free(provider_key, eager=eager), 2 * AT_ONCE - len(self._calls) - len(found))
            for _ in range(len(queue)):
                if room <= 0:
                    break
                key = queue.popleft()
                if not self._left[key]:  # its credentials cannot be read
                    continue
                if self._room.of_group[key] >= self._outbound.limits.per_site:
                    queue.append(key)
                    continue
                size = min(self._left[key], self._outbound.providers[provider_key].max_batch)
                found.append(Wish(*key, size))
                self._left[key] -= size
                self._room.of_group[key] += 1
                self._room.of_provider[provider_key] += 1
                room -= 1
                if self._left[key]:
                    queue.append(key)
        return found

    def _free(self, provider_key: str, *, eager: bool) -> int:
        most = self._outbound.limits.per_provider or AT_ONCE
        free = most - self._room.of_provider[provider_key]
        return free if eager or 2 * free >= most or len(self._queues[provider_key]) == 1 else 0

    async def _start(self, wishes: Sequence[Wish]) -> None:
        """Claim, take slots, and call; groups whose credentials cannot be read are left as they are."""
        calls = 0
        # Before the claim: a worker that freezes right after it must not take its lease for fresh.
        began = monotonic()
        try:
            async with self._ctx.db.tx(ROLE) as tx:
                sealed = {(c.site_id, c.provider_key): c for c in await deliveries.credentials(tx, wishes)}
                opened = {key: self._unsealed(each) for key, each in sealed.items()}
                wanted = [w for w in wishes if opened.get((w.site_id, w.provider_key))]
                claimed = (
                    await deliveries.claim(tx, self._worker, self._outbound.lease, wanted) if wanted else []
                )
            for batch in claimed:
                self._tally.add(Settled(0, batch.expired, 0))
            claimed = [batch for batch in claimed if batch.conversions]
            places = [Place(batch.site_id, batch.provider_key) for batch in claimed]
            for batch, held in zip(claimed, await self._outbound.slots.acquire(places), strict=True):
                key = (batch.site_id, batch.provider_key)
                credentials = opened[key]
                assert credentials is not None
                call = self._call(batch, credentials, sealed[key].version, held, began)
                task = asyncio.create_task(call)
                self._calls.add(task)
                task.add_done_callback(self._ended)
                calls += 1
        finally:
            if calls < len(wishes):  # those that found nothing, or may not be sent any more, take up no room
                called = {(batch.site_id, batch.provider_key) for batch in claimed} if calls else set()
                for wish in wishes:
                    if (wish.site_id, wish.provider_key) not in called:
                        self._left[wish.site_id, wish.provider_key] = 0
                        self._room.leave(wish.site_id, wish.provider_key)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._news.set()

    def _unsealed(self, sealed: SealedCredentials) -> Credentials | None:
        try:
            return unsealed(self._outbound, sealed)
        except VaultError as error:
            log.error("Credentials cannot be read", provider_key=sealed.provider_key, reason=str(error))
            self._tally.skipped["credentials_unreadable"] += 1
            self._left[sealed.site_id, sealed.provider_key] = 0
            return None

    async def _call(
        self, claimed: Claimed, credentials: Credentials, version: int, held: Held | None, began: float
    ) -> None:
        """One call of one group, whatever comes of it. Its end is written with those of others."""
        try:
            if held is None:
                call = verdict.no_slot(claimed, self._outbound)
            else:
                batch = Batch(claimed.site_id, claimed.conversions, credentials, claimed.now, claimed.id)
                call = await verdict.of(self._outbound, claimed, batch, version, began)
        finally:
            if held is not None:
                await self._release(held)
            self._room.leave(claimed.site_id, claimed.provider_key)
        settled = await self._settle(call)
        if settled is None:
            log.warning("Delivery not settled", batch_id=str(claimed.id))
        else:
            verdicts = {"COMPLETED": settled.completed, "FAILED": settled.failed, "RETRY": settled.retry}
            self._tally.calls += held is not None
            self._tally.full += held is None
            self._tally.add(settled)
            journal.called(
                claimed.provider_key,
                claimed.site_id,
                claimed.id,
                {verdict: count for verdict, count in verdicts.items() if count},
                call.duration_ms,
                call.error_code,
            )

    def _pause(self) -> float:
        """With many calls under way, what one writes can wait a moment for the others."""
        return TOGETHER if len(self._calls) >= 4 else 0

    async def _released(self, held: Sequence[Held]) -> list[None]:
        await self._outbound.slots.release(held)
        return [None] * len(held)

    async def _settled(self, calls: Sequence[Call]) -> list[Settled | None]:
        return await settle(self._ctx, self._outbound, calls)
