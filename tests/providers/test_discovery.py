"""Providers are found: the built-in ones, those of a setting, those of installed packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from weighbridge.delivery import providers
from weighbridge.delivery.providers import find
from weighbridge.delivery.providers.base import Confirms
from weighbridge.model import find_declarations
from weighbridge.model.errors import ConfigError
from weighbridge.testing.fake_providers import FAKES

OWN = """
class Own:
    name, max_batch, clicks, window, window_from, needs = {name!r}, 10, ("gclid",), None, "event", ()
    async def send(self, batch, http):
        return []

class Half:
    name = "half"
    async def send(self, batch, http):
        return []

own = Own()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module that declares a provider `own`."""
    name = f"ads_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(OWN.format(name="own"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_five_providers_are_built_in_and_each_has_a_fake() -> None:
    names = ["google_ads", "google_datamanager", "meta_capi", "tiktok_events", "webhook"]
    assert list(find()) == names == sorted(FAKES)
    assert all(provider.name == name for name, provider in find().items())
    assert [name for name, provider in find().items() if isinstance(provider, Confirms)] == [
        "google_datamanager"
    ]


def test_every_built_in_provider_declares_its_credentials_click_ids_and_limits() -> None:
    for provider in find().values():
        assert any(needed.required and needed.secret for needed in provider.needs)
        assert provider.max_batch > 0
        assert provider.clicks
        assert provider.window_from in ("click", "event")


def test_a_provider_of_a_module_is_found(module: str) -> None:
    assert find([module])["own"] is find([f"{module}:own"])["own"]


def test_the_address_of_a_built_in_provider_can_be_set() -> None:
    urls = dict.fromkeys(find(), "http://127.0.0.1:9")
    assert list(find(urls=urls)) == list(urls)
    with pytest.raises(ConfigError, match="did you mean 'meta_capi'"):
        find(urls={"meta_cap": "http://127.0.0.1:9"})


def test_a_provider_that_cannot_be_found_is_explained(module: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'owm' is not a provider in .*; did you mean 'own'"):
        find([f"{module}:owm"])
    with pytest.raises(ConfigError, match="WEIGHBRIDGE_PROVIDERS: cannot import 'nowhere'"):
        find(["nowhere"])
    (tmp_path / "empty_ads.py").write_text("from weighbridge.delivery.providers.webhook import Webhook")
    with pytest.raises(ConfigError, match="contains no provider"):
        find(["empty_ads"])
    (tmp_path / "half_ads.py").write_text(f"from {module} import Half\nhalf = Half()")
    with pytest.raises(ConfigError, match="half_ads:half: a provider must have max_batch, clicks"):
        find(["half_ads"])
    (tmp_path / "broken_ads.py").write_text("x = 1\n1 / 0")
    with pytest.raises(ConfigError, match=r"ZeroDivisionError: division by zero \(.*broken_ads.py, line 2\)"):
        find(["broken_ads"])


def test_a_provider_name_is_unique(module: str, tmp_path: Path) -> None:
    (tmp_path / "second_ads.py").write_text(OWN.format(name="webhook"))
    with pytest.raises(ConfigError, match="there is already a provider called 'webhook'"):
        find(["second_ads"])


def test_a_provider_of_an_installed_package_is_found(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(value: str) -> None:
        entry = EntryPoint("own", f"{module}:{value}", providers.GROUP)
        monkeypatch.setattr(
            find_declarations, "installed", lambda group: [entry] if group == providers.GROUP else []
        )

    installed("own")
    assert find()["own"].max_batch == 10
    installed("Own")
    with pytest.raises(
        ConfigError, match=r"Entry point own of weighbridge.providers: expected a provider, got type"
    ):
        find()
    installed("nothing")
    with pytest.raises(ConfigError, match=r"Entry point own of weighbridge.providers: cannot import"):
        find()
