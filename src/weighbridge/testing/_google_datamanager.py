"""A fake Google Data Manager for events: one bad event refuses its whole request, and a successful response is a
receipt.

fake.refuse("order-7", "INVALID_CURRENCY_CODE")    an event's error, in fieldViolations
fake.silent = True                                 a refusal names no field: its sender has to search
fake.process("SUCCESS"), fake.process("PARTIAL_SUCCESS", {"PROCESSING_ERROR_REASON_INVALID_GCLID": 2})
                                                   what requestStatus:retrieve says from now on; PROCESSING until then
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from weighbridge.testing._google_oauth import FakeGoogle, status_body
from weighbridge.testing._server import DATA, ReceivedRequest, Reply

_HEX = re.compile(r"[0-9a-f]{64}")
_CLICKS = {"gclid", "gbraid", "wbraid"}
_REQUEST = {"destinations", "events", "encoding", "validateOnly", "consent"}
_EVENT = {
    "transactionId",
    "eventTimestamp",
    "eventSource",
    "adIdentifiers",
    "userData",
    "conversionValue",
    "currency",
    "consent",
}
_Violation = tuple[str, str, str]  # field, reason, and the value: the real API repeats it too
_TYPE = "type.googleapis.com/google.rpc."


class FakeGoogleDataManager(FakeGoogle):
    name = "google_datamanager"

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.silent = False
        self.requests: dict[str, int] = {}  # number of events of each accepted request
        self._state = "PROCESSING"
        self._reasons: Mapping[str, int] = {}

    def process(self, state: str, reasons: Mapping[str, int] | None = None) -> None:
        self._state, self._reasons = state, reasons or {}

    def kind(self, call: ReceivedRequest) -> str:
        return {"/token": "token", "/v1/requestStatus:retrieve": "status"}.get(call.path, DATA)

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        if call.path == "/token":
            return Reply(status, {"error": "internal_failure"})
        if status == 400:  # an error of the destination, not of an event
            return _refused(
                400, "INVALID_ARGUMENT", [("destinations[0].product_destination_id", "INVALID_FORMAT", "")]
            )
        return _refused(status, None)

    def no_token(self, call: ReceivedRequest, *, expired: bool) -> Reply:
        return _refused(401, "ACCESS_TOKEN_EXPIRED" if expired else "ACCESS_TOKEN_TYPE_UNSUPPORTED")

    def spoken(self, call: ReceivedRequest) -> Reply:
        if (call.method, call.path) == ("POST", "/v1/events:ingest"):
            return self._ingest(call.body)
        if (call.method, call.path) == ("GET", "/v1/requestStatus:retrieve"):
            return self._status(call.query.get("requestId", ""))
        return Reply(404, b"<html>404</html>", {"content-type": "text/html"})

    def _ingest(self, body: Any) -> Reply:
        if wrong := _malformed(body):
            return _refused(400, None, [("", wrong, "")])
        violations = _destination_wrong(body.get("destinations", []))
        events = body.get("events", [])
        if not events:
            violations.append(("events", "REQUIRED_FIELD_MISSING", ""))
        if len(events) > 2000:
            return _refused(400, "TOO_MANY_EVENTS", [("events", "TOO_MANY_EVENTS", "")])
        for at, event in enumerate(events):
            codes = self.refusals.get(order_of(event)) or _wrong(event, body.get("encoding"))
            for code in codes:
                violations.append(
                    (f"events.events[{at}].{_FIELDS.get(code, 'ad_identifiers')}", code, str(event))
                )
        if violations:
            return _refused(400, "INVALID_ARGUMENT", [] if self.silent else violations)
        if body.get("validateOnly") is True:
            return Reply(200, {})
        action = body["destinations"][0]["productDestinationId"]
        for event in events:
            order_id = order_of(event)
            self.take(order_id, (action, order_id))
        request_id = f"fake-request-{len(self.requests) + 1}"
        self.requests[request_id] = len(events)
        return Reply(200, {"requestId": request_id})

    def _status(self, request_id: str) -> Reply:
        if request_id not in self.requests:
            return _refused(400, "INVALID_REQUEST_ID", [("request_id", "INVALID_REQUEST_ID", request_id)])
        status: dict[str, Any] = {"requestStatus": self._state}
        if self._state != "PROCESSING":
            status["eventsIngestionStatus"] = {"recordCount": str(self.requests[request_id])}
        if self._reasons:
            counts = [{"reason": name, "recordCount": str(count)} for name, count in self._reasons.items()]
            status["errorInfo"] = {"errorCounts": counts}
        return Reply(200, {"requestStatusPerDestination": [status]})


def order_of(event: Mapping[str, Any]) -> str:
    """The order id that an event was made of: its sender prefixes ids that consist of digits."""
    sent = str(event.get("transactionId", ""))
    digits = sent.removeprefix("wb-")
    return digits if digits.isdecimal() else sent


def _malformed(body: Any) -> str | None:
    """Errors that protobuf's JSON parser would report."""
    if not isinstance(body, dict):
        return "Root element must be a message."
    for name in body.keys() - _REQUEST:
        return f'Unknown name "{name}": Cannot find field.'
    for at, event in enumerate(body.get("events", [])):
        if unknown := event.keys() - _EVENT:
            return f"Unknown name \"{unknown.pop()}\" at 'events[{at}]': Cannot find field."
    return None


def _destination_wrong(destinations: list[dict[str, Any]]) -> list[_Violation]:
    if len(destinations) != 1:
        return [
            ("destinations", "REQUIRED_FIELD_MISSING" if not destinations else "TOO_MANY_DESTINATIONS", "")
        ]
    one = destinations[0]
    accounts = [one[name] for name in ("operatingAccount", "loginAccount") if name in one]
    wrong = [
        ("destinations[0].operating_account", "INVALID_DESTINATION", str(account))
        for account in accounts
        if account.get("accountType") != "GOOGLE_ADS"
        or not re.fullmatch(r"\d+", account.get("accountId", ""))
    ]
    if "operatingAccount" not in one:
        wrong.append(("destinations[0].operating_account", "REQUIRED_FIELD_MISSING", ""))
    if not re.fullmatch(r"\d+", one.get("productDestinationId", "")):
        wrong.append(("destinations[0].product_destination_id", "INVALID_CONVERSION_ACTION_ID", ""))
    return wrong


_FIELDS = {
    "EVENT_TIME_INVALID": "event_timestamp",
    "INVALID_CURRENCY_CODE": "currency",
    "INVALID_SHA256_FORMAT": "user_data.user_identifiers[0].email_address",
    "REQUIRED_FIELD_MISSING": "event_source",
    "INVALID_FORMAT": "transaction_id",
}


def _wrong(event: Mapping[str, Any], encoding: Any) -> tuple[str, ...]:
    """Errors of a single event."""
    found = []
    if event.get("eventSource") not in ("WEB", "APP", "IN_STORE", "PHONE", "OTHER", "MESSAGE"):
        found.append("REQUIRED_FIELD_MISSING")
    if not event.get("transactionId") or str(event["transactionId"]).isdecimal():
        found.append("INVALID_FORMAT")
    if not _rfc3339(str(event.get("eventTimestamp", ""))):
        found.append("EVENT_TIME_INVALID")
    if len(event.get("adIdentifiers", {}).keys() & _CLICKS) != 1:
        found.append("NO_IDENTIFIERS_PROVIDED")
    if not re.fullmatch("[A-Z]{3}", event.get("currency", "USD")):
        found.append("INVALID_CURRENCY_CODE")
    people = event.get("userData", {}).get("userIdentifiers", [])
    if people and (encoding != "HEX" or any(not _HEX.fullmatch(v) for each in people for v in each.values())):
        found.append("INVALID_SHA256_FORMAT")
    return tuple(found)


def _rfc3339(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text
    except ValueError:
        return False


def _refused(status: int, reason: str | None, violations: list[_Violation] | None = None) -> Reply:
    details: list[dict[str, Any]] = [{"@type": f"{_TYPE}RequestInfo", "requestId": "fake-refusal"}]
    if reason:
        domain = "datamanager.googleapis.com"
        details.append({"@type": f"{_TYPE}ErrorInfo", "reason": reason, "domain": domain})
    if violations:
        fields = [
            {"field": field, "description": f"{why}: '{sent}'.", "reason": why}
            for field, why, sent in violations
        ]
        details.append({"@type": f"{_TYPE}BadRequest", "fieldViolations": fields})
    return Reply(status, status_body(status, *details))


__all__ = ["FakeGoogleDataManager"]
