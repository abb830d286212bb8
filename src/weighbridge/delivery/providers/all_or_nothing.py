"""Sending to providers that refuse a whole request because of one bad event: Meta and TikTok.

Rows that the provider would refuse according to its documentation are not sent. A refused request is sent again in
halves until the bad row is found. A dry run sends one sample event under the test event code, and none of the rows.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import httpx

from weighbridge.delivery.providers import answers
from weighbridge.delivery.providers.base import Batch, Needed
from weighbridge.delivery.providers.split import bisected
from weighbridge.model.delivery import Conversion, Outcome, ProviderTransientError, Verdict

PROBE = "WeighbridgeDryRun"  # the name of the sample event


class AllOrNothing(ABC):
    label: ClassVar[str]  # the provider's name in messages
    click_name: ClassVar[str]  # of its click id, in messages
    window: timedelta | None
    needs: Sequence[Needed]

    async def send(self, batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        if wrong := answers.lacking(batch.credentials, self.needs) or self.unusable(batch.credentials):
            return answers.whole(batch, wrong)
        refused = [self._unsendable(row, batch) for row in batch.conversions]
        left = [row for row, outcome in zip(batch.conversions, refused, strict=True) if outcome is None]
        try:
            sent = await self._send(left, batch, http) if left else []
        except ProviderTransientError as error:
            if len(left) == len(refused):
                raise
            sent = [answers.retry_of(error)] * len(left)  # the refused rows have their outcomes
        rest = iter(sent)
        return [outcome or next(rest) for outcome in refused]

    @abstractmethod
    def unusable(self, credentials: Mapping[str, str]) -> Outcome | None:
        """FAILED with the error of the credentials."""

    @abstractmethod
    def event(self, conversion: Conversion, credentials: Mapping[str, str]) -> dict[str, Any]: ...

    @abstractmethod
    def probe(self, batch: Batch) -> dict[str, Any]:
        """The sample event of a dry run."""

    @abstractmethod
    def person(self, conversion: Conversion) -> Mapping[str, Any]:
        """The keys by which the provider matches the event to a person; empty if there are none."""

    @abstractmethod
    async def request(
        self, batch: Batch, events: list[dict[str, Any]], more: dict[str, Any], http: httpx.AsyncClient
    ) -> list[Outcome] | Outcome:
        """One request: an outcome per event, or one outcome that refuses all of them."""

    def unsendable(self, conversion: Conversion, batch: Batch) -> Outcome | None:
        """Further reasons of this provider not to send a row."""
        return None

    def _unsendable(self, conversion: Conversion, batch: Batch) -> Outcome | None:
        assert self.window is not None
        if conversion.occurred_at < batch.now - self.window:
            return Outcome.failed(
                "EXPIRED", f"{self.label} accepts no event older than {self.window.days} days."
            )
        if not self.person(conversion):
            needed = (
                f"{self.label} needs {self.click_name}, or the digest of an e-mail address or phone number."
            )
            return Outcome.failed("NO_MATCH_KEY", needed)
        if conversion.value is not None and not conversion.value.is_finite():
            return Outcome.failed("VALUE", "The value is not a number.")
        return self.unsendable(conversion, batch)

    async def _send(self, rows: Sequence[Conversion], batch: Batch, http: httpx.AsyncClient) -> list[Outcome]:
        if batch.dry_run:
            return [await self._dry_run(batch, http)] * len(rows)
        return await bisected(
            rows,
            lambda part: self.request(batch, [self.event(row, batch.credentials) for row in part], {}, http),
            in_time=lambda: answers.in_time(batch, http),
        )

    async def _dry_run(self, batch: Batch, http: httpx.AsyncClient) -> Outcome:
        """The documentation does not say that test events are not counted, so no row is sent under the code."""
        code = batch.credentials.get("test_event_code")
        if not code:
            unsent = "No request was sent: the credentials have no test_event_code. Only the row was checked."
            return Outcome(Verdict.COMPLETED, message=unsent)
        result = await self.request(batch, [self.probe(batch)], {"test_event_code": code}, http)
        outcome = result[0] if isinstance(result, list) else result
        if outcome.verdict is not Verdict.COMPLETED:
            return outcome
        accepted = (
            f"{self.label} accepted a sample event under the test_event_code; the row was only checked."
        )
        return Outcome(Verdict.COMPLETED, message=accepted)


def amounts(conversion: Conversion) -> dict[str, Any]:
    """Order id, value and currency, as both providers name them."""
    found: dict[str, Any] = {"order_id": conversion.order_id}
    if conversion.value is not None:
        found["value"] = float(conversion.value)
    if conversion.currency:
        found["currency"] = conversion.currency.upper()
    return found


def encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
