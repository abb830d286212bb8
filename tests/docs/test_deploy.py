"""deploy/: the units start commands that exist, with settings that exist, and the proxy names routes that exist."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import uvicorn

from weighbridge.api import create
from weighbridge.app import App
from weighbridge.settings import Settings, read

from .pages import ROOT
from .test_commands import wrong

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ENVIRONMENT = DEPLOY / "systemd" / "environment.example"
PROXY = (DEPLOY / "nginx" / "weighbridge.conf").read_text()
FOREIGN = re.compile(r"AWS_[A-Z_]+")  # read by the client of the bucket


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]


def known_names() -> set[str]:
    names = set()
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        names |= {alias} if isinstance(alias, str) else {f"WEIGHBRIDGE_{name.upper()}"}
    return names


def named(text: str) -> set[str]:
    """The variables of the file, also those that are commented out."""
    return set(re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    program, *words = service(unit)["ExecStart"].split()
    assert program == "/opt/weighbridge/bin/weighbridge"
    assert wrong(words) == ""
    assert wrong([*words, "--no-such-option"]) != ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_allows_enough_time_to_stop(unit: Path) -> None:
    delivers = "api" not in service(unit)["ExecStart"].split()
    longest_call = read().semaphore_ttl_ms / 1000 * 3 / 4
    assert int(service(unit)["TimeoutStopSec"]) > (longest_call if delivers else 10)


def test_the_example_has_settings_that_exist() -> None:
    found = named(ENVIRONMENT.read_text())
    assert {"DATABASE_URL", "WEIGHBRIDGE_BLOB_URL", "REDIS_URL"} <= found
    assert {name for name in found if not FOREIGN.fullmatch(name)} <= known_names()
    assert "WEIGHBRIDGE_BLOBS" not in known_names()


async def test_the_proxy_names_routes_that_exist(app: App) -> None:
    routes = set(create(app).openapi()["paths"]) | {"/api/ws"}  # OpenAPI does not describe WebSockets
    places = re.findall(r"location (?:= )?(/\S*) \{", PROXY)
    assert len(places) > 4
    assert [place for place in places if not any(route.startswith(place) for route in routes)] == []


def test_the_address_of_a_proxy_is_trusted_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "FORWARDED_ALLOW_IPS"
    assert all(variable in (ROOT / "docs" / f"{name}.md").read_text() for name in ("deployment", "console"))
    monkeypatch.delenv(variable, raising=False)
    assert "127.0.0.1" in str(uvicorn.Config(create).forwarded_allow_ips).split(",")
    monkeypatch.setenv(variable, "10.0.0.7")
    assert uvicorn.Config(create).forwarded_allow_ips == "10.0.0.7"


def test_the_proxy_waits_longer_than_weighbridge_does() -> None:
    seconds = read().sender_seconds
    for name in ("client_body_timeout", "proxy_read_timeout"):
        [first, *_] = re.findall(rf"{name} (\d+)s;", PROXY)
        assert int(first) > seconds


def test_the_proxy_accepts_the_largest_file() -> None:
    [size] = re.findall(r"client_max_body_size (\d+)m;", PROXY)
    assert int(size) > read().max_upload_mb
