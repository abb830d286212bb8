"""A fake Google Ads for click conversions: REST v26, with partial failures in the real format.

fake.refuse("order-7", "INVALID_GCLID")            a row's error; "internalError.INTERNAL_ERROR" of another family
fake.deny("quotaError.RESOURCE_EXHAUSTED", rate_scope="DEVELOPER", retry_delay="30s")    the next request as a whole
fake.nameless = True                               errors name no row
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weighbridge.testing._google_oauth import FakeGoogle, status_body
from weighbridge.testing._server import DATA, ReceivedRequest, Reply

_PATH = re.compile(r"/v26/customers/\d+:uploadClickConversions")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")
_HEX = re.compile(r"[0-9a-f]{64}")
_CLICKS = ("gclid", "gbraid", "wbraid")
_REQUEST = {"conversions", "partialFailure", "validateOnly", "jobId", "customerId"}
_ROW = {
    *_CLICKS,
    "conversionAction",
    "conversionDateTime",
    "conversionValue",
    "currencyCode",
    "orderId",
    "userIdentifiers",
    "consent",
}
_FAMILY = {
    "INTERNAL_ERROR": "internalError",
    "TRANSIENT_ERROR": "internalError",
    "DEADLINE_EXCEEDED": "internalError",
    "RESOURCE_EXHAUSTED": "quotaError",
    "RESOURCE_TEMPORARILY_EXHAUSTED": "quotaError",
    "RESOURCE_NOT_FOUND": "mutateError",
    "CONCURRENT_MODIFICATION": "databaseError",
    "CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE": "notAllowlistedError",
    "USER_PERMISSION_DENIED": "authorizationError",
    "OAUTH_TOKEN_EXPIRED": "authenticationError",
}
_HTTP = {
    "quotaError": 429,
    "authenticationError": 401,
    "authorizationError": 403,
    "notAllowlistedError": 403,
    "internalError": 500,
}
_SCRIPTED = {
    400: "fieldError.INVALID_VALUE",
    401: "authenticationError.OAUTH_TOKEN_INVALID",
    403: "authorizationError.USER_PERMISSION_DENIED",
    429: "quotaError.RESOURCE_EXHAUSTED",
    500: "internalError.INTERNAL_ERROR",
}


class FakeGoogleAds(FakeGoogle):
    name = "google_ads"

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.nameless = False
        self._denials: deque[tuple[str, dict[str, str] | None]] = deque()
        self._clicks: set[tuple[str, ...]] = set()
        self._requests = 0

    def deny(
        self, code: str, *, times: int = 1, rate_scope: str | None = None, retry_delay: str | None = None
    ) -> None:
        """Refuse the next requests as a whole with this error."""
        details = {"rateScope": rate_scope, "rateName": "Requests per account", "retryDelay": retry_delay}
        quota = {name: value for name, value in details.items() if value is not None} if rate_scope else None
        self._denials.extend([(code, quota)] * times)

    def error(self, call: ReceivedRequest, status: int) -> Reply:
        if call.path == "/token":
            return Reply(status, {"error": "internal_failure"})
        code = _SCRIPTED.get(status)
        return self._refusal(status, *([_error(code)] if code else []))

    def no_token(self, call: ReceivedRequest, *, expired: bool) -> Reply:
        code = "OAUTH_TOKEN_EXPIRED" if expired else "OAUTH_TOKEN_INVALID"
        return self._refusal(401, _error(f"authenticationError.{code}"))

    def kind(self, call: ReceivedRequest) -> str:
        return (
            DATA if _PATH.fullmatch(call.path) else super().kind(call) if call.path == "/token" else "other"
        )

    def spoken(self, call: ReceivedRequest) -> Reply:
        if call.method != "POST" or not _PATH.fullmatch(call.path):
            return Reply(404, b"<html>404</html>", {"content-type": "text/html"})
        if self._denials:
            code, quota = self._denials.popleft()
            error = _error(code)
            if quota:
                error["details"] = {"quotaErrorDetails": quota}
            return self._refusal(_HTTP.get(next(iter(error["errorCode"])), 400), error)
        if not re.fullmatch(r"\d+", call.headers.get("login-customer-id", "1")):
            return self._refusal(400, _error("headerError.INVALID_LOGIN_CUSTOMER_ID"))
        return self._upload(call.body)

    def _upload(self, body: Any) -> Reply:
        if wrong := _malformed(body):
            violation = {"fieldViolations": [{"description": wrong}]}
            bad = {"@type": "type.googleapis.com/google.rpc.BadRequest", **violation}
            return Reply(400, status_body(400, bad, message=f"Invalid JSON payload received. {wrong}"))
        rows: list[dict[str, Any]] = body.get("conversions", [])
        if body.get("partialFailure") is not True:
            return self._refusal(400, _error("partialFailureError.PARTIAL_FAILURE_MODE_REQUIRED"))
        if not rows:
            return self._refusal(400, _error("requestError.REQUIRED_FIELD_MISSING"))
        if len(rows) > 2000:
            return self._refusal(400, _error("TOO_MANY_CONVERSIONS_IN_REQUEST"))
        return self._judge(rows, validate_only=body.get("validateOnly") is True)

    def _judge(self, rows: Sequence[dict[str, Any]], *, validate_only: bool) -> Reply:
        clicks = list(map(_click, rows))
        orders = [row.get("orderId") or "" for row in rows]
        twins = len(set(orders)) < len(rows) or len(set(clicks)) < len(rows)
        same_order, same_click = (Counter(orders), Counter(clicks)) if twins else (Counter(), Counter())
        results, errors = [], []
        for at, (row, order_id, click) in enumerate(zip(rows, orders, clicks, strict=True)):
            codes = self.refusals.get(order_id) or _wrong(row)
            if twins and not codes:
                codes = _twin(same_order[order_id], same_click[click])
            if codes or validate_only:
                self._see(order_id)
            else:
                codes = self._keep(row["conversionAction"], order_id, click)
            if codes:
                errors += [_error(code, None if self.nameless else at, row) for code in codes]
            results.append({} if codes else {name: row[name] for name in row if name in _ECHO})
        return self._answered_rows(results, errors, validate_only)

    def _keep(self, action: str, order_id: str, click: tuple[str, ...]) -> tuple[str, ...]:
        """The error for a conversion that was accepted before."""
        clicked, ordered = (action, *click), (action, order_id)
        if clicked in self._clicks and ordered not in self._known:
            self._see(order_id)
            return ("CLICK_CONVERSION_ALREADY_EXISTS",)
        if not self.take(order_id, ordered):
            return ("ORDER_ID_ALREADY_IN_USE",)
        self._clicks.add(clicked)
        return ()

    def _see(self, order_id: str) -> None:
        self.seen[order_id] = self.seen.get(order_id, 0) + 1

    def _answered_rows(
        self, results: list[dict[str, Any]], errors: list[dict[str, Any]], validate_only: bool
    ) -> Reply:
        self._requests += 1
        request_id = f"fake-request-{self._requests}"
        body: dict[str, Any] = {"jobId": str((1 << 31) + self._requests)}
        if not validate_only:
            body["results"] = results
        if errors:
            message = f"Multiple errors in ‘details’. First error: {errors[0]['message']}"
            body["partialFailureError"] = {
                "code": 3,
                "message": message,
                "details": [_failure(errors, request_id)],
            }
        return Reply(200, body, {"x-goog-request-id": request_id})

    def _refusal(self, status: int, *errors: dict[str, Any]) -> Reply:
        self._requests += 1
        failure = _failure(list(errors), f"fake-request-{self._requests}")
        return Reply(status, status_body(status, *([failure] if errors else [])))


_ECHO = {*_CLICKS, "conversionAction", "conversionDateTime", "userIdentifiers"}


def _malformed(body: Any) -> str | None:
    """Errors that protobuf's JSON parser would report."""
    if not isinstance(body, dict):
        return "Root element must be a message."
    for name in body.keys() - _REQUEST:
        return f'Unknown name "{name}": Cannot find field.'
    rows = body.get("conversions", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return "Invalid value at 'conversions'."
    for at, row in enumerate(rows):
        if unknown := row.keys() - _ROW:
            return f"Unknown name \"{unknown.pop()}\" at 'conversions[{at}]': Cannot find field."
        if not isinstance(row.get("conversionValue", 0.0), int | float):
            return f"Invalid value at 'conversions[{at}].conversion_value' (TYPE_DOUBLE)."
    return None


def _wrong(row: dict[str, Any]) -> tuple[str, ...]:
    """Errors of a single row."""
    clicks = ("gclid" in row) + ("gbraid" in row) + ("wbraid" in row)
    if clicks > 1:
        return ("fieldError.VALUE_MUST_BE_UNSET",)
    if not clicks or not row.get("orderId"):
        return ("fieldError.REQUIRED",)
    if not _is_action(row.get("conversionAction", "")):
        return ("requestError.RESOURCE_NAME_MALFORMED",)
    if not _TIME.fullmatch(row.get("conversionDateTime", "")):
        return ("dateError.INVALID_STRING_DATE_TIME_SECONDS_WITH_OFFSET",)
    if not _is_currency(row.get("currencyCode", "USD")):
        return ("currencyCodeError.UNSUPPORTED",)
    people = row.get("userIdentifiers", ())
    if len(people) > 5 or any(not _HEX.fullmatch(value) for each in people for value in each.values()):
        return ("INVALID_USER_IDENTIFIER",)
    return ()


@lru_cache(4096)
def _is_action(text: str) -> bool:
    return re.fullmatch(r"customers/\d+/conversionActions/\d+", text) is not None


@lru_cache(1024)
def _is_currency(text: str) -> bool:
    return re.fullmatch(r"[A-Z]{3}", text) is not None


def _click(row: dict[str, Any]) -> tuple[str, ...]:
    get = row.get
    return get("gclid", ""), get("gbraid", ""), get("wbraid", ""), get("conversionDateTime", "")


def _twin(orders: int, clicks: int) -> tuple[str, ...]:
    if orders > 1:
        return ("DUPLICATE_ORDER_ID",)
    return ("DUPLICATE_CLICK_CONVERSION_IN_REQUEST",) if clicks > 1 else ()


def _error(code: str, at: int | None = None, row: dict[str, Any] | None = None) -> dict[str, Any]:
    family, _, name = code.rpartition(".")
    family = family or _FAMILY.get(name, "conversionUploadError")
    error: dict[str, Any] = {"errorCode": {family: name}, "message": f"{name} (a sentence of Google's)."}
    if row is not None:  # the real API also quotes the values it received
        sent = next((row[click] for click in _CLICKS if click in row), "")
        error |= {"message": f"{name}: '{sent}'.", "trigger": {"stringValue": sent}}
    if at is not None:
        error["location"] = {"fieldPathElements": [{"fieldName": "conversions", "index": at}]}
    return error


def _failure(errors: list[dict[str, Any]], request_id: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.ads.googleads.v26.errors.GoogleAdsFailure"
    return {"@type": kind, "errors": errors, "requestId": request_id}
