"""The built-in providers and the user's own: from modules named in a setting, or from installed packages.

base             the interface of a provider
addresses        the webhook addresses that are allowed
connections      pooled connections to providers
answers          requests, and strict parsing of responses; every failure has a code
split            sends a batch in parts
all_or_nothing   sending to Meta and TikTok: one bad event fails the whole request
meta_capi        Meta Conversions API
tiktok_events    TikTok Events API
google           sending to Google: google_oauth has the credentials, google_rows checks and writes rows
google_ads       Google Ads API; google_errors classifies its errors
google_datamanager  Google Data Manager API
webhook          the user's own webhook
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any

from weighbridge.delivery.providers.base import Provider
from weighbridge.delivery.providers.google_ads import GoogleAds
from weighbridge.delivery.providers.google_datamanager import GoogleDataManager
from weighbridge.delivery.providers.meta_capi import MetaCapi
from weighbridge.delivery.providers.tiktok_events import TikTokEvents
from weighbridge.delivery.providers.webhook import Webhook
from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.imports import explained, imported, installed

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
    found = _built_in(urls or {}, allow_private)
    for origin, provider in [*_from_modules(modules), *_from_packages()]:
        if found.get(provider.name, provider) is not provider:
            raise ConfigError(
                f"{origin}: there is already a provider called '{provider.name}'; choose another name."
            )
        found[provider.name] = provider
    return found


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


def _from_modules(modules: Sequence[str]) -> Iterator[tuple[str, Provider]]:
    for named in modules:
        module_name, _, attribute = named.partition(":")
        module = imported(module_name, SETTING)
        declared = {name: value for name, value in vars(module).items() if _is_meant(value)}
        if attribute and attribute not in declared:
            raise ConfigError(
                f"{SETTING}: '{attribute}' is not a provider in {module_name}"
                f"{did_you_mean(attribute, declared) or '.'}"
            )
        if not declared:
            raise ConfigError(f"{SETTING}: {module_name} contains no provider.")
        chosen = {name: value for name, value in declared.items() if attribute in ("", name)}
        yield from ((named, _checked(f"{SETTING}: {module_name}:{name}", chosen[name])) for name in chosen)


def _from_packages() -> Iterator[tuple[str, Provider]]:
    for entry in installed(GROUP):
        origin = f"Entry point {entry.name} of {GROUP}"
        with explained(f"{origin}: cannot import '{entry.value}'"):
            value = entry.load()
        if not _is_meant(value):
            raise ConfigError(f"{origin}: expected a provider, got {type(value).__name__}.")
        yield f"entry point {entry.name}", _checked(origin, value)


def _is_meant(value: object) -> bool:
    """Check that a value is a provider: an instance, not a class."""
    return not isinstance(value, type) and iscoroutinefunction(getattr(value, "send", None))


def _checked(origin: str, provider: Provider) -> Provider:
    missing = [name for name in _ATTRIBUTES if not hasattr(provider, name)]
    if missing:
        raise ConfigError(
            f"{origin}: a provider must have {', '.join(missing)}; see weighbridge.delivery.providers.base."
        )
    return provider
