"""What a game with the queue of conversions is played with: a database, a clock, and providers that forget nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from psycopg import pq

from tests.deliver.conftest import Scripted
from weighbridge.app import open_app
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.providers.base import Batch
from weighbridge.delivery.queue import RetryPolicy
from weighbridge.delivery.slots.base import SlotLimits
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.model.delivery import Category, Outcome, ProviderRateLimitError, ProviderTransientError
from weighbridge.settings import read

T = TypeVar("T")

LEASE = timedelta(minutes=2)
RETRIES, CRASHES = 3, 2  # few, so that games get there
MOODS = ("well", "well", "well", "down", "cut", "limited", "picky", "refusing", "broken")


class Knowing(Scripted):
    """A provider that knows again what it has."""

    mood = "well"

    def __init__(self, *described: Any) -> None:
        super().__init__(*described)
        self.has: set[str] = set()
        self.came: Counter[str] = Counter()  # in calls that were looked at
        self.answer = self._answer

    def _answer(self, batch: Batch) -> list[Outcome]:
        match self.mood:
            case "down":
                raise ProviderTransientError("It is down.", "HTTP_500")
            case "limited":
                raise ProviderRateLimitError("Too much.", "HTTP_429", timedelta(minutes=5))
            case "broken":
                raise ValueError("the adapter's own")
            case "refusing":
                return [Outcome.failed("HTTP_401", "Not you.", Category.AUTH)] * len(batch.conversions)
            case "cut":
                self.take([each.order_id for each in batch.conversions])
                raise ProviderTransientError("The line was cut.", "CUT")
        return [self._row(each.order_id, n) for n, each in enumerate(batch.conversions)]

    def _row(self, order: str, place: int) -> Outcome:
        if self.mood == "picky" and place % 3 == 0:
            return Outcome.failed("INVALID", "It is no good.")
        if self.mood == "picky" and place % 3 == 1:
            return Outcome.retry("LATER", "Not now.")
        [known] = self.take([order])
        return Outcome.completed(f"request-{len(self.batches)}", duplicate=known)

    def take(self, orders: Sequence[str]) -> list[bool]:
        """Which of them it had."""
        known = [order in self.has for order in orders]
        self.has.update(orders)
        self.came.update(orders)
        return known


@dataclass
class World:
    """A database, and one event loop."""

    url: str
    home: Path
    vault: Vault = field(default_factory=lambda: Vault.open(new_key()))

    def __post_init__(self) -> None:
        self._runner = asyncio.Runner()
        self._opening = open_app(read(home=self.home, DATABASE_URL=self.url))
        self.app = self.run(self._opening.__aenter__())
        self._http = httpx.AsyncClient()
        self._eyes = psycopg.connect(self.url, autocommit=True, options="-c statement_timeout=10s")
        self.query(
            "CREATE TABLE public.moved (sale uuid, before text, after text);"
            "CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
            " $$ BEGIN INSERT INTO public.moved VALUES (NEW.sale_id, OLD.status, NEW.status); RETURN NULL; END $$;"
            "CREATE TRIGGER note_move AFTER UPDATE OF status ON offline_conversion_queue FOR EACH ROW"
            " WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION public.note_move()"
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._eyes.execute(statement, params)  # type: ignore[call-overload]
        # Not the description: that of rows without a column, as of SELECT FROM, is none either.
        rows = cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK
        return cursor.fetchall() if rows else []

    def context(self, providers: dict[str, Any]) -> Context:
        limits = SlotLimits(ttl=LEASE)
        slots = PostgresSlots(self.app.db, limits)
        outbound = Outbound(providers, self.vault, slots, self._http, limits, RetryPolicy(retries=RETRIES))
        return replace(self.app.ctx, outbound=outbound)

    def clean(self) -> None:
        tables = "offline_conversion_queue, sales, sites, provider_health_state, provider_credentials, moved"
        tables += (
            ", provider_upload_metrics, provider_upload_attempts, weighbridge.attempts, weighbridge.alerts"
        )
        self.query(f"TRUNCATE {tables}, weighbridge.slots, weighbridge.confirmations CASCADE")
        self.query(
            "UPDATE weighbridge.clock SET shift = '0'; UPDATE weighbridge.providers SET paused_until = NULL"
        )

    def close(self) -> None:
        self.run(self._http.aclose())
        self.run(self._opening.__aexit__(None, None, None))
        self._runner.close()
        self._eyes.close()


@contextmanager
def opened(url: str, home: Path) -> Iterator[World]:
    world = World(url, home)
    try:
        yield world
    finally:
        world.close()
