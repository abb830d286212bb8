"""TikTok's Events API as documented: status 200 for every result, which is in `code`."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from typing import Any
from uuid import uuid4

from weighbridge.testing._server import FakeServer, ReceivedRequest, Reply

_PATH = "/open_api/v1.3/event/track/"
_HEX = re.compile(r"[0-9a-f]{64}")
_CURRENCY = re.compile(r"[A-Z]{3}")
_OF_EVENT = {"event", "event_time", "event_id", "user", "properties", "page", "limited_data_use"}
_CODES = {400: 40002, 401: 40105, 403: 40001, 429: 40100}


class FakeTikTok(FakeServer):
    name = "tiktok_events"

    def __init__(self, *, tokens: Collection[str] | None = None, partly: bool = False, **more: Any) -> None:
        """`tokens`: the valid tokens; None: all. `partly`: valid events of a request with bad ones are accepted."""
        super().__init__(**more)
        self.tokens = tokens
        self.partly = partly
        self.tested: list[dict[str, Any]] = []  # events with a test_event_code
        self._codes: deque[int] = deque()

    def say(self, *codes: int) -> None:
        """Answer the next requests with status 200 and these codes. Nothing of them is stored."""
        self._codes.extend(codes)

    def answer(self, call: ReceivedRequest) -> Reply:
        if self._codes:
            return _refusal(self._codes.popleft(), "A code that the test asked for.")
        if call.path != _PATH or call.method != "POST":
            return _refusal(40007, "The URL does not exist.")
        token = call.headers.get("access-token")
        if not token or (self.tokens is not None and token not in self.tokens):
            return _refusal(40105, f"Access token {token} is incorrect or has been revoked.")
        body = call.body if isinstance(call.body, dict) else {}
        if body.get("event_source") not in ("web", "app", "offline", "crm"):
            return _refusal(40002, "event_source: Not a valid choice.")
        if not isinstance(body.get("event_source_id"), str) or not body["event_source_id"]:
            return _refusal(40002, "event_source_id: Missing data for required field.")
        return self._events(body)

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        answer = _refusal(_CODES.get(status, 50000), "An error that the test asked for.")
        return Reply(status, answer.body)

    def _events(self, body: dict[str, Any]) -> Reply:
        events = body.get("data")
        if not isinstance(events, list) or not 0 < len(events) <= 1000:
            return _refusal(40002, "data: Length must be between 1 and 1000.")
        wrong = {at: complaint for at, event in enumerate(events) if (complaint := self._wrong(event))}
        if wrong and not self.partly:
            at, complaint = next(iter(wrong.items()))
            return _refusal(40002, f"data.{at}: {complaint}")
        for at, event in enumerate(events):
            if at in wrong:
                continue
            if "test_event_code" in body:
                self.tested.append(event)
            known = event.get("event_id", "")
            self.take(known, (body["event_source_id"], event["event"], known))
        if wrong:
            failed = [{"order_in_batch": at, "error_message": complaint} for at, complaint in wrong.items()]
            return _refusal(20001, "Partially successful.", {"failed_events": failed})
        return _refusal(0, "OK")

    def _wrong(self, event: Any) -> str | None:
        if not isinstance(event, dict) or event.keys() - _OF_EVENT:
            return "Unknown field."
        if not isinstance(event.get("event"), str) or not event["event"]:
            return "event: Missing data for required field."
        if type(event.get("event_time")) is not int:
            return "event_time: Not a valid integer."
        if not isinstance(event.get("event_id", ""), str):
            return "Invalid value for event_id: not a valid string."
        if codes := self.refusals.get(event.get("event_id", "")):
            shown = event.get("user", {}).get("ttclid")  # the real API also quotes values
            return f"{codes[0]}: {shown} is not valid."
        return _wrong_person(event.get("user")) or _wrong_properties(event.get("properties", {}))


def _wrong_person(person: Any) -> str | None:
    if not isinstance(person, dict) or not person:
        return "user: Missing data for required field."
    for name in ("email", "phone", "external_id"):
        value = person.get(name)
        values = value if isinstance(value, list) else [value]
        if value is not None and not all(isinstance(v, str) and _HEX.fullmatch(v) for v in values):
            return f"user.{name}: must be hashed with SHA-256."
    return None


def _wrong_properties(properties: Any) -> str | None:
    if not isinstance(properties, dict):
        return "properties: Invalid type."
    value, currency = properties.get("value"), properties.get("currency")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "properties.value: Not a valid number."
    if currency is not None and not _CURRENCY.fullmatch(str(currency)):
        return "properties.currency: Not a valid choice."
    return None


def _refusal(code: int, message: str, more: dict[str, Any] | None = None) -> Reply:
    body = {"code": code, "message": message, "request_id": uuid4().hex.upper(), "data": more or {}}
    return Reply(200, body)
