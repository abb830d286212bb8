"""Credentials of both Google adapters: account numbers, and access tokens from a refresh token."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from weighbridge.delivery.providers import answers
from weighbridge.delivery.providers.base import Credentials, Needed
from weighbridge.delivery.providers.google_errors import code_of
from weighbridge.model.delivery import Category, Outcome, ProviderTransientError

TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
EARLY = timedelta(minutes=2)  # a token that may expire during the request is not used
LONG_AGO = datetime(
    1970, 1, 1, tzinfo=UTC
)  # if the caller has no clock: a Retry-After date then means the maximum wait
KEPT = 10_000  # tokens at most, in one adapter

NEEDS = (
    Needed("customer_id", "the number of the Google Ads account, such as 123-456-7890", secret=False),
    Needed("client_id", "of the OAuth client, ends in .apps.googleusercontent.com", secret=False),
    Needed("client_secret", "of the OAuth client"),
    Needed("refresh_token", "of a user who may use the account"),
    Needed(
        "login_customer_id",
        "the number of the manager account, if it has the access",
        required=False,
        secret=False,
    ),
)


def token_url(base_url: str) -> str:
    """The address for tokens: Google's, or that of the fake that also receives the conversions."""
    return TOKEN_URL if base_url.endswith(".googleapis.com") else f"{base_url}/token"


class AccessRefused(Exception):
    """The credentials are invalid: every row that needs them fails with this outcome."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.outcome = Outcome.failed(code, message, Category.AUTH)


def number(credentials: Credentials, name: str) -> str:
    """An account's or a conversion action's number, without dashes."""
    value = credentials.get(name, "").replace("-", "")
    if not re.fullmatch(r"[0-9]{1,19}", value):
        raise AccessRefused(
            "CREDENTIALS", f"'{name}' of the credentials: expected a number such as 123-456-7890."
        )
    return value


def action(credentials: Credentials) -> str:
    """The conversion action's number, from its resource name."""
    named = re.fullmatch(
        r"customers/[0-9-]{1,30}/conversionActions/([0-9]{1,19})",
        credentials.get("conversion_action_resource_name", ""),
    )
    if named is None:
        raise AccessRefused(
            "CREDENTIALS",
            "'conversion_action_resource_name' of the credentials: expected "
            "customers/<account number>/conversionActions/<action number>.",
        )
    return named[1]


class Tokens:
    """Access tokens, by a digest of their credentials. They are stored nowhere else."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: dict[bytes, tuple[str, datetime | None]] = {}

    def __repr__(self) -> str:
        return f"<{len(self._kept)} access tokens>"

    async def get(
        self, credentials: Credentials, http: httpx.AsyncClient, now: datetime | None, *, fresh: bool = False
    ) -> tuple[str, bool]:
        """A token that is valid at `now` (without `now`: the stored one, if any), and whether it was requested just
        now. `fresh`: ignore the stored token. Raises AccessRefused if Google refuses the credentials.
        """
        key = _digest(credentials)
        token, until = self._kept.get(key, ("", None))
        if not fresh and token and (now is None or (until is not None and now < until)):
            return token, False
        token, lasts = await self._refresh(credentials, http, now)
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[key] = (token, None if now is None else now + lasts - EARLY)
        return token, True

    async def _refresh(
        self, credentials: Credentials, http: httpx.AsyncClient, now: datetime | None
    ) -> tuple[str, timedelta]:
        form = {name: credentials[name] for name in ("client_id", "client_secret", "refresh_token")}
        response = await answers.post(http, self._url, data={"grant_type": "refresh_token", **form})
        answers.raise_for_retryable(response, now or LONG_AGO)
        body = answers.json_of(response)
        if response.status_code != 200:
            raise _refused(code_of(body.get("error")))
        token = body.get("access_token")
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ProviderTransientError("Google's response contains no access token.", "NO_TOKEN")
        return token, timedelta(seconds=_seconds(body.get("expires_in")))


def _refused(code: str) -> AccessRefused:
    if code == "invalid_grant":
        return AccessRefused(
            code,
            "Google no longer accepts this refresh token: it was revoked or has expired. Let the user of the account "
            "grant access again and store the new refresh_token.",
        )
    if code in ("invalid_client", "unauthorized_client"):
        return AccessRefused(
            code,
            "Google does not accept this OAuth client and secret. Check client_id and client_secret.",
        )
    return AccessRefused(code, f"Google refuses access with these credentials ({code}).")


def _seconds(value: Any) -> float:
    return min(float(value), 86_400.0) if isinstance(value, int | float) and value > 0 else 0.0


def _digest(credentials: Credentials) -> bytes:
    values = (credentials[name] for name in ("client_id", "client_secret", "refresh_token"))
    return hashlib.sha256("\0".join(values).encode()).digest()
