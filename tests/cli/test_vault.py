"""`weighbridge vault`: create a key, rotate keys, and name unreadable credentials."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from weighbridge.delivery import credential_queries
from weighbridge.delivery.vault import Vault, new_key
from weighbridge.postgres.transactions import Database

from .conftest import Command
from .outbound import KEY, Query, delivering, google, sell, shop  # noqa: F401

# ruff: noqa: F811


def key_id(key: str) -> str:
    return Vault.open(key).key_ids[0]


def test_a_new_key_is_all_that_stdout_has(main: Command) -> None:
    made = main("vault", "key")
    assert (made.code, len(made.out.split())) == (0, 1)
    assert f"This is key {key_id(made.out)}." in made.err
    assert main("vault", "key").out != made.out
    told = main("vault", "key", "--json").json
    assert told["key_id"] == key_id(told["key"])


def test_keys_are_changed_and_credentials_stay_readable(delivering: Command, shop: str, query: Query) -> None:
    new = new_key()
    before = query("SELECT ciphertext, version FROM provider_credentials")
    both = {"WEIGHBRIDGE_VAULT_KEY": f"{new},{KEY}"}
    status = delivering("vault", "status", "--json", **both).json
    assert status == {
        "keys": [
            {"key_id": key_id(new), "seals": True, "credentials": 0},
            {"key_id": key_id(KEY), "seals": False, "credentials": 1},
        ],
        "unknown": [],
    }
    done = delivering("vault", "rotate", "--json", **both)
    assert (done.code, done.json) == (0, {"key_id": key_id(new), "resealed": 1, "unreadable": []})
    again = delivering("vault", "rotate", **both)
    assert (again.code, again.out) == (0, f"All credentials already use key {key_id(new)}.\n")
    [(ciphertext, version)] = query("SELECT ciphertext, version FROM provider_credentials")
    assert (version, ciphertext == before[0][0]) == (1, False)
    alone = delivering("vault", "status", WEIGHBRIDGE_VAULT_KEY=new)
    assert (alone.code, alone.err) == (0, "")
    [group] = delivering("providers", "status", "--json", WEIGHBRIDGE_VAULT_KEY=new).json
    assert group["credentials"]["key_known"] is True


def test_unreadable_credentials_are_named_and_the_others_are_processed(
    delivering: Command, shop: str, query: Query
) -> None:
    other = delivering("sites", "create", "Store", "--provider", "google_ads", "--json").json["site_id"]
    assert delivering("providers", "credentials", "Store", "google_ads", "google.json").code == 0
    query("UPDATE provider_credentials SET ciphertext = '\\x00' || ciphertext WHERE site_id = %s", (other,))
    new = new_key()
    done = delivering("vault", "rotate", "--json", WEIGHBRIDGE_VAULT_KEY=f"{new},{KEY}")
    assert (done.code, done.json["resealed"]) == (1, 1)
    assert [each["site_id"] for each in done.json["unreadable"]] == [other]
    assert f"The credentials of site {other} for google_ads cannot be decrypted" in done.err


def test_credentials_of_a_lost_key_are_reported(delivering: Command, shop: str) -> None:
    new = new_key()
    status = delivering("vault", "status", "--json", WEIGHBRIDGE_VAULT_KEY=new)
    assert (status.code, status.json["unknown"]) == (1, [{"key_id": key_id(KEY), "credentials": 1}])
    rotated = delivering("vault", "rotate", WEIGHBRIDGE_VAULT_KEY=new)
    assert (rotated.code, f"need the key {key_id(KEY)}" in rotated.err) == (1, True)
    assert (
        f"the key {key_id(KEY)} is missing"
        in delivering("providers", "status", WEIGHBRIDGE_VAULT_KEY=new).out
    )


def test_all_readable_credentials_are_encrypted_again_in_several_transactions(
    delivering: Command, shop: str, query: Query
) -> None:
    """Half of them are under a lost key: more than a page that stays as it is."""
    made = query(
        "INSERT INTO sites (workspace_id, name) SELECT workspace_id, 'Site ' || n FROM sites, generate_series(1, 220) n"
        " RETURNING id, workspace_id"
    )
    vaults = (Vault.open(KEY), Vault.open(new_key()))
    sealed = [vaults[at % 2].seal(site, "webhook", {"secret": "x"}, 1) for at, (site, _) in enumerate(made)]
    query(
        "INSERT INTO provider_credentials (site_id, workspace_id, provider_key, version, key_id, nonce, ciphertext)"
        " SELECT s, w, 'webhook', 1, k, n, c"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::bytea[], %s::bytea[]) AS _ (s, w, k, n, c)",
        (
            *([row[column] for row in made] for column in (0, 1)),
            *([getattr(each, name) for each in sealed] for name in ("key_id", "nonce", "ciphertext")),
        ),
    )
    new = new_key()
    done = delivering("vault", "rotate", "--json", WEIGHBRIDGE_VAULT_KEY=f"{new},{KEY}")
    assert (done.code, done.json["resealed"], len(done.json["unreadable"])) == (1, 111, 110)
    assert query("SELECT count(*) FROM provider_credentials WHERE key_id = %s", (key_id(new),)) == [(111,)]


def test_without_a_key_it_is_said_how_to_make_one(delivering: Command) -> None:
    rotated = delivering("vault", "rotate", WEIGHBRIDGE_VAULT_KEY="")
    assert (rotated.code, "`weighbridge vault key` creates one." in rotated.err) == (1, True)
    assert (
        "Create a key with: weighbridge vault key"
        in delivering("vault", "status", WEIGHBRIDGE_VAULT_KEY="").out
    )
    wrong = delivering("vault", "status", WEIGHBRIDGE_VAULT_KEY="aHVudGVyMg==")
    assert (wrong.code, "got 7 bytes" in wrong.err, "aHVudGVyMg" in wrong.err) == (1, True, False)


async def test_credentials_cannot_be_replaced_while_they_are_encrypted_again(
    shop: str, db: Database, query: Query
) -> None:
    async with db.tx() as tx:
        [found] = await credential_queries.sealed_with_other_keys(tx, "another", None, 10)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            query("SET lock_timeout = '50ms'; DELETE FROM provider_credentials")
        assert await credential_queries.reseal(tx, replace(found, key_id="another"))
        assert not await credential_queries.reseal(tx, replace(found, version=2))
    assert query("SELECT key_id, version FROM provider_credentials") == [("another", 1)]
