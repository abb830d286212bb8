"""The interface of a provider: it sends a batch and reports on each row.

Retries, breaker, shares, ledger, limits and logs belong to the dispatcher (delivery/dispatch_loop.py). An adapter only
sends a batch and reports on each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable
from uuid import UUID

import httpx

from weighbridge.model.delivery import Conversion, Outcome


class Credentials(Mapping[str, str]):
    """Decrypted values by name. Printing, logging and pickling do not reveal them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<credentials: {', '.join(sorted(self._values))}>"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("credentials cannot be serialised")


@dataclass(frozen=True)
class Batch:
    """Rows of one site for one provider, at most `max_batch` of them, in the queue's order."""

    site_id: UUID
    conversions: Sequence[Conversion]
    credentials: Credentials
    now: datetime  # the database's
    batch_id: UUID  # of the ledger; new for every call of send
    dry_run: bool = False  # the provider validates the rows without storing them
    deadline: float | None = None  # the deadline of the call, by `monotonic` (`answers.in_time`)


@dataclass(frozen=True)
class Needed:
    """One required or optional value of a site's credentials."""

    name: str
    help: str
    required: bool = True
    secret: bool = True  # False: may be shown, such as an account number


class Provider(Protocol):
    @property
    def name(self) -> str: ...  # the provider_key
    @property
    def max_batch(self) -> int: ...
    @property
    def clicks(self) -> tuple[str, ...]: ...  # accepted click ids, best first
    # How old a click (an event) may be; older ones are refused as EXPIRED.
    @property
    def window(self) -> timedelta | None: ...
    @property
    def window_from(self) -> str: ...  # "click" or "event"; a click of unknown age is as old as its event
    @property
    def needs(self) -> Sequence[Needed]: ...

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        """One outcome per conversion, in their order.

        Raises ProviderTransientError or ProviderRateLimitError if the whole call failed. The adapter converts httpx's
        errors to ProviderTransientError (`providers.answers.request` does). A row that was not sent is an
        Outcome.retry with counts=False.
        """
        ...


@dataclass(frozen=True)
class Confirmation:
    """The result of a request that was accepted earlier."""

    state: str  # CONFIRMED, PARTIAL, REFUSED; PROCESSING: ask again later
    accepted: int = 0
    refused: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)  # the provider's codes: how many rows each


@runtime_checkable
class Confirms(Protocol):
    """A provider that reports the result of a request later."""

    confirm_after: timedelta

    async def confirm(
        self, request_id: str, credentials: Credentials, http: httpx.AsyncClient
    ) -> Confirmation: ...
