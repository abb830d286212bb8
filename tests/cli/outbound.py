"""What the tests of commands about deliveries share: a vault, a fake Google Ads on a real socket, a site with sales."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deliver.conftest import Sell, sell
from weighbridge.cli.options import DEFAULT_WORKSPACE
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.testing.fake_providers import FakeGoogleAds

from .conftest import Command, Ended

Query = Callable[..., list[tuple[Any, ...]]]

KEY = new_key()
GOOGLE_ADS = {
    "customer_id": "123-456-7890",
    "developer_token": "TOKENcanary",
    "client_id": "4711.apps.googleusercontent.com",
    "client_secret": "SECRETcanary",
    "refresh_token": "REFRESHcanary",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/987",
}
SECRETS = ("TOKENcanary", "SECRETcanary", "REFRESHcanary", "gclid-canary", "fbclid-canary")


@pytest.fixture
def google() -> Iterator[FakeGoogleAds]:
    with FakeGoogleAds() as fake:
        yield fake


@pytest.fixture
def delivering(main: Command, google: FakeGoogleAds) -> Command:
    """The command with a vault, and with the fake in Google's place. Nothing that it prints is a secret."""

    def run(*arguments: object, **settings: str) -> Ended:
        usual = {
            "WEIGHBRIDGE_VAULT_KEY": KEY,
            "WEIGHBRIDGE_PROVIDER_URLS": f"google_ads={google.url}",
            **settings,
        }
        done = main(*arguments, **usual)
        for secret in (*SECRETS, *usual["WEIGHBRIDGE_VAULT_KEY"].split(",")):
            assert not secret or secret not in done.out + done.err
        return done

    return run


@pytest.fixture
def shop(delivering: Command, query: Query, tmp_path: Path) -> str:
    """The id of a site with credentials for Google Ads, which also lie in google.json."""
    (tmp_path / "google.json").write_text(json.dumps(GOOGLE_ADS))
    [(site,)] = query(
        "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, 'Shop', '{google_ads}') RETURNING id",
        (DEFAULT_WORKSPACE,),
    )
    sealed = Vault.open(KEY).seal(site, "google_ads", GOOGLE_ADS, 1)
    query(
        "SELECT weighbridge.set_credentials(%s, 'google_ads', 1, %s, %s, %s, 'test')",
        (site, sealed.key_id, sealed.nonce, sealed.ciphertext),
    )
    return str(site)


__all__ = ["GOOGLE_ADS", "KEY", "Query", "Sell", "delivering", "google", "sell", "shop"]
