"""Conversions to a local fake of Google Ads, beside a bare httpx loop that posts the same batches.

The fake is a process of its own, the same for both: it checks every row and remembers every order id. Ours is the
worker as it runs: it claims, writes the ledger, posts and settles, with Postgres on the same machine. The bare loop has
no database: it posts batches of the sizes that ours has in its ledger, one after another, and reads the answers.
Neither pays for sales, credentials and tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg

from weighbridge.app import App, open_app
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.deliverer import Deliverer, collect_less
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.observe import logs, metrics
from weighbridge.settings import read

from . import ours
from .measure import Failed
from .setting import CLAIMED, DELIVERED, Result, Setting

_SENT = 200_000  # seconds of work: a run has to get going, and the bare loop has not
_WARM = 100
_POLL = timedelta(seconds=2)
_CLAIMS = 50
_WRITTEN = 1000  # sales of a statement, as an upload writes them
_CREDENTIALS = {
    "customer_id": "1234567890",
    "developer_token": "bench",
    "client_id": "bench",
    "client_secret": "bench",
    "refresh_token": "bench",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/1",
}
_SITES = """
    INSERT INTO sites (workspace_id, name, providers)
    SELECT %s, 'site ' || n, '{google_ads}' FROM generate_series(1, %s) n"""
_SALES = """
    INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, value, currency, gclid)
    SELECT %(workspace)s, s.id, 'order-' || s.id || '-' || n, weighbridge.now() - INTERVAL '1 hour', 12.34, 'EUR',
           md5(s.id::text || n) || md5(n::text)
    FROM generate_series(%(first)s::int, %(last)s::int) n,
         LATERAL (SELECT (%(sites)s::uuid[])[1 + n %% %(groups)s] AS id) s"""
_SIZES = """
    SELECT claimed_count FROM provider_upload_attempts WHERE phase = 'STARTED' ORDER BY id OFFSET %s"""


def run(setting: Setting) -> Iterator[Result]:
    """Few and many groups, and a long backlog; and what one claim costs before a short and a long one."""
    collect_less()  # both of them
    for groups, backlog in ((1, _SENT), (100, _SENT // 2), (10_000, _SENT // 10), (1, setting.backlog)):
        sent = min(backlog, _SENT)
        what = f"{DELIVERED} of {groups:,} groups, {backlog:,} waiting"
        with ours.database(setting) as environment, _fake() as fake:
            found = asyncio.run(_ours(setting, environment["DATABASE_URL"], fake, groups, backlog, sent))
        yield Result("ours", what, sent, found.seconds)
        with _fake() as fake:
            bare = asyncio.run(_bare(fake, found.sizes))
        yield Result("bare httpx loop", what, sum(found.sizes), bare)
    for backlog in (1_000, setting.backlog):
        with ours.database(setting) as environment:
            claim = asyncio.run(_claims(setting, environment["DATABASE_URL"], backlog))
        yield Result("ours", f"{CLAIMED}, {backlog:,} waiting", 1, claim, note=f"median of {_CLAIMS}")


@dataclass(frozen=True)
class _Found:
    seconds: float
    sizes: list[int]  # of its calls, in their order


async def _ours(setting: Setting, url: str, fake: str, groups: int, backlog: int, sent: int) -> _Found:
    async with _opened(setting, url, fake) as (app, db):
        await _fill(app, db, groups, backlog)
        setting.quiet()
        await deliver(app.ctx, "bench", _WARM)  # tokens, plans, connections
        warm = len(await (await db.execute(_SIZES, (0,))).fetchall())
        stop, before = asyncio.Event(), _delivered()
        began = perf_counter()
        worker = asyncio.create_task(Deliverer(app.ctx, "bench", app.settings.deliver_limit, _POLL).run(stop))
        while (done := _delivered() - before) < sent - _WARM:
            if worker.done():
                raise Failed("the worker ended")
            await asyncio.sleep(0.02)
        seconds = perf_counter() - began
        stop.set()
        await worker
        sizes = await (await db.execute(_SIZES, (warm,))).fetchall()
    return _Found(seconds * sent / done, _first(sent, [size for (size,) in sizes]))


def _delivered() -> float:
    return float(metrics.DELIVERED.labels("google_ads", "COMPLETED")._value.get())


def _first(rows: int, sizes: Sequence[int]) -> list[int]:
    """As many of them as have so many rows."""
    return [size for size, before in zip(sizes, accumulate(sizes, initial=0), strict=False) if before < rows]


async def _claims(setting: Setting, url: str, backlog: int) -> float:
    async with _opened(setting, url, "http://127.0.0.1:1") as (app, db):
        await _fill(app, db, 1, backlog)
        setting.quiet()
        return median([await _claim(db) for _ in range(_CLAIMS)])


@asynccontextmanager
async def _opened(
    setting: Setting, url: str, fake: str
) -> AsyncIterator[tuple[App, psycopg.AsyncConnection[Any]]]:
    with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230
        logs.configure("info", nowhere)  # as the service does, but to nobody
        settings = read(
            home=setting.home, DATABASE_URL=url, vault_key=new_key(), provider_urls=(f"google_ads={fake}",)
        )
        async with (
            open_app(settings) as app,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as db,
        ):
            yield app, db


async def _fill(app: App, db: psycopg.AsyncConnection[Any], groups: int, backlog: int) -> None:
    assert app.ctx.outbound is not None
    vault: Vault = app.ctx.outbound.vault
    workspace = uuid4()
    await db.execute(_SITES, (workspace, groups))
    sites = await (await db.execute("SELECT id FROM sites")).fetchall()
    async with db.cursor() as cursor, db.transaction():
        await cursor.executemany(
            "SELECT weighbridge.set_credentials(%s, 'google_ads', 1, %s, %s, %s, 'bench')",
            [(site, *_sealed(vault, site)) for (site,) in sites],
        )
    told: dict[str, Any] = {
        "workspace": workspace,
        "sites": [site for (site,) in sites],
        "groups": groups,
    }
    for first in range(0, backlog, _WRITTEN):
        await db.execute(_SALES, told | {"first": first, "last": first + _WRITTEN - 1})
    await db.execute("VACUUM ANALYZE sales, offline_conversion_queue")


def _sealed(vault: Vault, site: UUID) -> tuple[str, bytes, bytes]:
    sealed = vault.seal(site, "google_ads", _CREDENTIALS, 1)
    return sealed.key_id, sealed.nonce, sealed.ciphertext


async def _claim(db: psycopg.AsyncConnection[Any]) -> float:
    """Fifty rows of one group, given back again."""
    async with db.transaction(force_rollback=True):
        [(site,)] = await (
            await db.execute("SELECT site_id FROM offline_conversion_queue LIMIT 1")
        ).fetchall()
        began = perf_counter()
        await (
            await db.execute(
                "SELECT sale_id FROM claim_offline_conversion_jobs_v2(%s, 'google_ads', 50)", (site,)
            )
        ).fetchall()
        return perf_counter() - began


async def _bare(fake: str, sizes: Sequence[int]) -> float:
    url = f"{fake}/v26/customers/1234567890:uploadClickConversions"
    async with httpx.AsyncClient(timeout=30) as http:
        refreshed = await http.post(
            f"{fake}/token",
            data={
                "grant_type": "refresh_token",
                "client_id": "b",
                "client_secret": "b",
                "refresh_token": "b",
            },
        )
        headers = {
            "authorization": f"Bearer {refreshed.json()['access_token']}",
            "developer-token": "bench",
            "content-type": "application/json",
        }
        began = perf_counter()
        for group, size in enumerate(sizes):
            answer = await http.post(url, content=_body(group, size), headers=headers)
            if answer.status_code != 200 or "partialFailureError" in answer.json():
                raise Failed(answer.text[:300])
        return perf_counter() - began


def _body(group: int, count: int) -> bytes:
    conversions = [
        {
            "gclid": f"{group:032x}{n:032x}",
            "conversionAction": "customers/1234567890/conversionActions/1",
            "conversionDateTime": "2026-01-01 12:32:45+00:00",
            "conversionValue": 12.34,
            "currencyCode": "EUR",
            "orderId": f"order-{group:032x}-{n}",
        }
        for n in range(count)
    ]
    return json.dumps({"conversions": conversions, "partialFailure": True}).encode()


@contextmanager
def _fake() -> Iterator[str]:
    """The fake's URL."""
    command = [sys.executable, "-m", "weighbridge.testing", "google_ads"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
