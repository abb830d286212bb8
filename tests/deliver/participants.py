"""Who takes part in a day of deliveries: sites, their customers, an operator, and a fake of each provider.

Every order id is there once, so that a provider's own record says how often each was accepted.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import pq
from psycopg.types.json import Jsonb

from weighbridge.delivery.vault import Vault, new_key
from weighbridge.testing._webhook import SECRET
from weighbridge.testing.fake_providers import (
    FakeGoogleAds,
    FakeGoogleDataManager,
    FakeMeta,
    FakeServer,
    FakeTikTok,
    FakeWebhook,
)

PROVIDERS = ("google_ads", "google_datamanager", "meta_capi", "tiktok_events", "webhook")
CANARY = "canary"  # stands in every click id and in every secret, and must stand in no log line
GOOD, BAD = "TOKENcanaryGOOD", "TOKENcanaryBAD"
CLICKS = {
    "google_ads": ("gclid", "gbraid", "wbraid"),
    "google_datamanager": ("gclid", "gbraid", "wbraid"),
    "meta_capi": ("fbclid",),
    "tiktok_events": ("ttclid",),
    "webhook": ("gclid", "gbraid", "wbraid", "fbclid", "ttclid"),
}
DAYS = timedelta(days=1)


class Fakes:
    """One server per provider, for all sites."""

    def __init__(self) -> None:
        self.google_ads = FakeGoogleAds()
        self.google_datamanager = FakeGoogleDataManager()
        self.meta_capi = FakeMeta(tokens={GOOD})
        self.tiktok_events = FakeTikTok(tokens={GOOD})
        self.webhook = FakeWebhook()
        self.google_ads.revoked = self.google_datamanager.revoked = {BAD}
        self.all: dict[str, FakeServer] = {name: getattr(self, name) for name in PROVIDERS}
        self._open = ExitStack()

    def __enter__(self) -> Fakes:
        for fake in self.all.values():
            self._open.enter_context(fake)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    @property
    def urls(self) -> str:
        return ",".join(f"{name}={fake.url}" for name, fake in self.all.items())


@dataclass(frozen=True)
class Site:
    id: UUID
    number: int
    providers: tuple[str, ...]


@dataclass
class Participants:
    """The database as its owner sees it, and all that was sold."""

    url: str
    key: str = field(default_factory=new_key)
    workspace: UUID = field(default_factory=uuid4)
    sites: list[Site] = field(default_factory=list)
    sold: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in PROVIDERS})
    sales: int = 0

    def __post_init__(self) -> None:
        self._vault = Vault.open(self.key)
        self._eyes = psycopg.connect(self.url, autocommit=True)
        [(real,)] = self.query("SELECT extract(epoch FROM weighbridge.now())::float8")
        self._ahead = real - time.time()  # of the machine's clock

    def close(self) -> None:
        self._eyes.close()

    def reconnect(self) -> None:
        """The server was restarted."""
        self._eyes.close()
        self._eyes = psycopg.connect(self.url, autocommit=True)

    def query(self, statement: str, params: Any = None) -> list[tuple[Any, ...]]:
        cursor = self._eyes.execute(statement, params)  # type: ignore[call-overload]
        # Not the description: that of rows without a column, as of SELECT FROM, is none either.
        rows = cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK
        return cursor.fetchall() if rows else []

    def number(self, statement: str, params: Any = None) -> Any:
        [(found,)] = self.query(statement, params)
        return found

    # Time ---------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since 1970, by the database: what the fakes take for the time."""
        return time.time() + self._ahead

    def forward(self, by: timedelta) -> None:
        self.query("UPDATE weighbridge.clock SET shift = shift + %s", (by,))
        self._ahead += by.total_seconds()

    # Sites and what they sell -------------------------------------------------------------------------------

    def settle(self, rng: Random, count: int, fakes: Fakes, *, spoilt: int = 0) -> None:
        """Sites with one to five providers each; the first `spoilt` have credentials that nobody takes."""
        for number in range(count):
            some = rng.sample(PROVIDERS, rng.choice((1, 2, 2, 3, 5))) if number >= 2 else list(PROVIDERS)
            [(site_id,)] = self.query(
                "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, %s, %s) RETURNING id",
                (self.workspace, f"site {number}", some),
            )
            site = Site(site_id, number, tuple(some))
            self.sites.append(site)
            for provider in some:
                self.give_credentials(site, provider, fakes, token=BAD if number < spoilt else GOOD)

    def give_credentials(self, site: Site, provider: str, fakes: Fakes, *, token: str = GOOD) -> None:
        version = self.number(
            "SELECT coalesce(max(version), 0) + 1 FROM provider_credentials WHERE site_id = %s AND provider_key = %s",
            (site.id, provider),
        )
        values = _credentials(site, provider, fakes.all[provider].url, token)
        sealed = self._vault.seal(site.id, provider, values, version)
        done = self.number(
            "SELECT weighbridge.set_credentials(%s, %s, %s, %s, %s, %s, 'operator')",
            (site.id, provider, version, sealed.key_id, sealed.nonce, sealed.ciphertext),
        )
        assert done

    def sell(
        self, site: Site, count: int, rng: Random, provider: str | None = None, **more: Any
    ) -> list[str]:
        """So many sales, each with a click id that this or one of the site's providers takes. Their order ids."""
        rows = []
        for _ in range(count):
            self.sales += 1
            clicks = {rng.choice(CLICKS[provider or rng.choice(site.providers)])}
            clicks |= {rng.choice(CLICKS[other]) for other in site.providers if rng.random() < 0.6}
            order = f"order-{site.number:04d}-{self.sales:07d}"
            row = {"order_id": order, "n": self.sales} | {
                click: f"{click}-{CANARY}-{self.sales}" for click in clicks
            }
            rows.append(row | more)
            for each in site.providers:
                if clicks & set(CLICKS[each]):
                    self.sold[each].add(order)
        self.query(
            "INSERT INTO sales (workspace_id, site_id, order_id, occurred_at, clicked_at, value, currency, gclid,"
            " gbraid, wbraid, fbclid, ttclid)"
            " SELECT %s, %s, s.order_id, weighbridge.now() - coalesce(s.age, '1 hour') - s.n * INTERVAL '1 ms',"
            " weighbridge.now() - s.click_age, 10 + s.n %% 90, 'EUR', s.gclid, s.gbraid, s.wbraid, s.fbclid, s.ttclid"
            " FROM jsonb_to_recordset(%s) AS s (order_id text, n int, age interval, click_age interval, gclid text,"
            " gbraid text, wbraid text, fbclid text, ttclid text)",
            (self.workspace, site.id, Jsonb(rows)),
        )
        return [str(row["order_id"]) for row in rows]

    def change(self, orders: list[str], **columns: Any) -> None:
        setting = ", ".join(f"{name} = %({name})s" for name in columns)
        self.query(
            f"UPDATE sales SET {setting} WHERE order_id = ANY (%(orders)s)", {"orders": orders, **columns}
        )

    def healthy(self, provider: str) -> list[Site]:
        """Sites whose sales go to this provider at once."""
        found = self.query(
            "SELECT c.site_id FROM provider_credentials c JOIN weighbridge.providers k USING (provider_key)"
            " LEFT JOIN provider_health_state h USING (site_id, provider_key)"
            " WHERE provider_key = %s AND c.refused_at IS NULL AND coalesce(h.state, 'CLOSED') = 'CLOSED'"
            " AND coalesce(k.paused_until <= weighbridge.now(), true)",
            (provider,),
        )
        ids = {site_id for (site_id,) in found}
        return [site for site in self.sites if site.id in ids]

    # The operator -------------------------------------------------------------------------------------------

    def replace_credentials(self, fakes: Fakes) -> int:
        """Whoever is alerted that credentials are refused gives new ones, and has what failed for it sent again."""
        refused = self.query(
            "SELECT site_id, provider_key FROM provider_credentials WHERE refused_at IS NOT NULL"
        )
        by_id = {site.id: site for site in self.sites}
        for site_id, provider in refused:
            self.give_credentials(by_id[site_id], provider, fakes)
        # Of all groups: a single webhook that was refused among others says nothing of its site's credentials.
        again: int = self.number(
            "SELECT weighbridge.requeue_deliveries(%s, NULL, NULL, NULL, 'AUTH', NULL, 'operator')",
            (self.workspace,),
        )
        return again


def _credentials(site: Site, provider: str, url: str, token: str) -> dict[str, str]:
    account = str(1_000_000_000 + site.number)
    google = {
        "customer_id": account,
        "client_id": "4711.apps.googleusercontent.com",
        "client_secret": "SECRETcanary",
        "refresh_token": token,
        "developer_token": "DEVELOPERcanary",
        "conversion_action_resource_name": f"customers/{account}/conversionActions/{site.number + 1}",
    }
    # Eighteen bytes that the receiver does not know are as good a secret, and refused.
    secret = SECRET if token == GOOD else "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5"
    return {
        "google_ads": google,
        "google_datamanager": google,
        "meta_capi": {"dataset_id": account, "access_token": token},
        "tiktok_events": {"event_set_id": account, "access_token": token},
        "webhook": {"url": f"{url}/in/PATHcanary", "secret": secret},
    }[provider]
