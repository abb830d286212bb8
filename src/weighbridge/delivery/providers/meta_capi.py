"""Conversions → Meta, by its Conversions API.

Meta deduplicates events by event_name and event_id for 48 hours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx

from weighbridge.delivery.providers import answers
from weighbridge.delivery.providers.all_or_nothing import PROBE, AllOrNothing, amounts, encoded
from weighbridge.delivery.providers.base import Batch, Needed
from weighbridge.model.delivery import (
    Category,
    Conversion,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
)
from weighbridge.model.retry import LONGEST_ANSWER_PAUSE

VERSION = "v25.0"
# For sales that are not confirmed on a website or in an app: those sources need data that we do not have.
SOURCES = ("system_generated", "physical_store", "phone_call", "email", "chat", "business_messaging", "other")
_RATE_LIMIT = frozenset({4, 17, 32, 341, 613, *range(80000, 80015)})
_NO_SUCH_DATASET = (100, 33)


class MetaCapi(AllOrNothing):
    name = "meta_capi"
    label = "Meta"
    click_name = "an fbclid"
    max_batch = 1000
    clicks = ("fbclid",)
    window: timedelta | None = timedelta(days=7)
    window_from = "event"
    needs = (
        Needed("dataset_id", "the number of the dataset (pixel) in Events Manager", secret=False),
        Needed("access_token", "of a system user, from Events Manager"),
        Needed("test_event_code", "from Test Events in Events Manager, for dry runs", required=False),
        Needed("event_name", "Meta's name of the conversion; default Purchase", required=False, secret=False),
        Needed("action_source", f"one of {', '.join(SOURCES)}", required=False, secret=False),
    )

    def __init__(self, *, base_url: str = "https://graph.facebook.com", version: str = VERSION) -> None:
        self._base_url = f"{base_url.rstrip('/')}/{version}"

    def unusable(self, credentials: Mapping[str, str]) -> Outcome | None:
        if not credentials["dataset_id"].isdecimal():
            return Outcome.failed("CREDENTIALS", "dataset_id: expected a number.", Category.AUTH)
        source = credentials.get("action_source", SOURCES[0])
        if source not in SOURCES:
            expected = ", ".join(SOURCES)
            return Outcome.failed(
                "CREDENTIALS", f"action_source: expected one of {expected}, got '{source}'.", Category.AUTH
            )
        return None

    def unsendable(self, conversion: Conversion, batch: Batch) -> Outcome | None:
        bought = batch.credentials.get("event_name", "Purchase") == "Purchase"
        if bought and (conversion.value is None or not conversion.currency):
            return Outcome.failed("NO_VALUE", "Meta accepts a Purchase only with its value and currency.")
        return None

    def event(self, conversion: Conversion, credentials: Mapping[str, str]) -> dict[str, Any]:
        return {
            "event_name": credentials.get("event_name", "Purchase"),
            "event_time": int(conversion.occurred_at.timestamp()),
            "event_id": conversion.order_id,
            "action_source": credentials.get("action_source", SOURCES[0]),
            "user_data": self.person(conversion),
            "custom_data": amounts(conversion),
        }

    def probe(self, batch: Batch) -> dict[str, Any]:
        return {
            "event_name": PROBE,
            "event_time": int(batch.now.timestamp()),
            "event_id": str(batch.batch_id),
            "action_source": "other",
            "user_data": {"external_id": ["0" * 64]},
        }

    def person(self, conversion: Conversion) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "email" in conversion.user_data:
            found["em"] = [conversion.user_data["email"]]
        if "phone_digits" in conversion.user_data:
            found["ph"] = [conversion.user_data["phone_digits"]]
        if conversion.click_type == "fbclid" and conversion.click_id:
            seen = conversion.clicked_at or conversion.occurred_at
            found["fbc"] = f"fb.1.{int(seen.timestamp() * 1000)}.{conversion.click_id}"
        return found

    async def request(
        self, batch: Batch, events: list[dict[str, Any]], more: dict[str, Any], http: httpx.AsyncClient
    ) -> list[Outcome] | Outcome:
        response = await answers.post(
            http,
            f"{self._base_url}/{batch.credentials['dataset_id']}/events",
            headers={"content-type": "application/json"},
            content=encoded({"data": events, **more, "access_token": batch.credentials["access_token"]}),
        )
        error = _error(response)
        if error is None:
            answers.raise_for_retryable(response, batch.now)
            return _accepted(answers.json_of(response), len(events), response)
        outcome = _classified(error, response, batch)
        return [outcome] * len(events) if outcome.category is Category.AUTH else outcome


def _accepted(body: Mapping[str, Any], sent: int, response: httpx.Response) -> list[Outcome]:
    trace = body.get("fbtrace_id") or response.headers.get("x-fb-trace-id")
    if body.get("events_received") != sent or not trace:
        raise ProviderTransientError(
            f"Meta's response does not confirm all {sent} events; which ones it accepted is unknown.",
            "PARTIAL",
        )
    return [Outcome.completed(str(trace))] * sent


def _error(response: httpx.Response) -> dict[str, Any] | None:
    """Meta's error, for any status. None: no error, or not from Meta."""
    try:
        error = answers.json_of(response).get("error")
    except ProviderTransientError:
        return None
    return error if isinstance(error, dict) and isinstance(error.get("code"), int) else None


def _classified(error: dict[str, Any], response: httpx.Response, batch: Batch) -> Outcome:
    """FAILED with the error. Raises temporary errors."""
    code, subcode = error["code"], error.get("error_subcode")
    name = f"{code}/{subcode}" if subcode else str(code)
    words = answers.quoted(error.get("error_user_msg") or error.get("message"), batch)
    status = response.status_code
    if code in _RATE_LIMIT or status == 429:
        after = answers.retry_after(response, batch.now) or _regained(response)
        raise ProviderRateLimitError(f"Meta's rate limit is reached: {words}", name, after)
    if code in (1, 2) or error.get("is_transient") is True or status >= 500 or status == 408:
        after = answers.retry_after(response, batch.now)
        raise ProviderTransientError(f"Meta reports an error ({status}): {words}", name, after)
    if (code, subcode) == _NO_SUCH_DATASET:
        message = "The dataset does not exist, or the access_token cannot write to it: check dataset_id."
        return Outcome.failed(name, message, Category.AUTH)
    if code in (10, 102, 190) or 200 <= code < 300 or status in (401, 403):
        message = f"Meta refuses the access_token: {words} Create a new one in Events Manager."
        return Outcome.failed(name, message, Category.AUTH)
    return Outcome.failed(name, f"Meta refuses the conversion: {words}")


def _regained(response: httpx.Response) -> timedelta | None:
    """The wait in minutes from the usage header of the business."""
    try:
        uses = json.loads(response.headers.get("x-business-use-case-usage", "{}"))
        minutes = [use.get("estimated_time_to_regain_access", 0) for each in uses.values() for use in each]
        longest = timedelta(minutes=max(minutes, default=0))
    except (ValueError, AttributeError, TypeError, OverflowError):
        return None  # not as documented: the queue's own backoff is good enough
    return min(longest, LONGEST_ANSWER_PAUSE) or None
