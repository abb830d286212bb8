"""Sites, sales and providers for the tests of delivery. Providers here do what a test says; those of other companies
are tested over real sockets in tests/providers and in test_day_of_failures.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.providers.base import Batch, Needed, Provider
from weighbridge.delivery.run_counts import RunCounts
from weighbridge.delivery.slots.base import SlotLimits
from weighbridge.delivery.slots.postgres import PostgresSlots
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.model.delivery import Outcome
from weighbridge.postgres.transactions import Database

Query = Callable[..., list[tuple[Any, ...]]]


@dataclass
class Scripted:
    """A provider that takes everything, unless a test says otherwise."""

    name: str = "google_ads"
    max_batch: int = 2000
    clicks: tuple[str, ...] = ("gclid", "wbraid", "gbraid")
    window: timedelta | None = timedelta(days=90)
    window_from: str = "click"
    needs: Sequence[Needed] = ()
    batches: list[Batch] = field(default_factory=list)
    answer: Callable[[Batch], Awaitable[list[Outcome]] | list[Outcome]] | None = None

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        self.batches.append(batch)
        if self.answer is None:
            return [Outcome.completed(f"request-{len(self.batches)}") for _ in batch.conversions]
        said = self.answer(batch)
        return said if isinstance(said, list) else await said

    @property
    def sent(self) -> list[str]:
        return [each.order_id for batch in self.batches for each in batch.conversions]


@pytest.fixture
def google() -> Scripted:
    return Scripted()


@pytest.fixture
def meta() -> Scripted:
    return Scripted("meta_capi", 1000, ("fbclid",), timedelta(days=7), "event")


@pytest.fixture
def providers(google: Scripted, meta: Scripted) -> dict[str, Provider]:
    return {each.name: each for each in (google, meta)}


@pytest.fixture
def vault() -> Vault:
    return Vault.open(new_key())


@pytest.fixture
async def outbound(db: Database, vault: Vault, providers: dict[str, Provider]) -> AsyncIterator[Outbound]:
    limits = SlotLimits()
    async with httpx.AsyncClient(timeout=5) as http:
        yield Outbound(providers, vault, PostgresSlots(db, limits), http, limits)


@pytest.fixture
def ctx(ctx: Context, outbound: Outbound) -> Context:
    return replace(ctx, outbound=outbound)


Run = Callable[..., Awaitable[RunCounts]]


@pytest.fixture
def run(ctx: Context) -> Run:
    """One run of the worker: `await run(limit)`."""

    async def one(limit: int = 50, **changes: Any) -> RunCounts:
        assert ctx.outbound is not None
        changed = replace(ctx, outbound=replace(ctx.outbound, **changes))
        return await deliver(changed, "test", limit)

    return one


MakeSite = Callable[..., UUID]


@pytest.fixture
def make_site(query: Query, workspace: UUID, vault: Vault) -> MakeSite:
    """A site with credentials for its providers."""

    def make(*providers: str, credentials: bool = True, workspace_id: UUID = workspace) -> UUID:
        chosen = list(providers or ("google_ads",))
        [(site,)] = query(
            "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, %s, %s) RETURNING id",
            (workspace_id, f"site {uuid4()}", chosen),
        )
        for provider in chosen if credentials else ():
            sealed = vault.seal(site, provider, {"secret": "canary-credential"}, 1)
            query(
                "SELECT weighbridge.set_credentials(%s, %s, 1, %s, %s, %s, 'test')",
                (site, provider, sealed.key_id, sealed.nonce, sealed.ciphertext),
            )
        return UUID(str(site))

    return make


Sell = Callable[..., list[UUID]]


@pytest.fixture
def sell(query: Query) -> Sell:
    """Confirmed sales with click ids for every provider, `order-1` and so on; returns their ids."""

    def sold(site: UUID, count: int = 1, *, prefix: str = "order", **more: Any) -> list[UUID]:
        columns = "".join(f", {name}" for name in more)
        values = "".join(f", %({name})s" for name in more)
        rows = query(
            "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, value, currency, gclid, fbclid,"
            " created_at"
            f"{columns}) SELECT s.workspace_id, s.id, %(prefix)s || '-' || n, weighbridge.now() - INTERVAL '1 hour',"
            " 12.5, 'EUR', 'gclid-canary-' || n, 'fbclid-canary-' || n,"
            " weighbridge.now() + n * INTERVAL '1 microsecond'"
            f"{values} FROM sites s, generate_series(1, %(count)s) n WHERE s.id = %(site)s ORDER BY n RETURNING id",
            {"site": site, "count": count, "prefix": prefix, **more},
        )
        return [row[0] for row in rows]

    return sold


@pytest.fixture
def statuses(query: Query) -> Callable[[], dict[str, int]]:
    def counted() -> dict[str, int]:
        return dict(query("SELECT status, count(*) FROM offline_conversion_queue GROUP BY status"))

    return counted
