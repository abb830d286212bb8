"""The vault: credentials are encrypted in the database, and readable only here.

AES-256-GCM, a fresh nonce of 12 bytes each time. Site, provider and version are authenticated with the secret: a row
that was altered, or copied to another site, cannot be decrypted. Each row names its key. For rotation,
WEIGHBRIDGE_VAULT_KEY may contain several keys: the first encrypts, all decrypt.

    VaultError
    ├── UnknownKey   the row needs a key that the variable does not have (also a ConfigError)
    └── Tampered     the row is not what was sealed for this site, provider and version
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

from weighbridge.delivery.providers.base import Credentials
from weighbridge.model.errors import ConfigError, WeighbridgeError

if TYPE_CHECKING:  # a process that delivers nothing saves 6 MB
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "WEIGHBRIDGE_VAULT_KEY"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_HOW = (
    f"Create one with weighbridge vault key and set it as {VARIABLE} (or OPSMANTIK_VAULT_KEY). "
    "Separate several keys with commas; the first one encrypts."
)


class VaultError(WeighbridgeError):
    """Credentials that cannot be read."""


class UnknownKey(VaultError, ConfigError):
    """The row was encrypted with a key that is not in the variable."""

    def __init__(self, message: str, key_id: str) -> None:
        super().__init__(message)
        self.key_id = key_id


class Tampered(VaultError):
    """The row was altered, or belongs to another owner."""


@dataclass(frozen=True)
class Sealed:
    """A site's credentials as stored in the database."""

    key_id: str
    nonce: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)
    version: int  # of the row: an older row cannot replace a newer one


class Vault:
    """Encrypts and decrypts credentials. It never exposes its keys."""

    def __init__(self, keys: Mapping[str, AESGCM]) -> None:
        """Keys by id, the encrypting one first: see `Vault.open`."""
        self._keys = dict(keys)

    @classmethod
    def open(cls, text: str | None) -> Vault:
        """Read the keys of the setting. ConfigError if it is empty or invalid; the message never shows the value."""
        words = (text or "").replace(",", " ").split()
        if not words:
            raise ConfigError(f"{VARIABLE}: expected a key, got nothing. {_HOW}")
        raw = [_decoded(word) for word in words]
        del text, words  # keep them out of tracebacks that print local variables
        for number, key in enumerate(raw, 1):
            if key is None or len(key) != _KEY_BYTES:
                got = "something else" if key is None else f"{len(key)} bytes"
                of = f" (key {number} of {len(raw)})" if len(raw) > 1 else ""
                del raw, key
                raise ConfigError(f"{VARIABLE}: expected {_KEY_BYTES} bytes as base64, got {got}{of}. {_HOW}")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return cls({_fingerprint(key): AESGCM(key) for key in raw if key is not None})

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys, the encrypting one first. They reveal nothing about the keys."""
        return tuple(self._keys)

    def seal(self, site_id: UUID, provider_key: str, values: Mapping[str, str], version: int) -> Sealed:
        """Encrypt with the first key."""
        values = Credentials(values)  # its repr hides the values, in case of an error below
        unfit = sorted(repr(name) for name in values if not (type(name) is type(values[name]) is str))
        if unfit:
            raise TypeError(f"Credentials are texts by name; not a text: {', '.join(unfit)}.")
        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = key.encrypt(nonce, json.dumps(dict(values)).encode(), _whose(site_id, provider_key, version))
        return Sealed(key_id, nonce, sealed, version)

    def unseal(self, site_id: UUID, provider_key: str, sealed: Sealed) -> Credentials:
        """Decrypt with the key that the row names. Raises UnknownKey or Tampered."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise UnknownKey(
                f"The credentials of site {site_id} for {provider_key} need the key {sealed.key_id}; "
                f"{VARIABLE} has {', '.join(self._keys)}. Add the old key after the new one in the variable, "
                "separated by a comma, until weighbridge vault rotate has been run.",
                sealed.key_id,
            )
        from cryptography.exceptions import InvalidTag

        try:
            opened = key.decrypt(
                sealed.nonce, sealed.ciphertext, _whose(site_id, provider_key, sealed.version)
            )
        except (InvalidTag, ValueError):  # a nonce of an impossible length is a ValueError
            opened = None
        if opened is None:  # raised outside the except block: an exception keeps a reference to its cause
            raise Tampered(
                f"The credentials of site {site_id} for {provider_key} cannot be decrypted: the row (version "
                f"{sealed.version}) was altered, or belongs to another site, provider or version. Enter them again."
            )
        return Credentials(json.loads(opened))

    def reseal(self, site_id: UUID, provider_key: str, sealed: Sealed) -> Sealed:
        """The same credentials and version, encrypted with the first key; unchanged if they already are."""
        if sealed.key_id == self.key_ids[0]:
            return sealed
        return self.seal(site_id, provider_key, self.unseal(site_id, provider_key, sealed), sealed.version)

    def __repr__(self) -> str:
        return f"<vault: {', '.join(self._keys)}>"

    def __reduce__(self) -> str:
        raise TypeError("a vault cannot be serialised")


def new_key() -> str:
    """Create a key for the setting."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode()


def _decoded(word: str) -> bytes | None:
    """Decode base64, standard or URL-safe, with or without padding. None: invalid."""
    plain = word.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return None


def _fingerprint(key: bytes) -> str:
    return sha256(b"weighbridge vault key id|" + key).hexdigest()[:16]


def _whose(site_id: UUID, provider_key: str, version: int) -> bytes:
    """Unambiguous: neither a site id nor a version contains a bar."""
    return f"{UUID(str(site_id))}|{provider_key}|{version:d}".encode()
