"""A day of deliveries: sites sell, providers have their moods, Redis goes away, workers are killed; then we count.

Time is the database's and is moved on; Postgres, Redis, sockets, servers and processes are real. A seed decides who
sells what and which faults occur. What of it meets whom is decided by chance, as several workers are at it at
once: the end must be the same whatever happens on the way.

    python -m tests.deliver.day --sites 200 --conversions 100000 --seeds 5

plays longer days on a Postgres of its own, one per seed, from `--seed` on, and prints what became of each.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Any

import psycopg

from tests.deliver.final_checks import check_everything
from tests.deliver.participants import CANARY, PROVIDERS, Fakes, Participants, Site
from tests.deliver.worker_processes import WorkerProcesses, WorkerRequest
from tests.proof.workers import Moment, until
from tests.slots.redis_server import RedisServer
from weighbridge.app import App, open_app
from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.confirm import confirm
from weighbridge.delivery.deliver import deliver
from weighbridge.engine import recover
from weighbridge.observe import logs
from weighbridge.postgres import roles
from weighbridge.settings import read
from weighbridge.testing.fake_providers import Fault

ROUNDS = 48
ROUND = timedelta(minutes=30)
SPOILT = 6  # sites that begin with credentials that nobody takes
OUTAGE_503, OUTAGE_CLOSED, OUTAGE_REDIS = range(5, 11), range(14, 20), range(24, 30)
KILLS = (3, 13, 22, 36)
LAPSE = timedelta(seconds=2)  # of what a killed worker leaves in Redis, by the real clock
# What a row is refused with, and the code that it then fails with.
FATAL = {
    "google_ads": (("INVALID_GCLID",) * 2, ("INTERNAL_ERROR",) * 2, ("CLICK_NOT_FOUND",) * 2),
    "google_datamanager": (("INVALID_GCLID",) * 2,),
    "meta_capi": (("2804003", "100/2804003"),),
    "tiktok_events": (("ttclid", "40002"),),
    "webhook": (("422", "HTTP_422"),),
}


@dataclass(frozen=True)
class Plan:
    seed: int
    sites: int = 200
    conversions: int = 850  # sales; most go to more than one provider
    limit: int = 400  # of a run


@dataclass
class Day:
    plan: Plan
    participants: Participants
    fakes: Fakes
    redis: RedisServer
    workers: WorkerProcesses
    apps: list[App]
    rng: Random
    destined: dict[tuple[str, str], str] = field(default_factory=dict)
    passing: list[tuple[int, str]] = field(
        default_factory=list
    )  # refusals that end: in which round, of which order
    killed: int = 0

    async def run(self) -> Counter[str]:
        """From midnight until nothing waits any more. What became of the rows, and what was met on the way."""
        self.participants.settle(self.rng, self.plan.sites, self.fakes, spoilt=SPOILT)
        for provider in self.fakes.all.values():
            provider.clock = self.participants.now
        for number in range(ROUNDS):
            self._sell(number)
            self._set_faults(number)
            if number in KILLS:
                await asyncio.to_thread(self._kill, KILLS.index(number))
            await self._work(number)
            self.participants.forward(ROUND)
        await self._evening()
        return self._count()

    # Customers ----------------------------------------------------------------------------------------------

    def _sell(self, number: int) -> None:
        rng, participants = self.rng, self.participants
        left = self.plan.conversions // ROUNDS
        while left > 0:
            count = min(left, rng.randint(3, max(9, self.plan.conversions // (ROUNDS * 8))))
            left -= count
            self._surprise(number, participants.sell(rng.choice(participants.sites), count, rng))
        strange = rng.choice(participants.sites)
        match number % 8:
            case 1:  # the click was too long ago
                self._expired(
                    participants.sell(strange, 1, rng, click_age="100 days"),
                    "google_ads",
                    "google_datamanager",
                )
            case 3:  # the sale was
                self._expired(participants.sell(strange, 1, rng, age="30 days"), "meta_capi", "tiktok_events")
            case 5:
                self._fail(participants.sell(strange, 2, rng), PROVIDERS, "SALE_CANCELED", cancel=True)
            case 7:
                participants.change(participants.sell(strange, 2, rng), value=99)
        if number == OUTAGE_REDIS.start:  # about to expire, while nothing goes out
            for site in [site for site in participants.sites if "meta_capi" in site.providers][
                SPOILT : SPOILT + 3
            ]:
                participants.sell(site, 1, rng, "meta_capi", age="6 days 12 hours")

    def _surprise(self, number: int, orders: list[str]) -> None:
        """A few of them are no good, or not yet, to a provider."""
        for order in orders:
            if self.rng.random() > 0.05:
                continue
            provider = self.rng.choice([name for name in PROVIDERS if order in self.participants.sold[name]])
            if provider == "google_ads" and self.rng.random() < 0.3:
                self.fakes.google_ads.refuse(order, "TOO_RECENT_EVENT")
                self.passing.append((number + 3, order))
            else:
                told, code = self.rng.choice(FATAL[provider])
                self.fakes.all[provider].refuse(order, told)
                self._fail([order], (provider,), code)
        for at, order in [each for each in self.passing if each[0] == number]:
            self.fakes.google_ads.refuse(order)
            self.passing.remove((at, order))

    def _expired(self, orders: list[str], *providers: str) -> None:
        self._fail(orders, providers, "EXPIRED")

    def _fail(
        self, orders: list[str], providers: tuple[str, ...], code: str, *, cancel: bool = False
    ) -> None:
        if cancel:
            self.participants.change(orders, status="CANCELED")
        self.destined |= {(name, order): code for name in providers for order in orders}

    # Faults -------------------------------------------------------------------------------------------------

    def _set_faults(self, number: int) -> None:
        fakes, rng = self.fakes, self.rng
        down, closed = fakes.all[self._ill[0]], fakes.all[self._ill[1]]
        if number in OUTAGE_503:
            down.script(*[Fault.status(503)] * 500)
        elif number == OUTAGE_503.stop:
            down.calm()
        else:
            for provider, fake in fakes.all.items():
                if rng.random() < 0.3:
                    fake.script(*(self._mishap(provider) for _ in range(rng.randint(1, 3))))
        if number in (OUTAGE_CLOSED.start, OUTAGE_CLOSED.stop):
            (closed.close if number == OUTAGE_CLOSED.start else closed.start)()
        if number in (OUTAGE_REDIS.start, OUTAGE_REDIS.stop):
            (self.redis.kill if number == OUTAGE_REDIS.start else self.redis.start)()
        if number % 22 == 1:
            fakes.google_ads.script(Fault.cut(after=True))
            fakes.webhook.script(Fault.hang())
        if number == 36:
            fakes.google_ads.deny(
                "quotaError.RESOURCE_EXHAUSTED", rate_scope="DEVELOPER", retry_delay="1800s"
            )
        match number:  # what becomes of requests that Data Manager took
            case 8 | 36:
                fakes.google_datamanager.process("SUCCESS")
            case 32:
                fakes.google_datamanager.process(
                    "PARTIAL_SUCCESS", {"PROCESSING_ERROR_REASON_INVALID_GCLID": 1}
                )

    @property
    def _ill(self) -> list[str]:
        """The two providers that have a bad day."""
        return Random(self.plan.seed).sample(PROVIDERS, 2)

    def _mishap(self, provider: str) -> Fault:
        faults = [
            Fault.status(500),
            Fault.status(503, retry_after=90),
            Fault.status(429, retry_after=self.rng.choice((30, 2400))),
            Fault.cut(),
            Fault.cut(after=True),
            Fault.cut(after=True),
            Fault.slow(0.02),
        ]
        if self.rng.random() < 0.06:
            return Fault.status(403)  # of whichever site comes next
        if provider != "webhook":  # a receiver of webhooks says all by its status
            faults.append(Fault.page())
        return self.rng.choice(faults)

    # Workers ------------------------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        """What two workers do in this time, and what is done beside them."""
        ctxs = [app.ctx for app in self.apps]
        await asyncio.gather(*(deliver(ctx, f"worker {n}", self.plan.limit) for n, ctx in enumerate(ctxs)))
        if number % 2:
            await deliver(ctxs[0], "worker", self.plan.limit)
        async with ctxs[0].db.tx(roles.DELIVER) as tx:
            await delivery_queue.watch(tx, timedelta(hours=24), 10_000)
            if number % 2:
                await delivery_queue.recover_stuck(tx, 15)
        async with ctxs[0].db.tx() as tx:
            await recover.recover(tx, 5)
        while await confirm(ctxs[number % 2]):
            pass
        if number % 4 == 3:
            self.participants.replace_credentials(self.fakes)

    def _kill(self, turn: int) -> None:
        """A worker in a process of its own: in the middle of a call, or between the answer and its settling."""
        provider = PROVIDERS[turn % len(PROVIDERS)]
        fake = self.fakes.all[provider]
        fake.calm()
        for site in self.rng.sample(self.participants.healthy(provider), 2):
            self.participants.sell(site, 3, self.rng, provider)
        before = _arrived(fake)
        if turn % 2:
            worker = self.workers.start(WorkerRequest(moment=Moment("before", 2, SIGKILL), ttl=LAPSE))
            assert worker.wait() == -SIGKILL, worker.log[-2000:]
        else:
            fake.script(Fault.hang())
            worker = self.workers.start(WorkerRequest(ttl=LAPSE))
            until(lambda: _arrived(fake) > before or worker.exit_code is not None)
            assert worker.exit_code is None, worker.log[-2000:]
            worker.kill()
        self.killed += 1

    # The evening --------------------------------------------------------------------------------------------

    async def _evening(self) -> None:
        """All is well again: until nothing waits, and until every breaker has had the success that closes it."""
        for fake in self.fakes.all.values():
            fake.calm()
        for _, order in self.passing:
            self.fakes.google_ads.refuse(order)
        for number in range(1000):
            pause = self._pause()
            if pause is None and self.participants.replace_credentials(self.fakes):
                pause = timedelta(0)
            if pause is None:
                ill = self.participants.query(
                    "SELECT site_id, provider_key FROM provider_health_state WHERE state <> 'CLOSED'"
                )
                if not ill:
                    return
                for site_id, provider in ill:
                    self.participants.sell(self._site(site_id), 1, self.rng, provider)
                pause = timedelta(minutes=7)
            self.participants.forward(pause)
            await self._work(number)
        raise AssertionError("the evening has no end")

    def _pause(self) -> timedelta | None:
        """Until the next thing is due; a little where something stands in the way. None: nothing waits."""
        [(found,)] = self.participants.query(
            "SELECT min(w.at) - weighbridge.now() FROM ("
            " SELECT greatest(due_at, weighbridge.now()) FROM offline_conversion_queue"
            "  WHERE status IN ('QUEUED', 'RETRY')"
            " UNION ALL SELECT lease_until FROM weighbridge.attempts WHERE closed_at IS NULL"
            " UNION ALL SELECT due_at FROM weighbridge.confirmations WHERE state = 'AWAITED') AS w (at)"
        )
        return None if found is None else max(found, timedelta(0)) + timedelta(minutes=3)

    def _site(self, site_id: Any) -> Site:
        return next(site for site in self.participants.sites if site.id == site_id)

    def _count(self) -> Counter[str]:
        counts = check_everything(self.participants, self.fakes, self.destined)
        # What a killed worker held is over by itself; whatever its score, Redis takes it away when it is next asked.
        until(lambda: not self._held_in_redis(), within=LAPSE.total_seconds() + 5)
        counts["killed"] = self.killed
        assert CANARY not in self.workers.logs.lower()
        return counts

    def _held_in_redis(self) -> list[Any]:
        now = time.time() * 1000
        return [key for key in self.redis("KEYS", "conc:*") if self.redis("ZCOUNT", key, now, "+inf")]


def _arrived(fake: Any) -> int:
    """Requests with conversions that have come so far, whatever became of them."""
    return sum(1 for call in list(fake.calls) if fake.kind(call) == "data")


@asynccontextmanager
async def dawn(plan: Plan, url: str, folder: Path) -> AsyncIterator[Day]:
    """Everything that a day needs, started; all of it is gone afterwards."""
    async with AsyncExitStack() as stack:
        fakes = stack.enter_context(Fakes())
        redis = stack.enter_context(RedisServer(folder / "redis"))
        participants = Participants(url)
        stack.callback(participants.close)
        settings: dict[str, Any] = {"DATABASE_URL": url, "REDIS_URL": redis.url}
        words = {"vault_key": participants.key, "provider_urls": fakes.urls, "webhook_private": "true"}
        workers = WorkerProcesses(
            {**settings, **{f"WEIGHBRIDGE_{name.upper()}": value for name, value in words.items()}}, folder
        )
        stack.callback(workers.close)
        apps = [
            await stack.enter_async_context(
                open_app(read(home=folder / "home", provider_seconds=0.5, **settings, **words))
            )
            for _ in range(2)
        ]
        yield Day(plan, participants, fakes, redis, workers, apps, Random(plan.seed))


# Longer days ------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--conversions", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5, help="how many days")
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    wanted = parser.parse_args()
    logs.configure("error")
    with _postgres() as fresh:
        for seed in range(wanted.seed, wanted.seed + wanted.seeds):
            plan = Plan(seed, wanted.sites, wanted.conversions, limit=max(400, wanted.conversions // 10))
            began = time.monotonic()
            with fresh() as url, tempfile.TemporaryDirectory(prefix="weighbridge-day-") as folder:
                try:
                    counts = asyncio.run(_play(plan, url, Path(folder)))
                except BaseException:
                    print(f"seed {seed}: not as it must be", flush=True)
                    raise
            print(
                f"seed {seed}: {time.monotonic() - began:.1f} s, {dict(sorted(counts.items()))}", flush=True
            )


@contextmanager
def _postgres() -> Iterator[Callable[[], AbstractContextManager[str]]]:
    """A server of our own, and fresh databases on it."""
    from tests.conftest import _make_template, _remove, fresh_database
    from weighbridge.postgres import embedded

    home = Path(tempfile.mkdtemp(prefix="weighbridge-day-"))
    try:
        url = embedded.start(home, "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            _make_template(connection, url)
        yield lambda: fresh_database(url)
    finally:
        _remove(home)


async def _play(plan: Plan, url: str, folder: Path) -> Counter[str]:
    async with dawn(plan, url, folder) as day:
        return await day.run()


if __name__ == "__main__":
    main()
