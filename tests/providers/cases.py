"""How each built-in provider is built, faked and provoked, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from weighbridge.delivery.providers.base import Batch, Credentials, Provider
from weighbridge.delivery.providers.google_ads import GoogleAds
from weighbridge.delivery.providers.google_datamanager import GoogleDataManager
from weighbridge.delivery.providers.meta_capi import MetaCapi
from weighbridge.delivery.providers.tiktok_events import TikTokEvents
from weighbridge.delivery.providers.webhook import Webhook
from weighbridge.model.delivery import Conversion
from weighbridge.model.digests import digests
from weighbridge.testing._webhook import SECRET
from weighbridge.testing.fake_providers import (
    FakeGoogleAds,
    FakeGoogleDataManager,
    FakeMeta,
    FakeServer,
    FakeTikTok,
    FakeWebhook,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SITE = UUID("5ac9b7d6-0000-4000-8000-000000000001")


@dataclass(frozen=True)
class Case:
    name: str
    fake: Callable[..., FakeServer]
    adapter: Callable[[FakeServer], Provider]
    credentials: Mapping[str, str]  # those that the fake takes; values of secrets are canaries
    click: str
    bad_row: tuple[str, str]  # what fake.refuse is told, and the code of the outcome
    needs: str  # one that is required
    of_url: Mapping[str, str] = field(
        default_factory=dict
    )  # of the credentials, where one is the fake's own address
    one_request_per_row: bool = False
    reads_bodies: bool = True  # False: the status alone says how it went

    def values(self, fake: FakeServer) -> dict[str, str]:
        return {**self.credentials, **{name: fake.url + path for name, path in self.of_url.items()}}

    def batch(self, fake: FakeServer, rows: int = 3, **more: Any) -> Batch:
        """Rows order-0, order-1, …"""
        conversions = more.pop("conversions", None) or [self.row(at) for at in range(rows)]
        values = {**self.values(fake), **more.pop("credentials", {})}
        credentials = Credentials({name: value for name, value in values.items() if value is not None})
        return Batch(SITE, conversions, credentials, more.pop("now", NOW), uuid4(), **more)

    def row(self, at: int, **more: Any) -> Conversion:
        usual: dict[str, Any] = {
            "order_id": f"order-{at}",
            "click_type": self.click,
            "click_id": f"CLICKcanary{at:06d}",
            "occurred_at": NOW - timedelta(hours=30, seconds=at),
            "clicked_at": NOW - timedelta(days=3, seconds=at),
            "value": Decimal("19.99"),
            "currency": "EUR",
            "user_data": digests(f"canary{at}@example.com", "+491701234567"),
        }
        return Conversion(uuid4(), **{**usual, **more})

    def requests(self, rows: int) -> int:
        """So many it takes to send a batch."""
        return rows if self.one_request_per_row else 1


_GOOGLE = {
    "customer_id": "123-456-7890",
    "client_id": "4711.apps.googleusercontent.com",
    "client_secret": "SECRETcanary",
    "refresh_token": "REFRESHcanary",
}
GOOGLE_ADS = Case(
    "google_ads",
    FakeGoogleAds,
    lambda fake: GoogleAds(base_url=fake.url),
    {
        **_GOOGLE,
        "developer_token": "TOKENcanary",
        "conversion_action_resource_name": "customers/1234567890/conversionActions/987",
    },
    "gclid",
    ("INVALID_GCLID", "INVALID_GCLID"),
    "refresh_token",
)
GOOGLE_DATAMANAGER = Case(
    "google_datamanager",
    FakeGoogleDataManager,
    lambda fake: GoogleDataManager(base_url=fake.url),
    {**_GOOGLE, "conversion_action_id": "987"},
    "gclid",
    ("INVALID_GCLID", "INVALID_GCLID"),
    "refresh_token",
)
META = Case(
    "meta_capi",
    FakeMeta,
    lambda fake: MetaCapi(base_url=fake.url),
    {"dataset_id": "1234567890", "access_token": "TOKENcanaryEAAB", "test_event_code": "TEST4711canary"},
    "fbclid",
    ("2804003", "100/2804003"),
    "access_token",
)
TIKTOK = Case(
    "tiktok_events",
    FakeTikTok,
    lambda fake: TikTokEvents(base_url=fake.url),
    {
        "event_set_id": "7654321098765432109",
        "access_token": "TOKENcanary",
        "test_event_code": "TEST4711canary",
    },
    "ttclid",
    ("ttclid", "40002"),
    "access_token",
)
WEBHOOK = Case(
    "webhook",
    FakeWebhook,
    lambda fake: Webhook(allow_private=True),
    {"secret": SECRET},
    "gclid",
    ("422", "HTTP_422"),
    "secret",
    of_url={"url": "/in/PATHcanary"},
    one_request_per_row=True,
    reads_bodies=False,
)
CASES = [GOOGLE_ADS, GOOGLE_DATAMANAGER, META, TIKTOK, WEBHOOK]
