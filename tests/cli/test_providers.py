"""`weighbridge providers`: required credentials, status of groups, write-only credentials, reset and recovery."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from weighbridge.testing.fake_providers import FakeGoogleAds, Fault

from .conftest import Command
from .outbound import GOOGLE_ADS, KEY, Query, Sell, delivering, google, sell, shop  # noqa: F401
from .terminal import at_this_terminal, shown_on

# ruff: noqa: F811


def test_the_list_shows_the_credentials_that_each_provider_needs(main: Command) -> None:
    listed = {each["name"]: each for each in main("providers", "list", "--json").json}
    assert set(listed) == {"google_ads", "google_datamanager", "meta_capi", "tiktok_events", "webhook"}
    assert listed["google_ads"]["clicks"] == ["gclid", "gbraid", "wbraid"]
    assert (listed["google_ads"]["window_days"], listed["webhook"]["window_days"]) == (90, None)
    [token] = [need for need in listed["google_ads"]["needs"] if need["name"] == "developer_token"]
    assert (token["required"], token["secret"]) == (True, True)
    assert "conversion_action_resource_name  required" in main("providers", "list").out


def test_the_status_of_a_group_shows_what_blocks_it(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds
) -> None:
    sell_to = delivering("sites", "change", "Shop", "--provider", "google_ads", "--provider", "meta_capi")
    assert sell_to.code == 0
    sell(UUID(shop), 3)
    google.refuse("order-2", "INVALID_GCLID")
    delivering("deliver", "--once")
    groups = {group["provider"]: group for group in delivering("providers", "status", "--json").json}
    assert groups["google_ads"]["circuit"] == {"state": "CLOSED", "failure_count": 0, "next_probe_at": None}
    assert groups["google_ads"]["totals"]["completed_total"] == 2
    assert (groups["google_ads"]["waiting"], groups["google_ads"]["failed"]) == (0, 1)
    assert (groups["meta_capi"]["waiting"], groups["meta_capi"]["credentials"]) == (3, None)
    lines = delivering("providers", "status", "--site", "Shop").out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["Shop", "google_ads", "closed", "0", "0", "1", "2"],
        ["Shop", "meta_capi", "closed", "3", "0", "0", "0"],
    ]
    assert lines[3:] == [f"  No credentials: weighbridge providers credentials {shop} meta_capi"]


def test_conversions_in_a_call_are_counted(delivering: Command, shop: str, sell: Sell, query: Query) -> None:
    sell(UUID(shop), 3)
    query("SELECT claim_offline_conversion_jobs_v2(%s, 'google_ads', 2)", (shop,))
    [group] = delivering("providers", "status", "--json").json
    assert (group["waiting"], group["in_call"], group["failed"]) == (1, 2, 0)
    line = delivering("providers", "status").out.splitlines()[1]
    assert line.split() == ["Shop", "google_ads", "closed", "1", "2", "0", "0"]


def test_the_status_fits_a_terminal_of_80_columns(
    environment: dict[str, str], shop: str, query: Query
) -> None:
    query("UPDATE sites SET providers = '{google_ads,google_datamanager}', name = 'Shop of many words'")
    query("UPDATE provider_credentials SET refused_at = now(), refused_code = 'OAUTH_TOKEN_INVALID'")
    lines = shown_on(80, {**environment, "WEIGHBRIDGE_VAULT_KEY": KEY}, "providers", "status")
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["site", "provider", "circuit", "waiting", "in", "call", "failed", "delivered"]
    assert lines[1].split() == ["Shop", "of", "many", "google_ads", "closed", "0", "0", "0", "0"]
    assert lines[2] == "words"
    assert lines[3].startswith("  Credentials refused since ")
    assert "google_datamanager" in lines[5]


def test_an_open_circuit_and_refused_credentials_show_and_are_reset(
    delivering: Command, shop: str, query: Query
) -> None:
    query(
        "INSERT INTO provider_health_state (site_id, provider_key, workspace_id, state, failure_count, next_probe_at)"
        " SELECT id, 'google_ads', workspace_id, 'OPEN', 5, now() + interval '5 minutes' FROM sites"
    )
    query("UPDATE provider_credentials SET refused_at = now(), refused_code = 'OAUTH_TOKEN_INVALID'")
    shown = delivering("providers", "status").out
    assert "open" in shown
    assert "next probe" in shown
    assert "Credentials refused since" in shown
    assert "(OAUTH_TOKEN_INVALID)" in shown
    done = delivering("providers", "reset", "Shop", "google_ads", "--json")
    assert done.json == {"site_id": shop, "provider": "google_ads", "state": "CLOSED"}
    [group] = delivering("providers", "status", "--json").json
    assert (group["circuit"]["state"], group["credentials"]["refused_at"]) == ("CLOSED", None)
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'provider.reset'") == [
        ("command line",)
    ]
    wrong = delivering("providers", "reset", "Shop", "gogle_ads")
    assert (wrong.code, "PROVIDER: expected one of" in wrong.err) == (2, True)


def test_credentials_go_in_from_a_file_or_from_stdin_and_never_come_out(
    delivering: Command, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert delivering("sites", "create", "Shop", "--provider", "google_ads").code == 0
    (tmp_path / "google.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOGLE_ADS).encode())
    done = delivering("providers", "credentials", "Shop", "google_ads", "google.json", "--json")
    assert (done.code, done.json["version"], done.json["in_use"]) == (0, 1, True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(GOOGLE_ADS).encode())))
    again = delivering("providers", "credentials", "Shop", "google_ads", "-")
    assert (again.code, "(version 2, key " in again.out) == (0, True)
    [(held,)] = query("SELECT ciphertext FROM provider_credentials")
    assert b"canary" not in held
    assert query("SELECT actor FROM weighbridge.audit_log WHERE action = 'credentials.set'") == [
        ("command line",),
        ("command line",),
    ]


def test_credentials_of_a_provider_that_is_not_the_sites_say_how_it_becomes_one(
    delivering: Command, tmp_path: Path
) -> None:
    site = delivering("sites", "create", "Shop", "--provider", "webhook", "--json").json["site_id"]
    (tmp_path / "google.json").write_text(json.dumps(GOOGLE_ADS))
    done = delivering("providers", "credentials", "Shop", "google_ads", "google.json")
    assert f"weighbridge sites change {site} --provider webhook --provider google_ads" in done.err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"customer_id": "123-456-7890"}', "google_ads requires developer_token (from the API centre"),
        (json.dumps({**GOOGLE_ADS, "refresh_tokn": "x"}).encode(), "did you mean 'refresh_token'?"),
        (b'["TOKENcanary"]', "got other JSON."),
        (b'{"developer_token": "TOKENcanary', "got text that is not JSON."),
        (b'"TOKENcanary\xff"', "got text that is not UTF-8."),
        (b'{"developer_token": 4711}', "developer_token: expected text"),
        (b"[" * 100_000, "got text that is not JSON."),
        (b" " * 2**20 + b"{}", "got more than a megabyte."),
    ],
)
def test_errors_of_credentials_do_not_contain_them(
    delivering: Command, shop: str, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "google.json").write_bytes(content)
    done = delivering("providers", "credentials", "Shop", "google_ads", "google.json")
    assert (done.code, sentence in done.err) == (1, True), done.err


def test_where_credentials_cannot_come_from_is_told(delivering: Command, shop: str) -> None:
    missing = delivering("providers", "credentials", "Shop", "google_ads", "gone.json")
    assert (missing.code, "gone.json cannot be read: No such file or directory." in missing.err) == (2, True)
    nowhere = delivering("providers", "credentials", "Shop", "google_ads")
    assert (nowhere.code, "- for stdin, or a terminal for the prompts." in nowhere.err) == (2, True)
    unknown = delivering("providers", "credentials", "Shop", "gogle_ads", "google.json")
    assert (unknown.code, "did you mean 'google_ads'?" in unknown.err) == (1, True)
    keyless = delivering(
        "providers", "credentials", "Shop", "google_ads", "google.json", WEIGHBRIDGE_VAULT_KEY=""
    )
    assert (keyless.code, "weighbridge vault key" in keyless.err) == (1, True)


def test_on_a_terminal_they_are_asked_for_and_secrets_do_not_show(
    environment: dict[str, str], main: Command, query: Query, tmp_path: Path
) -> None:
    assert main("sites", "create", "Shop", "--provider", "meta_capi").code == 0
    typed = {"dataset_id": "4711", "access_token": "TOKENcanary", "test_event_code": "", "event_name": ""}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ.update({**environment, "WEIGHBRIDGE_VAULT_KEY": KEY})
        os._exit(at_this_terminal("providers", "credentials", "Shop", "meta_capi"))
    shown = b""
    for name in (*typed, "action_source"):
        while f"{name} (".encode() not in shown:
            shown += os.read(terminal, 4096)
        while not shown.endswith(b": "):
            shown += os.read(terminal, 4096)
        os.write(terminal, f"{typed.get(name, '')}\n".encode())
    with suppress(OSError):  # when the terminal is gone
        while True:
            shown += os.read(terminal, 4096)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    assert b"4711" in shown
    assert b"TOKENcanary" not in shown
    assert query("SELECT provider_key, version FROM provider_credentials") == [("meta_capi", 1)]


def test_credentials_are_forgotten_after_a_question(
    delivering: Command, shop: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    kept = delivering("providers", "credentials", "Shop", "google_ads", "--remove")
    assert (kept.code, query("SELECT count(*) FROM provider_credentials")) == (1, [(1,)])
    done = delivering("providers", "credentials", "Shop", "google_ads", "--remove", "--yes", "--json")
    assert done.json == {"site_id": shop, "provider": "google_ads", "removed": True}
    assert query("SELECT count(*) FROM provider_credentials") == [(0,)]
    again = delivering("providers", "credentials", "Shop", "google_ads", "--remove", "--yes")
    assert (again.code, "Shop has no credentials for google_ads." in again.err) == (1, True)


def test_new_credentials_say_how_what_failed_without_them_is_tried_again(
    delivering: Command, shop: str, sell: Sell, google: FakeGoogleAds
) -> None:
    sell(UUID(shop), 2)
    google.script(Fault.status(403))
    assert delivering("deliver", "--once", "--json").json["failed"] == 2
    hint = delivering("providers", "credentials", "Shop", "google_ads", "google.json").err
    assert f"weighbridge conversions retry --site {shop} --provider google_ads --category AUTH" in hint


def test_what_a_worker_left_in_the_middle_is_given_back(
    delivering: Command, shop: str, sell: Sell, query: Query, clock: Any
) -> None:
    sell(UUID(shop), 2)
    query("SELECT claim_offline_conversion_jobs_v2(%s, 'google_ads', 5)", (shop,))
    assert delivering("providers", "recover").out == "Nothing to recover.\n"
    clock.forward(minutes=16)
    assert delivering("providers", "recover", "--json").json == {"ok": True, "recovered": 2}
    assert query("SELECT DISTINCT status FROM offline_conversion_queue") == [("RETRY",)]
