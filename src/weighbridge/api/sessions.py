"""Browser credentials: a signed session, and a short-lived token that can only upload.

Neither contains a secret. Both refer to a key and expire with it. Times come from the database's clock.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from itsdangerous import BadData, Signer, URLSafeSerializer

from weighbridge.access import signing
from weighbridge.access.keys import ApiKey
from weighbridge.postgres.transactions import Database

COOKIE = "wb_session"
TOKEN = "wbt_"  # noqa: S105 the prefix of an upload token; keys begin with wb_
SESSION_LASTS = timedelta(hours=12)
LONGEST_TOKEN = timedelta(hours=24)


@dataclass(frozen=True)
class Session:
    """The session of a signed-in browser."""

    key: ApiKey
    csrf: str  # sent by its forms and scripts; other sites cannot read it


class Sessions:
    """Creates and reads sessions and tokens. One per process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._secret: bytes | None = None

    async def begin(self, key: ApiKey) -> str:
        """The cookie of a new session."""
        async with self._db.tx() as tx:
            expires_at = await signing.expiry(tx, SESSION_LASTS)
        return (await self._signer("session")).dumps(_payload(key, expires_at))

    async def session(self, cookie: str) -> Session | None:
        """None: the cookie is invalid or expired, or its key is."""
        key = await self._key_behind(await self._signer("session"), cookie)
        return Session(key, await self._csrf(cookie)) if key else None

    async def token(self, key: ApiKey, lasts: timedelta, bounds: dict[str, str]) -> tuple[str, datetime]:
        """An upload token and its expiry."""
        async with self._db.tx() as tx:
            expires_at = await signing.expiry(tx, lasts)
        return TOKEN + (await self._signer("token")).dumps(
            {**_payload(key, expires_at), "b": bounds}
        ), expires_at

    async def bearer(self, token: str) -> ApiKey | None:
        """The key of a token, restricted to what the token allows."""
        return await self._key_behind(await self._signer("token"), token.removeprefix(TOKEN))

    async def noted(self, words: str) -> str:
        """A message for the next page, signed so that it cannot be forged."""
        return (await self._signer("noted")).dumps(words)

    async def read_note(self, noted: str) -> str:
        try:
            return str((await self._signer("noted")).loads(noted))
        except BadData:
            return ""

    async def _csrf(self, cookie: str) -> str:
        return Signer(await self._key(), salt="csrf").get_signature(cookie).decode()

    async def _key_behind(self, signs: URLSafeSerializer, signed: str) -> ApiKey | None:
        try:
            payload = signs.loads(signed)
        except BadData:
            return None
        async with self._db.tx() as tx:
            key = await signing.key_behind(tx, UUID(payload["k"]), datetime.fromtimestamp(payload["u"], UTC))
        if key is None or "b" not in payload:
            return key
        if not key.may("upload"):
            return None
        return replace(key, scopes=("upload",), bounds=tuple(sorted(payload["b"].items())))

    async def _signer(self, salt: str) -> URLSafeSerializer:
        return URLSafeSerializer(await self._key(), salt=salt)

    async def _key(self) -> bytes:
        if self._secret is None:
            async with self._db.tx() as tx:
                self._secret = await signing.secret(tx)
        return self._secret


def same(given: str | None, expected: str) -> bool:
    return hmac.compare_digest((given or "").encode(), expected.encode())


def _payload(key: ApiKey, expires_at: datetime) -> dict[str, Any]:
    return {"k": str(key.id), "u": int(expires_at.timestamp())}
