"""Conversions → TikTok, by its Events API 2.0.

The status 200 does not mean success: the `code` in the body does. TikTok deduplicates events by event and event_id for
48 hours. Its answer to one bad event among good ones is not documented well enough to rely on, so a batch that is not
accepted as a whole is sent in halves; events that it had accepted already are deduplicated.
"""

from __future__ import annotations

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
    Verdict,
)

SOURCES = ("offline", "crm", "web")
_OK, _PARTLY, _REFUSED, _NO_PERMISSION, _THROTTLED = 0, 20001, 40002, 40001, 40100
_TROUBLE = 40700  # the only 4xxxx code that reports an error of TikTok


class TikTokEvents(AllOrNothing):
    name = "tiktok_events"
    label = "TikTok"
    click_name = "a ttclid"
    max_batch = 1000
    clicks = ("ttclid",)
    window: timedelta | None = timedelta(days=28)  # the longest of its attribution windows
    window_from = "event"
    needs = (
        Needed("access_token", "from the settings of the event set or pixel in Events Manager"),
        Needed("event_set_id", "of an offline or CRM event set", required=False, secret=False),
        Needed("pixel_code", "of a pixel, instead of an event set", required=False, secret=False),
        Needed("event_source", f"one of {', '.join(SOURCES)}", required=False, secret=False),
        Needed(
            "event_name", "TikTok's name of the conversion; default Purchase", required=False, secret=False
        ),
        Needed("test_event_code", "from Test Events in Events Manager, for dry runs", required=False),
    )

    def __init__(self, *, base_url: str = "https://business-api.tiktok.com") -> None:
        self._url = f"{base_url.rstrip('/')}/open_api/v1.3/event/track/"

    def unusable(self, credentials: Mapping[str, str]) -> Outcome | None:
        source, source_id = _source(credentials)
        if not source_id:
            message = (
                "The credentials have neither 'event_set_id' nor 'pixel_code'; TikTok requires one of them."
            )
        elif credentials.get("event_set_id") and credentials.get("pixel_code"):
            message = (
                "The credentials have both 'event_set_id' and 'pixel_code'; TikTok accepts only one of them."
            )
        elif source not in SOURCES:
            message = f"event_source: expected one of {', '.join(SOURCES)}, got '{source}'."
        else:
            return None
        return Outcome.failed("CREDENTIALS", message, Category.AUTH)

    def event(self, conversion: Conversion, credentials: Mapping[str, str]) -> dict[str, Any]:
        return {
            "event": credentials.get("event_name", "Purchase"),
            "event_time": int(conversion.occurred_at.timestamp()),
            "event_id": conversion.order_id,
            "user": self.person(conversion),
            "properties": amounts(conversion),
        }

    def probe(self, batch: Batch) -> dict[str, Any]:
        return {
            "event": PROBE,
            "event_time": int(batch.now.timestamp()),
            "event_id": str(batch.batch_id),
            "user": {"external_id": "0" * 64},
        }

    def person(self, conversion: Conversion) -> dict[str, str]:
        known = conversion.user_data
        found = {name: known[name] for name in ("email", "phone") if name in known}
        if conversion.click_type == "ttclid" and conversion.click_id:
            found["ttclid"] = conversion.click_id
        return found

    async def request(
        self, batch: Batch, events: list[dict[str, Any]], more: dict[str, Any], http: httpx.AsyncClient
    ) -> list[Outcome] | Outcome:
        source, source_id = _source(batch.credentials)
        response = await answers.post(
            http,
            self._url,
            headers={"access-token": batch.credentials["access_token"], "content-type": "application/json"},
            content=encoded({"event_source": source, "event_source_id": source_id, "data": events, **more}),
        )
        answers.raise_for_retryable(response, batch.now)
        outcome = _classified(answers.json_of(response), response, batch)
        settled = outcome.verdict is Verdict.COMPLETED or outcome.category is Category.AUTH
        return [outcome] * len(events) if settled else outcome


def _source(credentials: Mapping[str, str]) -> tuple[str, str]:
    """The declared source of the events and its id. Events of a pixel are web events."""
    pixel = credentials.get("pixel_code", "")
    source = credentials.get("event_source") or ("web" if pixel else "offline")
    return source, credentials.get("event_set_id") or pixel


def _classified(body: Mapping[str, Any], response: httpx.Response, batch: Batch) -> Outcome:
    """TikTok's result for the whole request: accepted or refused. Raises temporary errors."""
    code, status = body.get("code"), response.status_code
    if not isinstance(code, int):
        if status in (401, 403):
            return _no_access(f"HTTP_{status}", "")
        if status >= 400:
            return Outcome.failed(f"HTTP_{status}", "TikTok refuses the request without a reason.")
        raise ProviderTransientError("The response is not from TikTok: it has no code.", "NO_CODE")
    name, words = str(code), answers.quoted(body.get("message"), batch)
    listed = body.get("data")
    partly = code == _PARTLY and isinstance(listed, dict) and bool(listed.get("failed_events"))
    if code == _OK or (code == _PARTLY and not partly):
        return _accepted(body, status)
    if partly or code == _REFUSED:
        return Outcome.failed(name, f"TikTok refuses the conversion: {words}")
    if code == _THROTTLED:
        after = answers.retry_after(response, batch.now)
        raise ProviderRateLimitError(f"TikTok's rate limit is reached: {words}", name, after)
    if code == _NO_PERMISSION or 40100 < code < 40200 or status in (401, 403):
        return _no_access(name, words)
    if code == _TROUBLE or not 40000 <= code < 50000:
        raise ProviderTransientError(f"TikTok reports an error ({code}): {words}", name)
    return Outcome.failed(name, f"TikTok refuses the conversion: {words}")


def _accepted(body: Mapping[str, Any], status: int) -> Outcome:
    request_id = body.get("request_id")
    if status != 200 or not request_id:
        raise ProviderTransientError(
            "TikTok's response has no request_id: which events it accepted is unknown.", "NO_PROOF"
        )
    return Outcome.completed(str(request_id))


def _no_access(code: str, words: str) -> Outcome:
    message = (
        f"TikTok refuses the access_token for this event set or pixel: {words} Create one in Events Manager."
    )
    return Outcome.failed(code, " ".join(message.split()), Category.AUTH)
