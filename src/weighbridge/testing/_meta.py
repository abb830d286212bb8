"""Meta's Conversions API as it is documented: one bad event refuses the whole request."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from uuid import uuid4

from weighbridge.testing._server import FakeServer, ReceivedRequest, Reply

_PATH = re.compile(r"/v\d+\.\d+/(\d+)/events")
_HEX = re.compile(r"[0-9a-f]{64}")
_FBC = re.compile(r"fb\.\d\.\d{13}\.\S+")
_CURRENCY = re.compile(r"[A-Z]{3}")
_SOURCES = {
    *("email", "website", "app", "phone_call", "chat", "physical_store"),
    *("system_generated", "business_messaging", "other"),
}
_OF_EVENT = {
    *("event_name", "event_time", "event_id", "action_source", "user_data", "custom_data"),
    *("event_source_url", "opt_out", "data_processing_options"),
}
_WEEK = 7 * 86400
_KINDS = {400: (100, "OAuthException"), 401: (190, "OAuthException"), 403: (200, "OAuthException")}


class FakeMeta(FakeServer):
    name = "meta_capi"

    def __init__(self, *, tokens: Collection[str] | None = None, **more: Any) -> None:
        """`tokens`: the valid tokens; None: all are valid."""
        super().__init__(**more)
        self.tokens = tokens
        self.tested: list[dict[str, Any]] = []  # events with a test_event_code; they are accepted as well

    def answer(self, call: ReceivedRequest) -> Reply:
        found = _PATH.fullmatch(call.path)
        if found is None or call.method != "POST":
            return _refused(100, "Unsupported request.", subcode=33, kind="GraphMethodException")
        body = call.body if isinstance(call.body, dict) else {}
        token = body.get("access_token") or call.query.get("access_token")
        if not token:
            return _refused(104, "An access token is required to request this resource.")
        if self.tokens is not None and token not in self.tokens:
            return _refused(190, f"Malformed access token {token}")
        return self._events(found[1], body)

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        code, kind = _KINDS.get(status, (2, "OAuthException"))
        code = 4 if status == 429 else code
        body = _refused(code, "An error that the test asked for.", kind=kind).body
        body["error"]["is_transient"] = status >= 500
        return Reply(status, body)

    def _events(self, dataset: str, body: dict[str, Any]) -> Reply:
        events = body.get("data")
        if not isinstance(events, list) or not 0 < len(events) <= 1000:
            return _refused(100, "(#100) param data must be an array of at most 1000 events.")
        for at, event in enumerate(events):
            wrong = self._wrong(event)
            if wrong:
                return _refused(100, f"Invalid parameter: data[{at}]: {wrong}", subcode=2804050)
            if codes := self.refusals.get(event.get("event_id")):
                code, _, subcode = codes[0].rpartition("/")
                shown = event["user_data"].get("fbc")  # the real API also quotes values
                return _refused(
                    int(code or 100), f"Invalid parameter: '{shown}' is bad", subcode=int(subcode)
                )
        if "test_event_code" in body:
            self.tested += events
        for event in events:
            known = event.get("event_id", "")
            self.take(known, (dataset, event["event_name"], known))
        trace = f"A{uuid4().hex[:22]}"
        return Reply(200, {"events_received": len(events), "messages": [], "fbtrace_id": trace})

    def _wrong(self, event: Any) -> str | None:
        if not isinstance(event, dict) or event.keys() - _OF_EVENT:
            return "unknown fields"
        if not isinstance(event.get("event_name"), str) or not event["event_name"]:
            return "event_name is required"
        if type(event.get("event_time")) is not int:
            return "event_time must be a Unix timestamp in seconds"
        if self.clock is not None and event["event_time"] < self.clock() - _WEEK:
            return "event_time is more than 7 days in the past"
        if not isinstance(event.get("event_id", ""), str):
            return "event_id must be a string"
        if event.get("action_source") not in _SOURCES:
            return "action_source is not a known value"
        return _wrong_person(event.get("user_data")) or _wrong_custom(event)


def _wrong_person(person: Any) -> str | None:
    if not isinstance(person, dict) or not person:
        return "user_data is required"
    for name in ("em", "ph", "external_id"):
        values = person.get(name, [])
        if not isinstance(values, list) or not all(isinstance(v, str) and _HEX.fullmatch(v) for v in values):
            return f"user_data.{name} must be hashed by SHA-256"
    if "fbc" in person and not _FBC.fullmatch(str(person["fbc"])):
        return "user_data.fbc must be fb.1.<milliseconds>.<fbclid>"
    return None


def _wrong_custom(event: dict[str, Any]) -> str | None:
    custom = event.get("custom_data", {})
    if not isinstance(custom, dict):
        return "custom_data must be an object"
    value, currency = custom.get("value"), custom.get("currency")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "custom_data.value must be a number"
    if currency is not None and not _CURRENCY.fullmatch(str(currency)):
        return "custom_data.currency must be an ISO 4217 code"
    if event["event_name"] == "Purchase" and (value is None or currency is None):
        return "a Purchase needs custom_data.value and custom_data.currency"
    return None


def _refused(code: int, message: str, *, subcode: int | None = None, kind: str = "OAuthException") -> Reply:
    error: dict[str, Any] = {"message": message, "type": kind, "code": code, "is_transient": code in (1, 2)}
    if subcode is not None:
        error["error_subcode"] = subcode
    error["fbtrace_id"] = f"A{uuid4().hex[:22]}"
    return Reply(400, {"error": error})
