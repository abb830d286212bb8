"""Conversions → the user's own webhook (Standard Webhooks): one signed message per conversion.

The receiver recognises a repeated message by its webhook-id. Any 2xx status means that it has the message; the body is
ignored. A receiver cannot validate a message without accepting it, so a dry run only builds and signs it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import httpx

from weighbridge.delivery.providers import addresses, answers
from weighbridge.delivery.providers.base import Batch, Credentials, Needed
from weighbridge.model.delivery import (
    Category,
    Conversion,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)

AT_ONCE = 10
MAX_FAILED_MESSAGES = 10  # failed messages of a batch after which the rest is not sent
_PREFIX = "whsec_"

NEEDS = (
    Needed("url", "the address that receives the messages, https://…"),
    Needed("secret", "whsec_…; during a rotation the new and the old secret, separated by a space"),
    Needed("events", "further events to send: IngestionCompleteEvent", required=False, secret=False),
)


class Webhook:
    name = "webhook"
    max_batch = 20  # two rounds: with a slow receiver, more would take longer than the lease
    clicks = ("gclid", "gbraid", "wbraid", "fbclid", "ttclid")
    window: timedelta | None = None
    window_from = "event"
    needs = NEEDS

    def __init__(self, *, base_url: str | None = None, allow_private: bool | Collection[str] = False) -> None:
        """`base_url`: receives all messages, instead of the sites' addresses. `allow_private`: see `addresses`."""
        self._base_url = base_url
        self._allow_private = True if base_url else allow_private

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        sender = await _sender(batch.credentials, batch.now, http, self._base_url, self._allow_private)
        if isinstance(sender, Outcome):
            return answers.whole(batch, sender)
        if batch.dry_run:
            for conversion in batch.conversions:
                sender.built(*_message(conversion, batch))
            message = (
                "Built and signed, but not sent: a receiver cannot validate a message without accepting it."
            )
            return answers.whole(batch, Outcome(Verdict.COMPLETED, message=message))
        return answers.settled(await _Round(sender, batch, http).all())

    async def announce(
        self,
        http: httpx.AsyncClient,
        credentials: Credentials,
        event_id: str,
        type: str,
        payload: Mapping[str, Any],
        now: datetime,
    ) -> Outcome:
        """Send an event. The receiver can recognise repetitions by event_id. Raises as `send`."""
        sender = await _sender(credentials, now, http, self._base_url, self._allow_private)
        if isinstance(sender, Outcome):
            return sender
        body = {"type": type, "timestamp": now.isoformat(), "data": payload}
        return await sender.post(event_id, json.dumps(body, separators=(",", ":"), default=str).encode())


def signed(keys: Sequence[bytes], message_id: str, now: datetime, content: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks, with a signature for each key."""
    seconds = int(now.timestamp())
    message = b".".join((message_id.encode(), str(seconds).encode(), content))
    signatures = (base64.b64encode(hmac.digest(key, message, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def _message(conversion: Conversion, batch: Batch) -> tuple[str, bytes]:
    """The id and body of a message; deterministic."""
    known = hashlib.sha256(f"{batch.site_id}|{conversion.order_id}".encode()).hexdigest()
    body = {
        "type": "conversion",
        "timestamp": conversion.occurred_at.isoformat(),
        "data": {
            "order_id": conversion.order_id,
            "click_type": conversion.click_type,
            "click_id": conversion.click_id,
            "occurred_at": conversion.occurred_at.isoformat(),
            "value": None if conversion.value is None else str(conversion.value),
            "currency": conversion.currency,
            "user_data": dict(conversion.user_data),
        },
    }
    return f"conv_{known[:32]}", json.dumps(body, separators=(",", ":")).encode()


class _Round:
    """The messages of one batch, a few at a time. After an error that concerns all messages, the rest is not sent."""

    def __init__(self, sender: _Sender, batch: Batch, http: httpx.AsyncClient) -> None:
        self._sender, self._batch, self._http = sender, batch, http
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._failures = 0
        self._begun = False
        self._over: Outcome | None = None  # of the remaining rows

    async def all(self) -> list[Outcome | ProviderTransientError]:
        return await asyncio.gather(*(self._one(conversion) for conversion in self._batch.conversions))

    async def _one(self, conversion: Conversion) -> Outcome | ProviderTransientError:
        async with self._gate:
            if self._over is not None:
                return self._over
            if self._begun and not answers.in_time(self._batch, self._http):
                return answers.NOT_SENT
            self._begun = True
            try:
                outcome = await self._sender.post(*_message(conversion, self._batch))
            except ProviderTransientError as error:
                self._failures += 1
                if isinstance(error, ProviderRateLimitError) or self._failures == MAX_FAILED_MESSAGES:
                    self._over = answers.retry_of(error, sent=False)
                return error
            if outcome.category is Category.AUTH:
                self._over = outcome
            return outcome


class _Sender:
    """One receiver with a valid address and secret."""

    def __init__(self, url: str, keys: Sequence[bytes], now: datetime, http: httpx.AsyncClient) -> None:
        self._url, self._keys, self._now, self._http = url, keys, now, http
        self.private = False  # the address may be private

    def built(self, message_id: str, content: bytes) -> dict[str, str]:
        return {"content-type": "application/json", **signed(self._keys, message_id, self._now, content)}

    async def post(self, message_id: str, content: bytes) -> Outcome:
        headers = self.built(message_id, content)
        looking = None if self.private else addresses.ONLY_PUBLIC
        try:
            response = await answers.post(
                self._http, self._url, headers=headers, content=content, extensions=looking, reads=False
            )
        except addresses.Private:
            return addresses.REFUSED
        return _classified(response, message_id, self._now)


async def _sender(
    credentials: Credentials,
    now: datetime,
    http: httpx.AsyncClient,
    base_url: str | None,
    allow_private: bool | Collection[str],
) -> _Sender | Outcome:
    """A sender, or the error of the credentials. Raises ProviderTransientError if the host name cannot be resolved."""
    if wrong := answers.lacking(credentials, NEEDS):
        return wrong
    keys = _keys(credentials["secret"])
    if isinstance(keys, Outcome):
        return keys
    url = base_url or credentials["url"]
    host = addresses.checked(url)
    if isinstance(host, Outcome):
        return host
    sender = _Sender(url, keys, now, http)
    sender.private = allow_private if isinstance(allow_private, bool) else host in allow_private
    if not sender.private and not await addresses.is_public(host):
        return addresses.REFUSED
    return sender


def _keys(secret: str) -> list[bytes] | Outcome:
    keys = []
    for each in secret.split():
        text = each.removeprefix(_PREFIX)
        try:
            keys.append(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
        except (binascii.Error, ValueError):
            return _bad_secret()
    return keys if all(len(key) >= 16 for key in keys) else _bad_secret()


def _bad_secret() -> Outcome:
    message = "secret: expected whsec_ and at least 16 bytes in base64 (24 to 64 are usual)."
    return Outcome.failed("CREDENTIALS", message, Category.AUTH)


def _classified(response: httpx.Response, message_id: str, now: datetime) -> Outcome:
    status = response.status_code
    name = f"HTTP_{status}"
    if 200 <= status < 300:
        return Outcome.completed(message_id)
    if status == 410:
        message = "The endpoint no longer exists (410). Remove the webhook, or set its new url."
        return Outcome.failed("GONE", message, Category.AUTH)
    if status in (301, 308):
        message = f"The endpoint has moved ({status}), and redirects are not followed. Set its new url."
        return Outcome.failed(name, message, Category.AUTH)
    answers.raise_for_retryable(response, now)
    if status in (401, 403):
        message = f"The endpoint refuses the request ({status}). Check that it has the same secret."
        return Outcome.failed(name, message, Category.AUTH)
    return Outcome.failed(name, f"The endpoint refuses the message ({status}).")
