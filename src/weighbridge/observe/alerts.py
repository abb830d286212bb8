"""Alerts to people: Discord, PagerDuty and every other service that apprise supports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from weighbridge.model.errors import ConfigError, RetryLater
from weighbridge.observe.redact import redacted

TITLE = "Weighbridge"

_KINDS = {"ERROR": "failure", "WARNING": "warning"}  # apprise's names; a recovery is a success

# Separate from the threads that parse: a hanging webhook must not occupy one of those.
_SENDERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="alert")


@dataclass(frozen=True)
class Alert:
    """One alert, as it is sent."""

    severity: str  # ERROR, WARNING or RECOVERED
    message: str
    accepted_by: Collection[str] = ()  # marks of the addresses that have received it


class Alerts:
    """The addresses of alerts."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._known: list[Any] | None = None

    @property
    def addresses(self) -> list[Any]:
        """ConfigError if apprise does not support a URL. The message does not repeat it, as it contains a secret."""
        for number, address in enumerate(found := self._load(), 1):
            if address is None:
                raise ConfigError(
                    f"WEIGHBRIDGE_ALERT_URLS: address {number} is not supported by apprise. Expected one such as "
                    "discord://webhook_id/webhook_token or pagerduty://key@routing_key; "
                    "https://appriseit.com lists them all."
                )
        return found

    async def send(self, alert: Alert) -> AsyncIterator[str]:
        """Send to every address that has not received it, and yield the mark of each one that accepts it.

        Raises RetryLater after the last answer if an address did not accept it.
        """
        if not self._urls:
            return
        loop = asyncio.get_running_loop()
        addresses = await loop.run_in_executor(_SENDERS, self._load)
        send = partial(_send, body=redacted(alert.message), kind=_KINDS.get(alert.severity, "success"))

        async def send_to(number: int) -> tuple[int, bool]:
            return number, await loop.run_in_executor(_SENDERS, send, addresses[number])

        left = [number for number, url in enumerate(self._urls) if _mark(url) not in alert.accepted_by]
        silent = []
        for answer in asyncio.as_completed([send_to(number) for number in left]):
            number, accepted = await answer
            if accepted:
                yield _mark(self._urls[number])
            else:
                silent.append(number + 1)
        if silent:
            raise RetryLater(
                "connection",
                f"Address {', '.join(map(str, sorted(silent)))} of WEIGHBRIDGE_ALERT_URLS did not accept the alert.",
            )

    def _load(self) -> list[Any]:
        """One address per URL, None for an unknown one. Runs in a thread: apprise takes a second to load."""
        if self._known is None:
            import apprise

            self._known = [apprise.Apprise.instantiate(url) for url in self._urls]
        return self._known


def _mark(url: str) -> str:
    """Identifies an address without its secret."""
    return sha256(url.encode()).hexdigest()[:16]


def _send(address: Any, *, body: str, kind: str) -> bool:
    """Whether the address accepted the message. Any error counts as no."""
    import apprise

    try:
        return address is not None and bool(
            address.notify(body=body, title=TITLE, notify_type=apprise.NotifyType(kind))
        )
    except Exception:  # plugins may raise anything, and their messages may contain the address
        return False
