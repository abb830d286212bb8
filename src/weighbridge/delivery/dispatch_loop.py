"""The plan of one run → calls of its providers: prefetch, acquire slots, call, settle.

    prefetch.Prefetcher        claims batches ahead of their calls
    slot_exchange.SlotExchange passes slots from ended calls to the next ones
    provider_call              one call
    batcher.Batcher            settles the results of many calls in one transaction

All stages run concurrently. Each is resumed when something has `changed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import structlog

from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import CALLS_AT_ONCE, InFlight
from weighbridge.delivery.prefetch import Prefetched, Prefetcher
from weighbridge.delivery.provider_call import call_provider, closed_by, no_slot, not_sent
from weighbridge.delivery.queue import BatchRequest, CallResult, Group, Settled
from weighbridge.delivery.settle import RunCounts, settle
from weighbridge.delivery.settlement_batcher import Batcher
from weighbridge.delivery.slot_exchange import LINGER, SlotExchange, Slotted
from weighbridge.observe import journal

log = structlog.get_logger()

CLAIMS_AT_ONCE = 2  # while the rows of one claim are read, the next ones are found
IDLE = 0.5  # seconds for which a run with nothing in flight waits for other runs to leave it a slot


class Dispatcher:
    """Makes the calls of one plan: as many at once as the limits allow; the batches of a group in order."""

    def __init__(
        self, ctx: Context, outbound: Outbound, worker: str, tally: RunCounts, in_flight: InFlight
    ) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._tally = tally
        self._in_flight = in_flight
        self._signals = in_flight.signals
        self._changed = asyncio.Event()
        self._prefetcher = Prefetcher(ctx, outbound, worker, tally, in_flight)
        self._slot_exchange = SlotExchange(outbound, in_flight, self._changed)
        self._settle = Batcher(self._settle_all, self._linger)
        self._claims: set[asyncio.Task[None]] = set()
        self._exchange: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def run(self, plan: Sequence[tuple[Group, int]]) -> None:
        """Returns when every call has ended and is settled. Raises the first error of a claim after that."""
        self._prefetcher.plan(plan)
        self._signals.changed.add(self._changed)
        try:
            await self._claim_and_call()
        finally:
            # After any error: claimed batches are called or put back, and settled.
            self._prefetcher.drop_plan()
            await self._finish_calls()
            self._signals.changed.discard(self._changed)
            self._signals.last_claims.pop(self._changed, None)
        if self._error:
            raise self._error

    async def _claim_and_call(self) -> None:
        """Until the whole plan is claimed and settled, or nothing was in flight for IDLE seconds."""
        give_up = monotonic() + IDLE
        while True:
            self._start_stages()
            if self._busy:
                give_up = monotonic() + IDLE
            elif not self._prefetcher.has_plan or monotonic() >= give_up:
                return
            await self._wait(give_up)

    async def _finish_calls(self) -> None:
        self._start_stages()
        while self._busy:
            await self._wait(None)
            self._start_stages()

    def _start_stages(self) -> None:
        """Start every stage that can start."""
        self._changed.clear()
        while self._may_claim and (requests := self._prefetcher.next_requests()):
            self._claims.add(self._start(self._claim(requests)))
            self._report_all_claimed()
        if self._exchange is None:
            batches = self._slot_exchange.take_due(claiming=bool(self._claims))
            if batches is not None:
                self._exchange = self._start(self._acquire_slots(batches))

    @property
    def _may_claim(self) -> bool:
        """Not while the results of many calls wait to be settled."""
        return len(self._claims) < CLAIMS_AT_ONCE and len(self._calls) < 2 * CALLS_AT_ONCE

    @property
    def _busy(self) -> bool:
        return bool(self._claims or self._exchange or self._calls or self._slot_exchange.busy)

    async def _wait(self, until: float | None) -> None:
        """Wait until something has changed, or until a stage is due."""
        due = None if self._exchange else self._slot_exchange.next_due
        moments = [moment for moment in (until, due) if moment is not None]
        seconds = max(0, min(moments) - monotonic()) if moments else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _claim(self, requests: Sequence[BatchRequest]) -> None:
        batches = await self._prefetcher.claim(requests)
        for prefetched in batches:
            if self._prefetcher.is_closed(prefetched.key, prefetched.leased_at):
                self._put_back(prefetched)
            else:
                self._slot_exchange.add(prefetched)
        if batches:
            self._signals.last_claims[self._changed] = monotonic()
        self._report_all_claimed()

    def _report_all_claimed(self) -> None:
        """The next run is planned while the last batches of this one are claimed. Not if this one has found no rows:
        the next run would find none either."""
        if self._prefetcher.found_rows and not self._prefetcher.has_plan:
            self._signals.all_claimed.set()
            self._signals.last_claims.pop(self._changed, None)

    async def _acquire_slots(self, batches: Sequence[Prefetched]) -> None:
        passed_on = list(self._slot_exchange.pass_on(batches))
        for each in passed_on:
            self._start_call(each)
        served = {id(each.prefetched) for each in passed_on}
        others = [each for each in batches if id(each) not in served]
        try:
            slotted = await self._slot_exchange.exchange(others)
        except BaseException:
            for batch in others:
                self._start_call(Slotted(batch, None, monotonic()))
            raise
        for each in slotted:
            self._start_call(each)

    def _start_call(self, slotted: Slotted) -> None:
        self._calls.add(self._start(self._call_and_settle(slotted)))

    def _put_back(self, prefetched: Prefetched) -> None:
        self._calls.add(self._start(self._settle_unsent(prefetched)))

    async def _call_and_settle(self, slotted: Slotted) -> None:
        """One call of one group. Its result is settled together with those of others."""
        succeeded = False
        closed: GroupKey | str | None = None
        to_release: list[Prefetched] = []
        try:
            result, to_release = await self._call(slotted)
            succeeded, closed = result.success, closed_by(result)
            settled = await self._settle(result)
        finally:
            # A closed group or provider is written before more of it is claimed.
            if closed:
                self._prefetcher.close_written(closed)
            if not succeeded:
                self._in_flight.remove_batch(slotted.prefetched.key)
            for each in to_release:
                self._put_back(each)
        self._report(result, settled)
        if settled:
            self._tally.calls += slotted.slot is not None
            self._tally.full += slotted.slot is None

    async def _call(self, slotted: Slotted) -> tuple[CallResult, list[Prefetched]]:
        """Returns the result, and the batches to release because of it. Both take effect before the slot is free."""
        prefetched, slot = slotted.prefetched, slotted.slot
        if slot is None:
            return no_slot(prefetched.claimed, self._outbound), []
        try:
            result = await call_provider(self._outbound, prefetched)
            seconds = result.duration_ms / 1000
            self._in_flight.call_ended(prefetched.key, succeeded=result.success, seconds=seconds)
            if closed := closed_by(result):
                self._prefetcher.close(closed)
            return result, self._batches_to_release(result)
        finally:
            await self._slot_exchange.release(slot, slotted.acquired_at)

    def _batches_to_release(self, result: CallResult) -> list[Prefetched]:
        """Prefetched batches to release because this call failed: after it, they would not be claimed."""
        claimed = result.claimed
        if result.pause:
            return self._slot_exchange.take_out(claimed.provider_key, only=None)
        if result.credentials_refused or result.breaker_failure:
            return self._slot_exchange.take_out(claimed.provider_key, claimed.key)
        return []

    async def _settle_unsent(self, prefetched: Prefetched) -> None:
        result = not_sent(prefetched.claimed)
        try:
            settled = await self._settle(result)
        finally:
            self._in_flight.remove_batch(prefetched.key)
        self._report(result, settled)

    def _report(self, result: CallResult, settled: Settled | None) -> None:
        claimed = result.claimed
        if settled is None:
            log.warning("Delivery not settled", batch_id=str(claimed.id))
            return
        self._tally.add(settled)
        counts = {"COMPLETED": settled.completed, "FAILED": settled.failed, "RETRY": settled.retry}
        journal.called(
            claimed.provider_key,
            claimed.site_id,
            claimed.id,
            {verdict: count for verdict, count in counts.items() if count},
            result.duration_ms,
            result.error_code,
        )

    def _linger(self) -> float:
        """With many calls in flight, the result of one waits a moment for others."""
        return LINGER if len(self._calls) >= 4 else 0

    async def _settle_all(self, results: Sequence[CallResult]) -> list[Settled | None]:
        return await settle(self._ctx, self._outbound, results)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
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
            self._claims.discard(task)
            if task is self._exchange:
                self._exchange = None
            if error:
                self._error = self._error or error
                self._prefetcher.drop_plan()
        self._changed.set()
