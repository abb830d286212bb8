"""The queue of conversions against what must always hold: sell, send, die, wake, wait, recover, cancel, requeue.

Hypothesis plays shops, workers and operators in any order on a real database, and moves its clock. The providers know
every order id again and never forget, so that their own record says what was taken, and how often it came. After each
step all that the database holds is looked at.

`make soak` plays much longer and different games each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.deliver.queue_model import CRASHES, LEASE, MOODS, RETRIES, Knowing, World, opened
from tests.proof.workers import LONG
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.queue import BatchRequest, CallBatch, CallResult
from weighbridge.engine import recover
from weighbridge.model.delivery import Outcome
from weighbridge.postgres import roles

PLAY = settings(
    max_examples=600 if LONG else 20,
    stateful_step_count=60 if LONG else 20,
    derandomize=not LONG,  # the same games in every run
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink) if LONG else (Phase.generate,),  # to shrink a game takes minutes
    suppress_health_check=list(HealthCheck),
)
PAUSES = (0.1, 3, 7, 45, 60 * 24 * 3)  # minutes
Change = Literal["cancel", "confirm", "alter"]
MOVES = {
    *(("QUEUED", "PROCESSING"), ("QUEUED", "FAILED"), ("RETRY", "PROCESSING"), ("RETRY", "FAILED")),
    *(("PROCESSING", "COMPLETED"), ("PROCESSING", "RETRY"), ("PROCESSING", "FAILED"), ("FAILED", "QUEUED")),
}


class Queue(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.clean()
        self.google, self.meta = Knowing(), Knowing("meta_capi", 3, ("fbclid",), timedelta(days=7), "event")
        self.providers = {each.name: each for each in (self.google, self.meta)}
        self.ctx = world.context(dict(self.providers))
        self.workspace = uuid4()
        self.sites: dict[UUID, list[str]] = {}
        self.sales: dict[UUID, UUID] = {}  # and their sites
        self.claims: Counter[tuple[str, str]] = Counter()  # by provider and order, those of workers that died
        self.silent: dict[
            UUID, tuple[CallBatch, list[Outcome]]
        ] = {}  # calls that nobody settled, and what came back
        self.unheard: set[tuple[str, str]] = set()  # what a provider took in a call whose answer was lost
        self.completed: dict[tuple[str, str], str] = {}

    # Shops --------------------------------------------------------------------------------------------------

    @initialize(count=st.integers(1, 4))
    def open_shops(self, count: int) -> None:
        for providers in (["google_ads"], ["google_ads", "meta_capi"]):
            [(site,)] = self.world.query(
                "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, %s, %s) RETURNING id",
                (self.workspace, str(uuid4()), providers),
            )
            self.sites[site] = providers
            for provider in providers:
                self._give_credentials(site, provider)
            self.sell(site, count, fresh=True)

    @precondition(lambda self: len(self.sales) < 40)
    @rule(data=st.data(), count=st.integers(1, 5), fresh=st.booleans())
    def sell_more(self, data: st.DataObject, count: int, fresh: bool) -> None:
        self.sell(data.draw(st.sampled_from(list(self.sites))), count, fresh=fresh)

    def sell(self, site: UUID, count: int, *, fresh: bool) -> None:
        """What is not fresh is about to expire at Meta, in some two days."""
        for _ in range(count):
            [(sale,)] = self.world.query(
                "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, value, currency, gclid, fbclid)"
                " VALUES (%s, %s, %s, weighbridge.now() - %s, 10, 'EUR', 'g', 'f') RETURNING id",
                (self.workspace, site, f"order-{len(self.sales)}", timedelta(hours=1 if fresh else 120)),
            )
            self.sales[sale] = site

    @rule(data=st.data(), change=st.sampled_from(["cancel", "confirm", "alter"]))
    def change_a_sale(self, data: st.DataObject, change: Change) -> None:
        self._change(data.draw(st.sampled_from(list(self.sales))), change)

    def _change(self, sale: UUID, change: Change) -> None:
        """What waits is what the sale is now, and waits only if it is confirmed."""
        to = {
            "cancel": "status = 'CANCELED'",
            "confirm": "status = 'CONFIRMED'",
            "alter": "value = value + 1",
        }
        self.world.query(f"UPDATE sales SET {to[change]} WHERE id = %s", (sale,))
        assert not self.world.query(
            "SELECT FROM offline_conversion_queue q JOIN sales s ON s.id = q.sale_id WHERE q.sale_id = %s AND ("
            " q.status IN ('QUEUED', 'RETRY') AND (s.status <> 'CONFIRMED' OR q.value <> s.value)"
            " OR q.provider_error_code = 'SALE_CANCELED' AND s.status = 'CONFIRMED')",
            (sale,),
        )

    @rule(pause=st.sampled_from(PAUSES))
    def time_passes(self, pause: float) -> None:
        self.world.query("UPDATE weighbridge.clock SET shift = shift + %s", (timedelta(minutes=pause),))

    # Workers ------------------------------------------------------------------------------------------------

    @rule(
        google=st.sampled_from(MOODS),
        meta=st.sampled_from(MOODS),
        limit=st.sampled_from([2, 50]),
        workers=st.integers(1, 2),
    )
    def work(self, google: str, meta: str, limit: int, workers: int) -> None:
        self.google.mood, self.meta.mood = google, meta
        sent = {name: len(provider.batches) for name, provider in self.providers.items()}
        sales = {
            order: (status, value)
            for order, status, value in self.world.query("SELECT order_id, status, value FROM sales")
        }

        async def at_once() -> list[Any]:
            return await asyncio.gather(*(deliver(self.ctx, f"worker {n}", limit) for n in range(workers)))

        tallies = self.world.run(at_once())
        assert all(tally.processed == tally.completed + tally.failed + tally.retry for tally in tallies)
        assert sum(tally.processed for tally in tallies) <= limit * workers
        for name, provider in self.providers.items():
            for batch in provider.batches[sent[name] :]:
                orders = [each.order_id for each in batch.conversions]
                assert len(orders) == len(set(orders)) <= provider.max_batch
                assert {each.order_id: ("CONFIRMED", each.value) for each in batch.conversions} == {
                    order: sales[order] for order in orders
                }, "what is sent is what the sale is now"
                if provider.mood == "cut":
                    self.unheard |= {(name, order) for order in orders}

    @rule(
        data=st.data(),
        taken=st.booleans(),
        limit=st.sampled_from([1, 4]),
        meanwhile=st.sampled_from([None, None, "cancel", "alter"]),
        then=st.sampled_from(
            ["", "", "wake", "recover", "recover wake", "recover work", "recover work wake"]
        ),
    )
    def die_in_the_middle(
        self, data: st.DataObject, taken: bool, limit: int, meanwhile: Change | None, then: str
    ) -> None:
        """A worker that claims, calls, and is not heard of for a while: its provider may have taken it all."""
        groups = [(site, name) for site, names in self.sites.items() for name in names]
        wishes = [
            BatchRequest(GroupKey(*group), limit)
            for group in data.draw(st.sampled_from([groups, groups[:1], groups[2:]]))
        ]
        found = self._tx(lambda tx: delivery_queue.claim(tx, "dead", LEASE, wishes))
        for claimed in self.world.run(found.read()):
            if not claimed.conversions:
                continue
            orders = [each.order_id for each in claimed.conversions]
            self.claims.update((claimed.key.provider_key, order) for order in orders)
            outcomes = [Outcome.retry(None, "It did not get through.")] * len(orders)
            if taken:
                known = self.providers[claimed.key.provider_key].take(orders)
                outcomes = [Outcome.completed("late", duplicate=had) for had in known]
                self.unheard |= {(claimed.key.provider_key, order) for order in orders}
            self.silent[claimed.id] = (claimed, outcomes)
            if meanwhile:
                self._change(claimed.conversions[0].id, meanwhile)
        if "recover" in then:
            self.recover(late=True, by_age=taken)
        if "work" in then:
            self.work("well", "well", 50, 1)
        if "wake" in then and self.silent:
            self._wake(next(reversed(self.silent)))

    @precondition(lambda self: self.silent)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        self._wake(data.draw(st.sampled_from(list(self.silent))))

    def _wake(self, batch: UUID) -> None:
        """It was only frozen. If it still has its lease it settles; if not, it changes nothing."""
        claimed, outcomes = self.silent.pop(batch)
        live = self.world.query(
            "SELECT FROM weighbridge.attempts WHERE lease_token = %s AND closed_at IS NULL", (claimed.id,)
        )
        before = self._everything()
        done = all(each.request_id for each in outcomes)
        call = CallResult(claimed, outcomes, success=done, breaker_failure=not done)
        settled = self._tx(lambda tx: delivery_queue.settle(tx, [call], self.ctx.outbound.retries))
        assert set(settled) == ({claimed.id} if live else set())
        assert live or self._everything() == before

    @rule(late=st.booleans(), by_age=st.booleans())
    def recover(self, late: bool, by_age: bool) -> None:
        """Afterwards nothing is in nobody's hands."""
        if late:
            self.time_passes(16)
        if by_age:
            self._tx(lambda tx: delivery_queue.recover_stuck(tx, 15))
        else:
            self._tx(lambda tx: recover.recover(tx, CRASHES), None)
        left = (
            "q.claimed_at < weighbridge.now() - INTERVAL '15 minutes'"
            if by_age
            else "a.lease_until < weighbridge.now()"
        )
        assert not self.world.query(
            "SELECT FROM offline_conversion_queue q LEFT JOIN weighbridge.attempts a ON a.lease_token = q.batch_id"
            f" WHERE q.status = 'PROCESSING' AND {left}"
        )

    # Operators ----------------------------------------------------------------------------------------------

    @rule()
    def watch(self) -> None:
        self._tx(lambda tx: delivery_queue.watch(tx, timedelta(hours=24), 1000))
        assert not self.world.query(
            "SELECT FROM offline_conversion_queue WHERE status IN ('QUEUED', 'RETRY')"
            " AND expires_at < weighbridge.now()"
        )

    @rule(data=st.data())
    def replace_credentials(self, data: st.DataObject) -> None:
        site = data.draw(st.sampled_from(list(self.sites)))
        for provider in self.sites[site]:
            self._give_credentials(site, provider)

    @rule(category=st.sampled_from(["AUTH", "TRANSIENT", "VALIDATION", None]))
    def requeue(self, category: str | None) -> None:
        self.world.query(
            "SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, %s, NULL, 'operator')",
            (self.workspace, category),
        )

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        site = data.draw(st.sampled_from(list(self.sites)))
        for provider in self.sites[site]:
            self.world.query("SELECT weighbridge.reset_provider(%s, %s, 'operator')", (site, provider))

    # What must hold after each step -------------------------------------------------------------------------

    @invariant()
    def every_sale_has_one_row_for_each_provider(self) -> None:
        rows = Counter(self.world.query("SELECT sale_id, provider_key FROM offline_conversion_queue"))
        assert rows == Counter((sale, name) for sale, site in self.sales.items() for name in self.sites[site])

    @invariant()
    def only_the_moves_there_are_happened(self) -> None:
        seen = {(before, after) for _, before, after in self.world.query("DELETE FROM moved RETURNING *")}
        assert seen <= MOVES, seen - MOVES

    @invariant()
    def what_is_completed_is_there_and_stays_so(self) -> None:
        rows = self.world.query(
            "SELECT provider_key, order_id, duplicate, to_jsonb(q)::text FROM offline_conversion_queue q"
            " WHERE status = 'COMPLETED'"
        )
        for provider, order, duplicate, whole in rows:
            assert order in self.providers[provider].has, f"{provider} does not have {order}"
            assert not duplicate or self.providers[provider].came[order] > 1
            assert self.completed.setdefault((provider, order), whole) == whole
        done = {(provider, order) for provider, order, *_ in rows}
        assert self.completed.keys() == done
        has = {(name, order) for name, provider in self.providers.items() for order in provider.has}
        assert has - done <= self.unheard, "a provider has it, said so, and it is not completed"

    @invariant()
    def what_failed_says_why(self) -> None:
        assert not self.world.query(
            "SELECT FROM offline_conversion_queue WHERE status IN ('FAILED', 'RETRY') AND last_error IS NULL"
            " OR status = 'FAILED' AND provider_error_category IS NULL"
        )

    @invariant()
    def rows_in_a_call_have_a_live_attempt_and_nothing_else_has(self) -> None:
        held = {batch for (batch,) in self.world.query(
            "SELECT DISTINCT batch_id FROM offline_conversion_queue WHERE status = 'PROCESSING'")}  # fmt: skip
        live = {token for (token,) in self.world.query(
            "SELECT lease_token FROM weighbridge.attempts WHERE closed_at IS NULL")}  # fmt: skip
        assert held == live
        assert live <= self.silent.keys(), "somebody who is not there has it"

    @invariant()
    def the_ledger_accounts_for_every_row_of_every_call(self) -> None:
        ledger = self.world.query(
            "SELECT s.batch_id, s.claimed_count, f.completed_count + f.failed_count + f.retry_count,"
            " a.closed_at IS NULL FROM provider_upload_attempts s LEFT JOIN provider_upload_attempts f"
            " ON f.batch_id = s.batch_id AND f.phase = 'FINISHED'"
            " LEFT JOIN weighbridge.attempts a ON a.lease_token = s.batch_id WHERE s.phase = 'STARTED'"
        )
        for batch, started, finished, live in ledger:
            assert finished == (None if live else started), f"{batch}: {started} started, {finished} finished"
        [(finished,)] = self.world.query(
            "SELECT count(*) FROM provider_upload_attempts WHERE phase = 'FINISHED'"
        )
        assert finished == sum(not live for *_, live in ledger)

    @invariant()
    def attempts_are_counted(self) -> None:
        """Claims are calls, but for those that found no slot; these stand in the ledger."""
        sent = Counter(self.claims)
        for name, provider in self.providers.items():
            sent.update((name, each.order_id) for batch in provider.batches for each in batch.conversions)
        rows = self.world.query(
            "SELECT provider_key, order_id, attempt_count, retry_count, crashes, status FROM offline_conversion_queue"
        )
        for name, order, attempts, retries, crashes, status in rows:
            assert attempts >= sent[name, order]
            assert retries <= RETRIES + 1
            assert retries <= attempts
            assert crashes <= attempts
            assert status in ("QUEUED", "FAILED") or attempts > 0
        [(without,)] = self.world.query(
            "SELECT coalesce(sum(retry_count), 0) FROM provider_upload_attempts WHERE error_code = 'CONCURRENCY_LIMIT'"
        )
        assert sum(attempts for _, _, attempts, *_ in rows) == sent.total() + without

    @invariant()
    def the_counters_agree_with_the_ledger(self) -> None:
        [(counted,)] = self.world.query(
            "SELECT ARRAY[sum(attempts_total), sum(completed_total), sum(retry_total)] FROM provider_upload_metrics"
        )
        [(ledger,)] = self.world.query(
            "SELECT ARRAY[count(*), sum(completed_count), sum(retry_count)] FROM provider_upload_attempts"
            " WHERE phase = 'FINISHED'"
        )
        assert [int(n or 0) for n in counted] == [int(n or 0) for n in ledger]

    def teardown(self) -> None:
        """The end of a game: everybody is well again, and everything that can arrive does."""
        if sys.exc_info()[0] is not None:
            return
        self.silent.clear()
        waiting = "SELECT FROM offline_conversion_queue WHERE status NOT IN ('COMPLETED', 'FAILED') LIMIT 1"
        for _ in range(12):
            if not self.world.query(waiting):
                break
            self.time_passes(60)
            self._tx(lambda tx: recover.recover(tx, CRASHES), None)
            for site, name in self.world.query(
                "SELECT site_id, provider_key FROM provider_credentials WHERE refused_at IS NOT NULL"
            ):
                self._give_credentials(site, name)
            self.work("well", "well", 50, 2)
        statuses = {status for (status,) in self.world.query("SELECT status FROM offline_conversion_queue")}
        assert statuses <= {"COMPLETED", "FAILED"}
        self.what_is_completed_is_there_and_stays_so()
        self.the_ledger_accounts_for_every_row_of_every_call()
        assert not self.world.query("SELECT FROM weighbridge.slots WHERE until > weighbridge.now()")

    # ------------------------------------------------------------------------------------------------------

    def _tx(self, write: Any, role: Any = roles.DELIVER) -> Any:
        async def inside() -> Any:
            async with self.world.app.db.tx(role) as tx:
                return await write(tx)

        return self.world.run(inside())

    def _give_credentials(self, site: UUID, provider: str) -> None:
        [(version,)] = self.world.query(
            "SELECT coalesce(max(version), 0) + 1 FROM provider_credentials WHERE site_id = %s AND provider_key = %s",
            (site, provider),
        )
        sealed = self.world.vault.seal(site, provider, {"secret": "x"}, version)
        self.world.query(
            "SELECT weighbridge.set_credentials(%s, %s, %s, %s, %s, %s, 'operator')",
            (site, provider, version, sealed.key_id, sealed.nonce, sealed.ciphertext),
        )

    def _everything(self) -> list[tuple[Any, ...]]:
        tables = ("offline_conversion_queue", "provider_upload_attempts", "provider_upload_metrics")
        tables += ("provider_health_state", "weighbridge.attempts", "weighbridge.alerts")
        return [
            row
            for table in tables
            for row in self.world.query(f"SELECT to_jsonb(t)::text, xmin::text FROM {table} t ORDER BY 1")
        ]


def test_the_queue_keeps_its_promises_whatever_happens(database_url: str, home: Path) -> None:
    with opened(database_url, home) as world:
        run_state_machine_as_test(lambda: Queue(world), settings=PLAY)
