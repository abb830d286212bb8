"""The forecast of the next run: the same shares and reasons as the run, and no row is changed."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from tests.deliver.conftest import MakeSite, Query, Run, Scripted, Sell
from weighbridge.delivery.context import Context
from weighbridge.delivery.forecast import Forecast, forecast
from weighbridge.postgres import roles

from .test_breaker import down, open_circuit

STANDING = (
    "SELECT q::text FROM offline_conversion_queue q UNION ALL SELECT h::text FROM provider_health_state h"
)


async def told(ctx: Context, limit: int) -> dict[UUID, Forecast]:
    assert ctx.outbound is not None
    async with ctx.db.tx(roles.DELIVER) as tx:
        found = await forecast(tx, ctx.outbound, limit)
    return {site: each for (site, _), each in found.items()}


def sent(google: Scripted) -> dict[UUID, int]:
    counts: Counter[UUID] = Counter()
    for batch in google.batches:
        counts[batch.site_id] += len(batch.conversions)
    return dict(counts)


async def test_a_run_sends_what_the_forecast_listed(
    ctx: Context, make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted
) -> None:
    sites = [make_site() for _ in range(4)]
    for site, count in zip(sites, (70, 25, 4, 1), strict=True):
        sell(site, count)
    bare = make_site(credentials=False)
    sell(bare, 5)
    before = query(STANDING)
    expected = await told(ctx, 20)
    assert query(STANDING) == before
    await run(20)
    assert {site: each.share for site, each in expected.items() if each.share} == sent(google)
    assert sum(each.share for each in expected.values()) == 20
    assert expected[bare] == Forecast(5, reason="no_credentials")
    assert expected[sites[0]].due == 70


async def test_the_forecast_has_no_rows_for_an_open_circuit_and_a_few_for_its_probe(
    ctx: Context, make_site: MakeSite, sell: Sell, run: Run, query: Query, google: Scripted, clock: Any
) -> None:
    broken, well = make_site(), make_site()
    sell(broken, 20)
    google.answer = down
    await open_circuit(run, clock, query)
    google.answer = None
    sell(well, 30)
    query("UPDATE provider_health_state SET next_probe_at = weighbridge.now() + INTERVAL '1 hour'")
    assert (await told(ctx, 10))[broken] == Forecast(20, reason="circuit_open")
    query("UPDATE provider_health_state SET next_probe_at = weighbridge.now()")
    google.batches.clear()
    expected = await told(ctx, 10)
    assert expected[broken] == Forecast(20, share=5, probe=True)
    await run(10)
    assert {site: each.share for site, each in expected.items()} == sent(google)
