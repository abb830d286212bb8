"""`weighbridge doctor` about deliveries: the vault's keys, credentials whose key is gone, slots."""

from __future__ import annotations

from pathlib import Path

from tests.slots.redis_server import RedisServer
from weighbridge.delivery.vault import Vault, new_key

from .conftest import Command
from .outbound import KEY, Query, delivering, google, sell, shop  # noqa: F401
from .test_doctor import found

# ruff: noqa: F811


def test_all_keys_of_the_vault_are_read_and_listed_by_id(delivering: Command) -> None:
    new = new_key()
    first, second = Vault.open(f"{new},{KEY}").key_ids
    done = delivering("doctor", "--json", WEIGHBRIDGE_VAULT_KEY=f"{new},{KEY}")
    check = found(done, "vault key")
    assert (check["status"], check["found"]) == (
        "ok",
        f"{first} encrypts new credentials; {second} only for reading.",
    )
    wrong = delivering("doctor", "--json", WEIGHBRIDGE_VAULT_KEY=f"{new},aHVudGVyMg==")
    check = found(wrong, "vault key")
    assert (wrong.code, check["status"]) == (1, "failed")
    assert "got 7 bytes (key 2 of 2)" in check["found"]


def test_credentials_without_their_key_are_reported(delivering: Command, shop: str) -> None:
    well = found(delivering("doctor", "--json"), "credentials")
    assert (well["status"], well["found"]) == ("ok", "1 stored; the vault has all their keys.")
    for key in (new_key(), ""):
        done = delivering("doctor", "--json", WEIGHBRIDGE_VAULT_KEY=key)
        check = found(done, "credentials")
        assert (done.code, check["status"]) == (1, "failed")
        assert f"1 need key {Vault.open(KEY).key_ids[0]}" in check["found"]


def test_a_new_key_is_made_by_the_command_for_it(main: Command) -> None:
    check = found(main("doctor", "--json", WEIGHBRIDGE_VAULT_KEY=""), "vault key")
    assert check["fix"] == "export WEIGHBRIDGE_VAULT_KEY=$(weighbridge vault key)"


def test_groups_to_which_nothing_is_sent_are_warned_of(delivering: Command, shop: str, query: Query) -> None:
    assert found(delivering("doctor", "--json"), "deliveries")["status"] == "ok"
    query(
        "INSERT INTO provider_health_state (site_id, provider_key, workspace_id, state, failure_count, next_probe_at)"
        " SELECT id, 'google_ads', workspace_id, 'OPEN', 5, now() + interval '5 minutes' FROM sites"
    )
    check = found(delivering("doctor", "--json"), "deliveries")
    assert check["found"].startswith("google_ads of Shop: its circuit is open, next probe ")
    assert (check["status"], f"weighbridge providers reset {shop} google_ads" in check["fix"]) == (
        "warning",
        True,
    )
    query("UPDATE provider_credentials SET refused_at = now(), refused_code = 'OAUTH_TOKEN_INVALID'")
    check = found(delivering("doctor", "--json"), "deliveries")
    assert check["found"] == "google_ads of Shop: its credentials are refused (OAUTH_TOKEN_INVALID)."
    assert check["fix"] == f"weighbridge providers credentials {shop} google_ads"
    query("UPDATE sites SET providers = '{webhook}'")  # nobody waits for it any more
    assert found(delivering("doctor", "--json"), "deliveries")["status"] == "ok"


def test_a_redis_is_tried_and_its_password_never_shown(main: Command, tmp_path: Path, query: Query) -> None:
    assert (
        found(main("doctor", "--json"), "slots")["found"]
        == "Concurrent calls to providers are limited with Postgres."
    )
    with RedisServer(tmp_path / "redis", password="hunter2") as redis:
        done = main("doctor", "--json", REDIS_URL=redis.url)
        assert (found(done, "slots")["status"], done.code) == ("ok", 0)
        assert redis("KEYS", "*") == []
        refused = main("doctor", "--json", REDIS_URL=redis.url.replace("hunter2", "hunter3"))
        assert "it refuses the user or password of REDIS_URL" in found(refused, "slots")["found"]
        redis.kill()
        away = main("doctor", "--json", REDIS_URL=redis.url)
    assert (away.code, found(away, "slots")["status"]) == (1, "failed")
    assert "it is unreachable, or the connection was closed" in found(away, "slots")["found"]
    wrong = main("doctor", "--json", REDIS_URL="hunter2://nowhere")
    assert (wrong.code, found(wrong, "slots")["status"]) == (1, "failed")
    for shown in (done, refused, away, wrong):
        assert "hunter" not in shown.out + shown.err


def test_excess_rights_on_delivery_tables_are_reported(main: Command, query: Query) -> None:
    assert found(main("doctor", "--json"), "roles")["status"] == "ok"
    query("GRANT SELECT ON provider_credentials TO weighbridge_tenant")
    query("GRANT UPDATE ON offline_conversion_queue TO weighbridge_deliver")
    told = found(main("doctor", "--json"), "roles")["found"]
    assert "weighbridge_tenant may SELECT public.provider_credentials" in told
    assert "weighbridge_deliver may UPDATE public.offline_conversion_queue" in told
