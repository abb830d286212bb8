"""The vault: decryption, refusal of foreign rows, and no secret in any output."""

from __future__ import annotations

import base64
import copy
import json
import logging
import os
import pickle
import secrets
import traceback
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observe.conftest import Lines, lines  # noqa: F401 (a fixture)
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.vault import Sealed, Tampered, UnknownKey, Vault, VaultError, new_key
from weighbridge.model.errors import ConfigError

SITE, OTHER = UUID(int=1), UUID(int=2)
CANARY = "canary-5f1c-do-not-show"
VALUES = {"refresh_token": CANARY, "customer_id": "123-456-7890"}
OLD, NEW = new_key(), new_key()
VAULT = Vault.open(OLD)
SEALED = VAULT.seal(SITE, "google_ads", VALUES, 1)


def opened(
    sealed: Sealed, site: UUID = SITE, provider: str = "google_ads", vault: Vault = VAULT
) -> dict[str, str]:
    return dict(vault.unseal(site, provider, sealed))


# Encryption and decryption ----------------------------------------------------------------------------------


# Surrogates too: credentials are read from JSON, which may contain them.
@given(
    st.dictionaries(st.text(st.characters()), st.text(st.characters()), max_size=6),
    st.uuids(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(0, 2**31),
)
def test_encrypted_credentials_are_decrypted(
    values: dict[str, str], site: UUID, provider: str, version: int
) -> None:
    sealed = VAULT.seal(site, provider, values, version)
    assert sealed.version == version
    assert opened(sealed, site, provider) == values


def test_the_encryption_is_standard_aes_256_gcm() -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    plain, tag = SEALED.ciphertext[:-16], SEALED.ciphertext[-16:]
    key = algorithms.AES(base64.b64decode(OLD))
    decryptor = Cipher(key, modes.GCM(SEALED.nonce, tag)).decryptor()
    decryptor.authenticate_additional_data(b"00000000-0000-0000-0000-000000000001|google_ads|1")
    assert key.key_size == 256
    assert len(SEALED.nonce) == 12
    assert json.loads(decryptor.update(plain) + decryptor.finalize()) == VALUES


def test_the_same_credentials_never_have_the_same_ciphertext() -> None:
    many = [VAULT.seal(SITE, "google_ads", VALUES, 1) for _ in range(500)]
    assert len({sealed.nonce for sealed in many}) == len({sealed.ciphertext for sealed in many}) == 500


@pytest.mark.parametrize("value", [7, None, b"bytes", ["a list"]])
def test_only_strings_are_encrypted_and_the_error_has_only_the_name(value: object) -> None:
    with pytest.raises(TypeError, match="'client_id'") as raised:
        VAULT.seal(SITE, "google_ads", {"token": CANARY, "client_id": value}, 1)  # type: ignore[dict-item]
    assert CANARY not in everything_about(raised.value, since="seal")


# Site, provider and version of a row ------------------------------------------------------------------------


@given(st.data())
def test_a_row_is_decrypted_only_for_its_site_provider_and_version(data: st.DataObject) -> None:
    # Names that would be ambiguous if the three values were only concatenated.
    providers = st.sampled_from(
        ["a", "a|1", "a|1|1", "|a", "a|", "", f"{SITE}|a", "google_ads", "google_ads|1"]
    )
    whose = st.tuples(st.sampled_from([SITE, OTHER]), providers, st.sampled_from([0, 1, 11, 111]))
    mine, others = data.draw(whose), data.draw(whose)
    sealed = VAULT.seal(mine[0], mine[1], VALUES, mine[2])
    moved = replace(sealed, version=others[2])
    if mine == others:
        assert opened(moved, *others[:2]) == VALUES
    else:
        with pytest.raises(Tampered):
            opened(moved, *others[:2])


@pytest.mark.parametrize(
    ("site", "provider", "version"), [(OTHER, "google_ads", 1), (SITE, "webhook", 1), (SITE, "google_ads", 2)]
)
def test_the_error_of_a_copied_row_names_the_cause(site: UUID, provider: str, version: int) -> None:
    with pytest.raises(
        Tampered, match=f"site {site} for {provider}.*version {version}.*altered, or belongs to another"
    ):
        opened(replace(SEALED, version=version), site, provider)


@pytest.mark.parametrize("part", ["nonce", "ciphertext"])
def test_a_single_changed_bit_is_detected(part: str) -> None:
    whole = getattr(SEALED, part)
    for place in range(len(whole)):
        for bit in range(8):
            altered = bytearray(whole)
            altered[place] ^= 1 << bit
            with pytest.raises(Tampered):
                opened(replace(SEALED, **{part: bytes(altered)}))


@pytest.mark.parametrize("part", ["nonce", "ciphertext"])
def test_a_shortened_or_lengthened_row_is_detected(part: str) -> None:
    whole = getattr(SEALED, part)
    for cut in [whole[:n] for n in range(len(whole))] + [whole + b"\0", whole * 20]:
        with pytest.raises(Tampered):
            opened(replace(SEALED, **{part: cut}))


# Keys -------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from(["standard", "url-safe", "unpadded", "url-safe, unpadded"]),
)
def test_a_key_is_accepted_in_every_spelling_of_base64(raw: bytes, spelling: str) -> None:
    encode = base64.urlsafe_b64encode if "url" in spelling else base64.b64encode
    text = encode(raw).decode()
    text = text.rstrip("=") if "unpadded" in spelling else text
    sealed = Vault.open(base64.b64encode(raw).decode()).seal(SITE, "webhook", VALUES, 1)
    assert opened(sealed, SITE, "webhook", Vault.open(text)) == VALUES


@pytest.mark.parametrize("between", [",", " ", ", ", "\n", " ,\t"])
def test_the_first_key_encrypts_and_all_decrypt(between: str) -> None:
    both = Vault.open(f" {NEW}{between}{OLD}\n")
    assert both.key_ids == (Vault.open(NEW).key_ids[0], VAULT.key_ids[0])
    assert both.seal(SITE, "google_ads", VALUES, 1).key_id == both.key_ids[0]
    assert opened(SEALED, vault=both) == VALUES


def test_a_key_that_is_listed_twice_counts_once() -> None:
    assert Vault.open(f"{OLD},{OLD}").key_ids == VAULT.key_ids


def test_keys_rotate_old_then_both_then_new_alone() -> None:
    both, new = Vault.open(f"{NEW},{OLD}"), Vault.open(NEW)
    with pytest.raises(UnknownKey):
        opened(SEALED, vault=new)  # too early
    rotated = both.reseal(SITE, "google_ads", SEALED)
    assert (rotated.key_id, rotated.version) == (new.key_ids[0], SEALED.version)
    assert opened(rotated, vault=new) == VALUES
    assert both.reseal(SITE, "google_ads", rotated) is rotated
    with pytest.raises(UnknownKey):
        opened(rotated)
    with pytest.raises(Tampered):
        both.reseal(OTHER, "google_ads", SEALED)  # rotation must not make a tampered row valid


def test_the_error_of_an_unknown_key_has_a_hint() -> None:
    new = Vault.open(NEW)
    with pytest.raises(UnknownKey) as raised:
        opened(SEALED, vault=new)
    assert raised.value.key_id == SEALED.key_id == VAULT.key_ids[0]
    assert isinstance(raised.value, VaultError | ConfigError)
    assert str(raised.value) == (
        f"The credentials of site {SITE} for google_ads need the key {SEALED.key_id}; WEIGHBRIDGE_VAULT_KEY has "
        f"{new.key_ids[0]}. Add the old key after the new one in the variable, separated by a comma, until "
        "weighbridge vault rotate has been run."
    )


def test_every_new_key_is_valid_and_different() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(base64.b64decode(key, validate=True)) for key in keys} == {32}
    assert len({Vault.open(key).key_ids for key in keys}) == 100


WRONG: dict[str, tuple[str | None, str]] = {
    "nothing": (None, "got nothing"),
    "empty": ("", "got nothing"),
    "only separators": (" , ,\n", "got nothing"),
    "too short": (base64.b64encode(CANARY.encode()).decode(), f"got {len(CANARY)} bytes"),
    "hexadecimal": (secrets.token_hex(32), "got 48 bytes"),
    "no base64": (f"{CANARY}!", "got something else"),
    "not ASCII": (f"{CANARY}ä", "got something else"),
    "impossible length": (CANARY[:1], "got something else"),
    "the second": (f"{OLD},{CANARY}!", "got something else (key 2 of 2)"),
    "the first": (f"{CANARY}! {OLD}", "got something else (key 1 of 2)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_error_of_a_wrong_key_names_the_variable_and_the_command_and_never_shows_the_key(
    case: str,
) -> None:
    text, got = WRONG[case]
    with pytest.raises(ConfigError) as raised:
        Vault.open(text)
    told = str(raised.value)
    assert told.startswith("WEIGHBRIDGE_VAULT_KEY: expected ")
    assert got in told
    assert "Create one with weighbridge vault key" in told
    assert "OPSMANTIK_VAULT_KEY" in told
    shown = everything_about(raised.value, since="open")
    for word in (text or "").replace(",", " ").split():
        assert len(word) < 8 or word not in shown
    assert repr(base64.b64decode(OLD)) not in shown  # one that is right beside one that is wrong
    assert repr(CANARY.encode()) not in shown


# No secret in output ----------------------------------------------------------------------------------------


def everything_about(error: BaseException, since: str) -> str:
    """All text that an error could disclose, including the locals of its frames, from a given function on."""
    told = [repr(error), str(error), repr(error.args), repr(vars(error))]
    while error is not None:
        assert error.__context__ is None  # hidden by `from None` is still carried
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        names = [frame.name for frame in found.stack]
        told += [f"{frame.name} {frame.locals}" for frame in found.stack[names.index(since) :]]
        error = error.__cause__  # type: ignore[assignment]
    return "\n".join(told)


def _moved() -> None:
    opened(SEALED, OTHER)


def _unknown() -> None:
    opened(SEALED, vault=Vault.open(NEW))


@pytest.mark.parametrize("trouble", [_moved, _unknown])
def test_an_error_contains_neither_keys_nor_credentials(trouble: Callable[[], None]) -> None:
    with pytest.raises(VaultError) as raised:
        trouble()
    shown = everything_about(raised.value, since="unseal")
    assert not [secret for secret in (CANARY, OLD, NEW) if secret in shown]


def test_the_repr_of_a_vault_and_of_credentials_shows_no_secret() -> None:
    credentials = VAULT.unseal(SITE, "google_ads", SEALED)
    assert isinstance(credentials, Credentials)
    assert credentials["refresh_token"] == CANARY
    raw = base64.b64decode(OLD)
    for shown in (VAULT, credentials, SEALED, {"x": [VAULT, credentials, SEALED]}, vars(VAULT)):
        for told in (repr(shown), str(shown), f"{shown}", "%s %r" % (shown, shown)):  # noqa: UP031
            assert not [s for s in (CANARY, OLD, repr(raw)[2:-1], raw.hex()) if s in told]
    for closed in (VAULT, credentials):
        for write in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be serialised"):
                write(closed)
        with pytest.raises(TypeError):
            json.dumps(closed)
    assert CANARY.encode() not in pickle.dumps(SEALED)


def test_no_log_line_contains_a_secret(lines: Lines) -> None:  # noqa: F811
    credentials = VAULT.unseal(SITE, "google_ads", SEALED)
    log = structlog.get_logger()
    log.warning("told", vault=VAULT, credentials=credentials, sealed=SEALED, nested={"deep": [credentials]})
    logging.getLogger("library").warning("%s and %r", credentials, VAULT)
    for trouble in (_moved, _unknown, lambda: Vault.open(f"{CANARY}!")):
        try:
            trouble()
        except Exception:
            log.exception("failed")
            logging.getLogger("library").exception("failed")
    assert [line.get("error_type") for line in lines("failed")] == [
        *("Tampered", "Tampered", "UnknownKey", "UnknownKey", "ConfigError", "ConfigError")
    ]
    assert not [secret for secret in (CANARY, OLD, NEW) if secret in lines.text]


def test_a_row_in_the_database_contains_no_secret() -> None:
    for _ in range(50):
        values = {f"name-{uuid4()}": os.urandom(12).hex()}
        sealed = VAULT.seal(SITE, "webhook", values, 1)
        for word in (*values, *values.values()):
            assert word.encode() not in sealed.ciphertext
        assert base64.b64decode(OLD) not in sealed.ciphertext
        assert sealed.key_id not in base64.b64decode(OLD).hex()
