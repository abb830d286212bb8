"""The API as it delivers: with a vault, a secret for the schedule, and providers that are fakes on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from tests.conftest import worked_out
from weighbridge.api import create
from weighbridge.app import App, open_app
from weighbridge.delivery.vault import new_key
from weighbridge.settings import read

from .conftest import new_key as new_api_key

OCCURRED = datetime.now(UTC) - timedelta(hours=30)
SECRET = "cron-secret-canary"
CRON = {"Authorization": f"Bearer {SECRET}"}
PROCESS = "/api/cron/process-offline-conversions"
RECOVER = "/api/cron/providers/recover-processing"
SEED = "/api/cron/providers/seed-credentials"
GOOGLE_ADS = {
    "customer_id": "123-456-7890",
    "developer_token": "TOKENcanary",
    "client_id": "4711.apps.googleusercontent.com",
    "client_secret": "SECRETcanary",
    "refresh_token": "REFRESHcanary",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/987",
}


@dataclass(frozen=True)
class Service:
    app: App
    client: httpx.AsyncClient
    key: dict[str, str]
    workspace: UUID

    async def ask(self, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
        answer = await self.client.request(method, path, **{"headers": self.key, **more})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def site(self, *providers: str, name: str = "Shop") -> str:
        body = {"name": name, "providers": list(providers or ("google_ads",))}
        return str((await self.ask("POST", "/api/sites", status=201, json=body))["site_id"])

    async def seeded(self, **more: Any) -> str:
        """A site with credentials for google_ads."""
        site = await self.site(**more)
        body = {"site_id": site, "provider_key": "google_ads", "credentials": GOOGLE_ADS}
        assert await self.ask("POST", SEED, headers=CRON, json=body) == {"ok": True}
        return site

    async def sell(self, site: str, *orders: str, **more: Any) -> list[dict[str, Any]]:
        """Conversions of yesterday, by the click gclid-canary-…"""
        body = {"conversions": [{**self.one(site, order), **more} for order in orders]}
        told = await self.ask("POST", "/api/conversions", status=202, json=body)
        found: list[dict[str, Any]] = told["conversions"]
        return found

    @staticmethod
    def one(site: str, order: str = "order-1") -> dict[str, Any]:
        return {
            "site_id": site,
            "order_id": order,
            "occurred_at": OCCURRED.isoformat(),
            "gclid": f"gclid-canary-{order}",
            "value": 12.5,
            "currency": "EUR",
        }


@asynccontextmanager
async def serving(
    database_url: str, home: Path, workspace: UUID, url: str | None = None, **settings: Any
) -> AsyncIterator[Service]:
    """The whole service. `url`: of the fake that google_ads is."""
    usual: dict[str, Any] = {"vault_key": new_key(), "CRON_SECRET": SECRET, "environment": "staging"}
    if url:
        usual["provider_urls"] = (f"google_ads={url}",)
    chosen = {name: value for name, value in {**usual, **settings}.items() if value is not None}
    async with open_app(read(home=home, DATABASE_URL=database_url, **chosen)) as app:
        transport = httpx.ASGITransport(worked_out(create(app)), raise_app_exceptions=False)
        key = await new_api_key(app.db, workspace, ("admin",))
        async with httpx.AsyncClient(transport=transport, base_url="http://weighbridge") as client:
            yield Service(app, client, key, workspace)
