"""The shares of one run → calls of their providers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

import structlog

from weighbridge.delivery import call as delivery_call
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.batcher import Gather
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.in_flight import AT_ONCE, Key, Room
from weighbridge.delivery.outbound import ROLE, unsealed
from weighbridge.delivery.providers.base import Batch, Credentials
from weighbridge.delivery.queue import Call, Claimed, Group, SealedCredentials, Settled, Wish
from weighbridge.delivery.settle import Tally, settle
from weighbridge.delivery.slots.base import Held, Place
from weighbridge.delivery.vault import VaultError
from weighbridge.observe import journal

log = structlog.get_logger()

TOGETHER = 0.005  # seconds for which one that has ended, or a slot that is free, waits for more of its kind
CLAIMS = 2  # at once: while the rows of one are read, the next ones are found
TURN = 0.5  # for which a run with nothing under way waits for others to make room


@dataclass(frozen=True, eq=False)
class _Ready:
    """A batch that waits for its call."""

    claimed: Claimed
    credentials: Credentials
    version: int
    began: float  # its lease

    @property
    def key(self) -> Key:
        return self.claimed.site_id, self.claimed.provider_key


@dataclass(frozen=True, eq=False)
class _Over:
    """The slot of a call that is over, until it is given back or another call of its group has it."""

    held: Held
    taken: float
    gone: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def key(self) -> Key:
        return self.held.place.site_id, self.held.place.provider_key


class Run:
    """The shares of one run, as calls: as many at once as the limits allow, those of a group in their order.

    Batches are claimed, get their slots and are sent side by side: each of the three goes on when there is `news`.
    """

    def __init__(self, ctx: Context, outbound: Outbound, worker: str, tally: Tally, room: Room) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._worker = worker
        self._tally = tally
        self._left: dict[Key, int] = {}
        self._queues: dict[str, deque[Key]] = {}  # by provider, groups in their turn
        self._ready: dict[str, list[_Ready]] = {}  # by provider, in the order of their claims
        self._back: list[_Over] = []
        # When a provider had the first free slot for one that is ready; None: when `_back` had its first.
        self._since: dict[str | None, float] = {}
        self._claiming: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # of those that claim
        # Groups whose credentials were refused, and providers that asked for a pause: claims that began before this
        # moment may not have known of it.
        self._closed: dict[Key | str, float] = {}
        self._boarding: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._room = room
        self._news = asyncio.Event()
        self._found = False
        self._trouble: BaseException | None = None
        self._settle = Gather(self._settled, self._pause)

    async def through(self, plan: Sequence[tuple[Group, int]]) -> None:
        for group, share in plan:
            key = (group.site_id, group.provider_key)
            self._left[key] = share
            self._queues.setdefault(group.provider_key, deque()).append(key)
        self._room.news.add(self._news)
        try:
            until = monotonic() + TURN
            while self._go_on() or (any(self._queues.values()) and monotonic() < until):
                until = monotonic() + TURN if self._under_way() else until
                await self._told(until)
        finally:
            # Whatever went wrong here: what is claimed is seen through.
            self._queues.clear()
            while self._go_on():
                await self._told(None)
            self._room.news.discard(self._news)
            self._room.claims.pop(self._news, None)
        if self._trouble:
            raise self._trouble

    def _go_on(self) -> bool:
        """Begin what can begin; whether anything is under way."""
        self._news.clear()
        while len(self._claiming) < CLAIMS and (wishes := self._wishes()):
            self._claiming.add(self._begin(self._claim(wishes)))
            self._tell_of_the_end()
        if not self._boarding and ((batches := self._next()) or self._to_give_back()):
            for each in batches:
                self._ready[each.key[1]].remove(each)
                self._room.board(each.key)
            self._boarding = self._begin(self._board(batches))
        return self._under_way()

    def _under_way(self) -> bool:
        waiting = self._back or any(self._ready.values())
        return bool(self._claiming or self._boarding or self._calls or waiting)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if task in self._calls:
            self._calls.remove(task)
            if error:
                log.error("Delivery failed", exc_info=error)
        else:
            self._claiming.discard(task)
            self._boarding = None if task is self._boarding else self._boarding
            if error:
                self._trouble = self._trouble or error
                self._queues.clear()
        self._news.set()

    async def _told(self, until: float | None) -> None:
        """Wait for news; or for the moment when there is no more waiting for company."""
        moments = [until] if until is not None else []
        if not self._boarding:
            moments += [since + TOGETHER for since in self._since.values()]
        seconds = max(0, min(moments) - monotonic()) if moments else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _wishes(self) -> list[Wish]:
        """The next claims that there is room for. None while the ends of many calls wait to be written."""
        found: list[Wish] = []
        limits = self._outbound.limits
        for provider_key, queue in self._queues.items() if len(self._calls) < 2 * AT_ONCE else ():
            room = self._room.to_claim(provider_key, limits)
            for _ in range(len(queue)):
                if room <= 0:
                    break
                key = queue.popleft()
                if not self._left[key]:  # its credentials cannot be read, or it has no more
                    continue
                if not self._room.may_claim(key, limits) or self._closed_since(key, monotonic()):
                    queue.append(key)
                    continue
                size = min(self._left[key], self._outbound.providers[provider_key].max_batch)
                found.append(Wish(*key, size))
                self._left[key] -= size
                self._room.claim(key)
                room -= 1
                if self._left[key]:
                    queue.append(key)
        return found

    async def _claim(self, wishes: Sequence[Wish]) -> None:
        """Groups whose credentials cannot be read are left as they are."""
        claimed: list[Claimed] = []
        try:
            async with AsyncExitStack() as turn, self._ctx.db.tx(ROLE) as tx:
                sealed = {
                    (c.site_id, c.provider_key): c for c in await delivery_queue.credentials(tx, wishes)
                }
                opened = {key: self._unsealed(each) for key, each in sealed.items()}
                wanted = [w for w in wishes if opened.get((w.site_id, w.provider_key))]
                # One at a time, until its commit: another would walk over all the rows that this one has locked.
                await turn.enter_async_context(self._turn)
                # Before the claim: a worker that freezes right after it must not take its lease for fresh.
                began = monotonic()
                found = await delivery_queue.claim(tx, self._worker, self._outbound.lease, wanted)
            await asyncio.sleep(0)  # the next one goes first
            claimed = await found.read()
        finally:
            # Those that found nothing, or may not be sent any more, take up no room.
            live = {(batch.site_id, batch.provider_key) for batch in claimed if batch.conversions}
            for key in {(wish.site_id, wish.provider_key) for wish in wishes} - live:
                self._left[key] = 0
                self._room.leave(key)
        for batch in claimed:
            self._tally.add(Settled(0, batch.expired, 0))
            key = (batch.site_id, batch.provider_key)
            credentials = opened[key]
            if batch.conversions and credentials:
                ready = _Ready(batch, credentials, sealed[key].version, began)
                if self._closed_since(key, began):
                    self._calls.add(self._begin(self._put_back(ready)))
                else:
                    self._ready.setdefault(batch.provider_key, []).append(ready)
        if claimed:
            self._found = True
            self._room.claims[self._news] = monotonic()
            self._tell_of_the_end()

    def _closed_since(self, key: Key, moment: float) -> bool:
        return max(self._closed.get(key, 0), self._closed.get(key[1], 0)) > moment

    def _tell_of_the_end(self) -> None:
        """The next run is planned while the last of this one is claimed. Not if this one has found nothing: the next
        would find the same, and the next."""
        if self._found and not any(self._queues.values()):
            self._room.claimed.set()
            self._room.claims.pop(self._news, None)

    def _unsealed(self, sealed: SealedCredentials) -> Credentials | None:
        try:
            return unsealed(self._outbound, sealed)
        except VaultError as error:
            known = (sealed.site_id, sealed.provider_key, sealed.version)
            if known not in self._room.unreadable:
                self._room.unreadable.add(known)
                log.error("Credentials cannot be read", provider_key=sealed.provider_key, reason=str(error))
            self._tally.skipped["credentials_unreadable"] += 1
            return None

    def _next(self) -> list[_Ready]:
        """Batches for which there are slots. Few of them wait a moment for more: a turn of its own costs what a call
        does."""
        found: list[_Ready] = []
        limits = self._outbound.limits
        most = limits.per_provider or AT_ONCE
        for provider_key, ready in self._ready.items():
            # Ours that are over are given back before new ones are taken.
            over = Counter(each.key for each in self._back if each.key[1] == provider_key)
            free = most - self._room.aboard[provider_key] + over.total()
            some: list[_Ready] = []
            for each in ready if free > 0 else ():
                if self._room.aboard_of[each.key] - over[each.key] < limits.per_site:
                    some.append(each)
                    over[each.key] -= 1
                if len(some) == free:
                    break
            together = 2 * free >= most or (bool(some) and self._waited(provider_key))
            if together:
                found += some
            if together or not some:
                self._since.pop(provider_key, None)
        return found

    def _to_give_back(self) -> bool:
        """Slots that nobody here takes over at once."""
        if not self._back:
            self._since.pop(None, None)
            return False
        return not (self._claiming or any(self._ready.values())) or self._waited(None)

    def _waited(self, provider_key: str | None) -> bool:
        now = monotonic()
        return now - self._since.setdefault(provider_key, now) >= TOGETHER

    async def _board(self, batches: Sequence[_Ready]) -> None:
        """Slots of calls that are over for slots of those that come."""
        back, self._back = self._back, []
        self._since.pop(None, None)
        others: list[_Ready] = []
        for each in batches:
            heir = next((over for over in back if over.key == each.key and self._lasts(over)), None)
            if heir is None:
                others.append(each)
            else:
                back.remove(heir)
                self._gone(heir)
                self._send(each, heir.held, heir.taken)
        if not (others or back):
            return
        now = monotonic()
        taken: Sequence[Held | None] = [None] * len(others)
        try:
            places = [Place(*each.key) for each in others]
            taken = await self._outbound.slots.acquire(places, [over.held for over in back])
        finally:  # whatever became of them: nothing waits for them for ever
            for over in back:
                self._gone(over)
            for each, held in zip(others, taken, strict=True):
                if held is None:
                    self._room.disembark(each.key)
                self._send(each, held, now)

    def _lasts(self, over: _Over) -> bool:
        """A slot and a call have leases of the same length, of which a call uses three quarters at most."""
        return monotonic() - over.taken < 0.1 * self._outbound.limits.ttl.total_seconds()

    def _gone(self, over: _Over) -> None:
        self._room.disembark(over.key)
        if not over.gone.done():
            over.gone.set_result(None)

    def _send(self, ready: _Ready, held: Held | None, taken: float) -> None:
        self._calls.add(self._begin(self._call(ready, held, taken)))

    async def _call(self, ready: _Ready, held: Held | None, taken: float) -> None:
        """One call of one group, whatever comes of it. Its end is written with those of others."""
        claimed = ready.claimed
        well = False
        closes: Key | str | None = None
        barred: list[_Ready] = []
        try:
            if held is None:
                call = delivery_call.no_slot(claimed, self._outbound)
            else:
                batch = Batch(
                    claimed.site_id, claimed.conversions, ready.credentials, claimed.now, claimed.id
                )
                try:
                    call = await delivery_call.of(self._outbound, claimed, batch, ready.version, ready.began)
                    well = call.success
                    self._room.over(ready.key, well=well, seconds=call.duration_ms / 1000)
                    closes = delivery_call.closes(call)
                    if closes:
                        self._closed[closes] = inf  # until that is written
                    barred = self._barred(call)
                finally:
                    await self._give_back(_Over(held, taken))
            settled = await self._settle(call)
        finally:
            # What stands in the way of its group, or of all of them, is written before more is claimed.
            if closes:
                self._closed[closes] = monotonic()
            if not well:
                self._room.leave(ready.key)
            for each in barred:
                self._calls.add(self._begin(self._put_back(each)))
        self._told_of(call, settled)
        if settled:
            self._tally.calls += held is not None
            self._tally.full += held is None

    def _barred(self, call: Call) -> list[_Ready]:
        """What was claimed ahead of a call and would not be claimed after it. It waits no longer."""
        ready = self._ready.get(call.claimed.provider_key, [])
        key = (call.claimed.site_id, call.claimed.provider_key)
        found = [
            each for each in ready if call.pause or ((call.refused or call.transient) and each.key == key)
        ]
        for each in found:
            ready.remove(each)
        return found

    async def _put_back(self, ready: _Ready) -> None:
        """Unsent."""
        call = delivery_call.held_back(ready.claimed)
        try:
            settled = await self._settle(call)
        finally:
            self._room.leave(ready.key)
        self._told_of(call, settled)

    def _told_of(self, call: Call, settled: Settled | None) -> None:
        claimed = call.claimed
        if settled is None:
            log.warning("Delivery not settled", batch_id=str(claimed.id))
            return
        self._tally.add(settled)
        verdicts = {"COMPLETED": settled.completed, "FAILED": settled.failed, "RETRY": settled.retry}
        journal.called(
            claimed.provider_key,
            claimed.site_id,
            claimed.id,
            {verdict: count for verdict, count in verdicts.items() if count},
            call.duration_ms,
            call.error_code,
        )

    async def _give_back(self, over: _Over) -> None:
        """With the next slots that are taken; or, if none are, after a moment."""
        self._back.append(over)
        self._news.set()
        await over.gone

    def _pause(self) -> float:
        """With many calls under way, what one writes can wait a moment for the others."""
        return TOGETHER if len(self._calls) >= 4 else 0

    async def _settled(self, calls: Sequence[Call]) -> list[Settled | None]:
        return await settle(self._ctx, self._outbound, calls)
