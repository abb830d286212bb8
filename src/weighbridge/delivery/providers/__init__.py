"""The built-in providers and the user's own: from modules named in a setting, or from installed packages.

base             the interface of a provider
addresses        the webhook addresses that are allowed
connections      pooled connections to providers
answers          requests, and strict parsing of responses; every failure has a code
split            sends a batch in halves
all_or_nothing   sending to Meta and TikTok: one bad event fails the whole request
meta_capi        Meta Conversions API
tiktok_events    TikTok Events API
google           sending to Google: google_oauth has the credentials, google_rows checks and writes rows
google_ads       Google Ads API; google_errors classifies its errors
google_datamanager  Google Data Manager API
webhook          the user's own webhook
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any

from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.providers.google_ads import GoogleAds
from weighbridge.delivery.providers.google_datamanager import GoogleDataManager
from weighbridge.delivery.providers.meta_capi import MetaCapi
from weighbridge.delivery.providers.tiktok_events import TikTokEvents
from weighbridge.delivery.providers.webhook import Webhook
from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.find_declarations import Declarations

GROUP = "weighbridge.providers"
SETTING = "WEIGHBRIDGE_PROVIDERS"
URLS = "WEIGHBRIDGE_PROVIDER_URLS"
BUILT_IN = (GoogleAds, GoogleDataManager, MetaCapi, TikTokEvents, Webhook)
_ATTRIBUTES = ("name", "max_batch", "clicks", "window", "window_from", "needs", "send")


def find(
    modules: Sequence[str] = (),
    *,
    urls: Mapping[str, str] | None = None,
    allow_private: bool | Collection[str] = False,
) -> dict[str, Provider]:
    """All providers by name. `modules` are "shop.ads" or "shop.ads:criteo", as in the setting.

    `urls`: where built-in ones are found instead. `allow_private`: hosts of webhooks that need not be public, or all.
    """
    return _DECLARATIONS.add_to(_built_in(urls or {}, allow_private), modules)


def _built_in(urls: Mapping[str, str], allow_private: bool | Collection[str]) -> dict[str, Provider]:
    names = [adapter.name for adapter in BUILT_IN]
    for name in urls:
        if name not in names:
            raise ConfigError(
                f"{URLS}: '{name}' is not a built-in provider{did_you_mean(name, names) or '.'}"
            )
    found: dict[str, Provider] = {}
    for adapter in BUILT_IN:
        options: dict[str, Any] = {"base_url": urls[adapter.name]} if adapter.name in urls else {}
        if adapter is Webhook:
            options["allow_private"] = allow_private
        found[adapter.name] = adapter(**options)
    return found


def _is_provider(value: object) -> bool:
    """An instance, not a class."""
    return not isinstance(value, type) and iscoroutinefunction(getattr(value, "send", None))


def _check(origin: str, provider: Provider) -> None:
    missing = [name for name in _ATTRIBUTES if not hasattr(provider, name)]
    if missing:
        raise ConfigError(
            f"{origin}: a provider must have {', '.join(missing)}; see weighbridge.delivery.providers.base."
        )


_DECLARATIONS = Declarations[Provider]("provider", SETTING, GROUP, is_one=_is_provider, check=_check)
