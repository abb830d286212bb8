"""The plan of one run → calls of its providers: prefetch, acquire slots, call, settle.

    prefetch.Prefetcher        claims batches ahead of their calls
    slot_batcher.SlotBatcher   releases the slots of ended calls and acquires those of the next, in one request
    provider_call              one call
    settle.SettlementBatcher   writes the results of many calls in one transaction

All stages run concurrently. The main loop starts each when something has `changed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import structlog

from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.in_flight import CALLS_AT_ONCE, LINGER, InFlight
from weighbridge.delivery.prefetch import Prefetched, Prefetcher
from weighbridge.delivery.provider_call import call_provider, no_slot, not_sent, target_to_block
from weighbridge.delivery.queue import BatchRequest, CallResult, DueGroup, Settled
from weighbridge.delivery.run_counts import RunCounts
from weighbridge.delivery.run_signals import Run
from weighbridge.delivery.settle import SettlementBatcher
from weighbridge.delivery.slot_batcher import HeldSlot, SlotBatcher, Slotted
from weighbridge.observe import journal

log = structlog.get_logger()

CLAIMS_AT_ONCE = 2  # while the rows of one claim are read, the next ones are found
IDLE = 0.5  # seconds for which a run with nothing in flight waits for other runs to leave it a slot


class Dispatcher:
    """Makes the calls of one plan: as many at once as the limits allow; the batches of a group in order."""

    def __init__(
        self, ctx: Context, outbound: Outbound, worker: str, counts: RunCounts, in_flight: InFlight
    ) -> None:
        self._outbound = outbound
        self._counts = counts
        self._in_flight = in_flight
        self._signals = in_flight.signals
        self._run = Run()
        self._prefetcher = Prefetcher(ctx, outbound, worker, counts, in_flight)
        self._slot_batcher = SlotBatcher(outbound, in_flight, self._run)
        self._settlements = SettlementBatcher(ctx, outbound)
        self._claims: set[asyncio.Task[None]] = set()
        self._exchange: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def run(self, plan: Sequence[tuple[DueGroup, int]]) -> None:
        """Returns when every call is settled or held. Then raises the first error of a claim or exchange, if any."""
        self._prefetcher.plan(plan)
        self._signals.runs.add(self._run)
        try:
            await self._dispatch()
        finally:
            # After any error: claimed batches are called or released, and settled.
            self._prefetcher.drop_plan()
            await self._dispatch()
            self._signals.runs.discard(self._run)
        if self._error:
            raise self._error

    async def _dispatch(self) -> None:
        """The main loop: until the plan is claimed and settled, or nothing was in flight for IDLE seconds."""
        give_up = monotonic() + IDLE
        while True:
            self._run.changed.clear()
            self._start_claims()
            self._start_exchange()
            if self._busy:
                give_up = monotonic() + IDLE
            elif not self._prefetcher.has_plan or monotonic() >= give_up:
                return
            await self._wait(give_up)

    @property
    def _busy(self) -> bool:
        return bool(self._claims or self._exchange or self._calls or self._slot_batcher.busy)

    async def _wait(self, until: float) -> None:
        """Wait until something has changed, or until an exchange is due."""
        due = None if self._exchange else self._slot_batcher.next_due
        seconds = max(0, (until if due is None else min(until, due)) - monotonic())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._run.changed.wait()

    # Claims

    def _start_claims(self) -> None:
        while self._may_claim and (requests := self._prefetcher.next_requests()):
            claim = asyncio.create_task(self._claim(requests))
            claim.add_done_callback(self._claim_ended)
            self._claims.add(claim)
            self._report_all_claimed()

    @property
    def _may_claim(self) -> bool:
        """Not while the results of many calls wait to be settled."""
        return len(self._claims) < CLAIMS_AT_ONCE and len(self._calls) < 2 * CALLS_AT_ONCE

    async def _claim(self, requests: Sequence[BatchRequest]) -> None:
        batches = await self._prefetcher.claim(requests)
        for prefetched in batches:
            if self._prefetcher.is_blocked(prefetched.key, prefetched.leased_at):
                self._release_unsent(prefetched)
            else:
                self._slot_batcher.add(prefetched)
        if batches:
            self._run.last_claim = monotonic()
        self._report_all_claimed()

    def _report_all_claimed(self) -> None:
        """The next run is planned while the last batches of this one are claimed. Not if this one has found no rows:
        the next run would find none either."""
        if self._prefetcher.found_rows and not self._prefetcher.has_plan:
            self._signals.all_claimed.set()
            self._run.last_claim = None

    def _claim_ended(self, claim: asyncio.Task[None]) -> None:
        self._claims.remove(claim)
        self._stage_ended(claim)

    # Slots

    def _start_exchange(self) -> None:
        if self._exchange is None:
            batches = self._slot_batcher.take_due(claiming=bool(self._claims))
            if batches is not None:
                self._exchange = asyncio.create_task(self._acquire_slots(batches))
                self._exchange.add_done_callback(self._exchange_ended)

    async def _acquire_slots(self, batches: Sequence[Prefetched]) -> None:
        """Start the call of each batch, with or without a slot."""
        passed_on = list(self._slot_batcher.pass_on(batches))
        for each in passed_on:
            self._start_call(each)
        served = {each.prefetched for each in passed_on}
        others = [each for each in batches if each not in served]
        try:
            slotted = await self._slot_batcher.exchange(others)
        except BaseException:
            for batch in others:
                self._start_call(Slotted(batch, None))
            raise
        for each in slotted:
            self._start_call(each)

    def _exchange_ended(self, exchange: asyncio.Task[None]) -> None:
        self._exchange = None
        self._stage_ended(exchange)

    def _stage_ended(self, stage: asyncio.Task[None]) -> None:
        """After an error the run claims nothing more, and ends with it."""
        if error := _error_of(stage):
            self._error = self._error or error
            self._prefetcher.drop_plan()
        self._run.changed.set()

    # Calls

    def _start_call(self, slotted: Slotted) -> None:
        self._add_call(asyncio.create_task(self._call_and_settle(slotted)))

    def _release_unsent(self, prefetched: Prefetched) -> None:
        self._add_call(asyncio.create_task(self._settle_unsent(prefetched)))

    def _add_call(self, call: asyncio.Task[None]) -> None:
        call.add_done_callback(self._call_ended)
        self._calls.add(call)

    async def _call_and_settle(self, slotted: Slotted) -> None:
        """One call of one group. Its result is settled together with those of others."""
        prefetched, slot = slotted.prefetched, slotted.slot
        succeeded = False
        to_block: GroupKey | str | None = None
        to_release: list[Prefetched] = []
        try:
            if slot is None:
                result = no_slot(prefetched.batch, self._outbound)
            else:
                result, to_release = await self._call(prefetched, slot)
                succeeded, to_block = result.success, target_to_block(result)
            settled = await self._settle(result)
        finally:
            # A blocked group or provider is written before more of it is claimed.
            if to_block:
                self._prefetcher.block_written(to_block)
            if not succeeded:
                self._in_flight.remove_batch(prefetched.key)
            for each in to_release:
                self._release_unsent(each)
        if settled:
            self._counts.calls += slot is not None
            self._counts.full += slot is None

    async def _call(self, prefetched: Prefetched, slot: HeldSlot) -> tuple[CallResult, list[Prefetched]]:
        """The result, and the batches to release because of it. Both take effect before the slot is free."""
        deadline = self._outbound.deadline(prefetched.leased_at)
        try:
            result = await call_provider(self._outbound, prefetched.batch, prefetched.credentials, deadline)
            seconds = result.duration_ms / 1000
            self._in_flight.call_ended(prefetched.key, succeeded=result.success, seconds=seconds)
            if to_block := target_to_block(result):
                self._prefetcher.block(to_block)
            return replace(result, credentials_version=prefetched.version), self._unsent_after(result)
        finally:
            await self._slot_batcher.release(slot)

    def _unsent_after(self, result: CallResult) -> list[Prefetched]:
        """Batches that wait for a slot and are released because this call failed: now they would not be claimed."""
        if result.pause:
            return self._slot_batcher.remove(result.batch.key.provider_key)
        if result.credentials_refused or result.breaker_failure:
            return self._slot_batcher.remove(result.batch.key)
        return []

    def _set_aside(self, call: asyncio.Task[None], key: GroupKey) -> None:
        """Its result cannot be written now. This run does not wait for it, and no run claims more of its group."""
        self._calls.discard(call)
        self._in_flight.held[call] = key
        self._run.changed.set()

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if error := _error_of(call):
            log.error("Delivery failed", exc_info=error)
        self._run.changed.set()

    # Settlements

    async def _settle_unsent(self, prefetched: Prefetched) -> None:
        try:
            await self._settle(not_sent(prefetched.batch))
        finally:
            self._in_flight.remove_batch(prefetched.key)

    async def _settle(self, result: CallResult) -> Settled | None:
        # With many calls in flight, the result of one waits a moment for others.
        linger = LINGER if len(self._calls) >= 4 else 0
        batch = result.batch
        call = asyncio.current_task()
        assert call is not None
        try:
            settled = await self._settlements.settle(
                result, linger=linger, on_held=lambda: self._set_aside(call, batch.key)
            )
        finally:
            self._in_flight.held.pop(call, None)
        if settled is None:
            log.warning("Delivery not settled", batch_id=str(batch.id))
            return None
        self._counts.add(settled)
        counts = {"COMPLETED": settled.completed, "FAILED": settled.failed, "RETRY": settled.retry}
        journal.called(
            batch.key.provider_key,
            batch.key.site_id,
            batch.id,
            {verdict: count for verdict, count in counts.items() if count},
            result.duration_ms,
            result.error_code,
        )
        return settled


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
