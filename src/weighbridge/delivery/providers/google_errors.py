"""Classification of the errors of Google Ads, for rows and requests.

Google's messages repeat values of the request (`trigger`), so they are replaced by our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import lru_cache
from typing import Any, assert_never

from weighbridge.model.delivery import Category, Conversion, Outcome, Verdict
from weighbridge.model.retry import GOOGLE_REGISTERS, GOOGLE_SEARCHES, LONGEST_ANSWER_PAUSE


class Handling(Enum):
    """The consequence of an error for a row. Worst first: of several errors of a row, the worst is reported."""

    AUTH = auto()  # account or credentials: no row is accepted until they are changed
    REFUSED = auto()  # a retry cannot succeed
    LATER = auto()  # not registered at Google yet: retry after 6 hours
    SEARCHED = auto()  # Google may find it later: retry after 6 and 24 hours, then fail
    LIMITED = auto()  # rate limit
    TRANSIENT = auto()  # temporary or unexplained
    ALONE = auto()  # conflicts with other rows of the request: send it again without them
    DELIVERED = auto()  # Google has it from an earlier call


@dataclass(frozen=True)
class GoogleError:
    """One error of a response."""

    family: str  # conversionUploadError, quotaError, …; empty if the response has none
    code: str
    row: int | None = None  # its position in the request; None: the error names no row
    retry_delay: timedelta | None = None
    developer_wide: bool = False  # rateScope DEVELOPER: all accounts of the project share the limit

    @property
    def handling(self) -> Handling:
        return _handling(self.family, self.code)


@lru_cache(1024)
def _handling(family: str, code: str) -> Handling:
    if family == "conversionUploadError":
        return CONVERSION_UPLOAD.get(code, Handling.TRANSIENT)  # newer than this table: retried
    if family in FAMILIES:
        return FAMILIES[family]
    return _CODES.get(code, Handling.REFUSED if family else Handling.TRANSIENT)


CONVERSION_UPLOAD: Mapping[str, Handling] = {
    **dict.fromkeys(
        ("ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS", "CALL_CONVERSION_ALREADY_EXISTS"),
        Handling.DELIVERED,
    ),
    **dict.fromkeys(("TOO_RECENT_EVENT", "TOO_RECENT_CONVERSION_ACTION", "TOO_RECENT_CALL"), Handling.LATER),
    **dict.fromkeys(("CLICK_NOT_FOUND", "EVENT_NOT_FOUND", "CALL_NOT_FOUND"), Handling.SEARCHED),
    **dict.fromkeys(
        (
            "TOO_MANY_CONVERSIONS_IN_REQUEST",
            "DUPLICATE_ORDER_ID",
            "DUPLICATE_CLICK_CONVERSION_IN_REQUEST",
            "DUPLICATE_CALL_CONVERSION_IN_REQUEST",
        ),
        Handling.ALONE,
    ),
    **dict.fromkeys(("UNKNOWN", "UNSPECIFIED"), Handling.TRANSIENT),
    **dict.fromkeys(
        (
            "UNPARSEABLE_GCLID",
            "INVALID_GCLID",  # not in v26, but part of the fixed list
            "UNPARSEABLE_WBRAID",
            "UNPARSEABLE_GBRAID",
            "GBRAID_WBRAID_BOTH_SET",
            "ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID",
            "CONVERSION_PRECEDES_EVENT",
            "CONVERSION_PRECEDES_CALL",
            "EXPIRED_EVENT",
            "EXPIRED_CALL",
            "UNAUTHORIZED_CUSTOMER",
            "INVALID_CUSTOMER_FOR_CLICK",
            "INVALID_CUSTOMER_FOR_CALL",
            "CONVERSION_TRACKING_NOT_ENABLED_AT_IMPRESSION_TIME",
            "CONVERSION_TRACKING_NOT_ENABLED_AT_CALL_TIME",
            "EXTERNAL_ATTRIBUTION_DATA_SET_FOR_NON_EXTERNALLY_ATTRIBUTED_CONVERSION_ACTION",
            "EXTERNAL_ATTRIBUTION_DATA_NOT_SET_FOR_EXTERNALLY_ATTRIBUTED_CONVERSION_ACTION",
            "ORDER_ID_NOT_PERMITTED_FOR_EXTERNALLY_ATTRIBUTED_CONVERSION_ACTION",
            "EXTERNALLY_ATTRIBUTED_CONVERSION_ACTION_NOT_PERMITTED_WITH_USER_IDENTIFIER",
            "UNPARSEABLE_CALLERS_PHONE_NUMBER",
            "CUSTOM_VARIABLE_NOT_ENABLED",
            "CUSTOM_VARIABLE_VALUE_CONTAINS_PII",
            "CONVERSION_NOT_COMPLIANT_WITH_ATT_POLICY",
            "INVALID_USER_IDENTIFIER",
            "UNSUPPORTED_USER_IDENTIFIER",
            "CUSTOMER_DATA_POLICY_PROHIBITS_ENHANCED_CONVERSIONS",
            "CUSTOMER_NOT_ACCEPTED_CUSTOMER_DATA_TERMS",
            "CUSTOMER_NOT_ENABLED_ENHANCED_CONVERSIONS_FOR_LEADS",
            "ORDER_ID_CONTAINS_PII",
            "INVALID_JOB_ID",
            "NO_CONVERSION_ACTION_FOUND",
            "INVALID_CONVERSION_ACTION_TYPE",
        ),
        Handling.REFUSED,
    ),
}

FAMILIES: Mapping[str, Handling] = {
    "internalError": Handling.TRANSIENT,
    "quotaError": Handling.LIMITED,
    "authenticationError": Handling.AUTH,
    "authorizationError": Handling.AUTH,
    "notAllowlistedError": Handling.AUTH,
    "headerError": Handling.AUTH,  # login-customer-id
}

# Codes of other enums or none: fixed codes, gRPC codes, and codes that are not about the row.
_CODES: Mapping[str, Handling] = {
    **dict.fromkeys(("INVALID_ARGUMENT", "INVALID_GCLID", "RESOURCE_NOT_FOUND"), Handling.REFUSED),
    **dict.fromkeys(("RESOURCE_EXHAUSTED", "RATE_LIMIT"), Handling.LIMITED),
    **dict.fromkeys(
        (
            "UNAVAILABLE",
            "DEADLINE_EXCEEDED",
            "BACKEND_ERROR",
            "INTERNAL",
            "ABORTED",
            "CANCELLED",
            "CONCURRENT_MODIFICATION",
            "RPC_DEADLINE_TOO_SHORT",
            "UNKNOWN",
            "UNSPECIFIED",
        ),
        Handling.TRANSIENT,
    ),
    **dict.fromkeys(
        (
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "DEVELOPER_TOKEN_PARAMETER_MISSING",
            "LOGIN_CUSTOMER_ID_PARAMETER_MISSING",
            "INVALID_CUSTOMER_ID",
            "CLOUD_PROJECT_NOT_FOUND",
        ),
        Handling.AUTH,
    ),
}

# Messages of errors that a user can fix. Other messages only contain the code.
_SENTENCES: Mapping[str, str] = {
    "CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE": "Google no longer accepts conversions of this account through "
    "google_ads: since June 2026, only accounts that had used it before may use it. Use the provider "
    "google_datamanager, with the same credentials and a refresh token for the scope "
    "https://www.googleapis.com/auth/datamanager.",
    "UNPARSEABLE_GCLID": "Google cannot read the gclid. It must be stored unchanged, including upper and lower case.",
    "UNPARSEABLE_WBRAID": "Google cannot read the wbraid. It must be stored unchanged, including upper and lower case.",
    "UNPARSEABLE_GBRAID": "Google cannot read the gbraid. It must be stored unchanged, including upper and lower case.",
    "EXPIRED_EVENT": "The click is older than the window of the conversion action.",
    "CONVERSION_PRECEDES_EVENT": "The conversion is earlier than its click. Check its time zone.",
    "UNAUTHORIZED_CUSTOMER": "The click belongs to an account that these credentials may not use.",
    "INVALID_CUSTOMER_FOR_CLICK": "The click belongs to another account than customer_id.",
    "NO_CONVERSION_ACTION_FOUND": "There is no such conversion action in the account. "
    "Check conversion_action_resource_name.",
    "INVALID_CONVERSION_ACTION_TYPE": "The conversion action does not accept uploads: it needs the type "
    "'import from clicks'.",
    "CUSTOMER_NOT_ACCEPTED_CUSTOMER_DATA_TERMS": "The account has not accepted the customer data terms. "
    "Accept them in its conversion settings.",
    "CUSTOMER_NOT_ENABLED_ENHANCED_CONVERSIONS_FOR_LEADS": "Enhanced conversions for leads are disabled "
    "for the account. Enable them in its conversion settings.",
    "ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID": "The conversion action counts one per click, "
    "which is not possible with gbraid and wbraid. Change it to count every conversion.",
    "ORDER_ID_CONTAINS_PII": "Google treats the order id as personal data. Do not use an e-mail address or a phone "
    "number as order id.",
    "NOT_TAKEN": "Google did not accept this row because of another row of the request.",
    "USER_PERMISSION_DENIED": "These credentials may not use the account. If a manager account has the "
    "access, set login_customer_id to its number.",
}


def outcome(errors: Sequence[GoogleError], row: Conversion, request_id: str | None) -> Outcome:
    """The outcome of a row with these errors. It counts as delivered only if all of them mean that."""
    error = worst(errors)
    match error.handling:
        case Handling.DELIVERED:
            return Outcome.completed(request_id, duplicate=True)
        case Handling.AUTH:
            return _outcome(Verdict.FAILED, error, Category.AUTH, request_id)
        case Handling.REFUSED:
            return _outcome(Verdict.FAILED, error, Category.VALIDATION, request_id)
        case (
            Handling.LATER
        ):  # VALIDATION: it must not open the breaker, as it says nothing about the provider
            return _outcome(Verdict.RETRY, error, Category.VALIDATION, request_id, GOOGLE_REGISTERS)
        case Handling.SEARCHED:
            times = (
                row.last_code_times if CONVERSION_UPLOAD.get(row.last_code or "") is Handling.SEARCHED else 0
            )
            if times >= len(GOOGLE_SEARCHES):
                return _outcome(Verdict.FAILED, error, Category.VALIDATION, request_id)
            return _outcome(Verdict.RETRY, error, Category.VALIDATION, request_id, GOOGLE_SEARCHES[times])
        case Handling.LIMITED:
            return _outcome(Verdict.RETRY, error, Category.RATE_LIMIT, request_id, error.retry_delay)
        case Handling.TRANSIENT:
            return _outcome(Verdict.RETRY, error, Category.TRANSIENT, request_id)
        case Handling.ALONE if error.code == "TOO_MANY_CONVERSIONS_IN_REQUEST":
            return _outcome(Verdict.RETRY, error, Category.TRANSIENT, request_id)
        case Handling.ALONE:  # the row was sent alone already
            return _outcome(Verdict.FAILED, error, Category.VALIDATION, request_id)
        case _:
            assert_never(error.handling)


def worst(errors: Sequence[GoogleError]) -> GoogleError:
    """The error that decides the outcome of a row."""
    return errors[0] if len(errors) == 1 else min(errors, key=lambda error: error.handling.value)


def _outcome(
    verdict: Verdict,
    error: GoogleError,
    category: Category,
    request_id: str | None,
    after: timedelta | None = None,
) -> Outcome:
    return Outcome(verdict, error.code, category, sentence(error), request_id, after)


def sentence(error: GoogleError) -> str:
    if text := _SENTENCES.get(error.code):
        return text
    match error.handling:
        case Handling.AUTH:
            return f"Google refuses the account or its credentials ({error.code})."
        case Handling.LATER:
            return f"Google has not registered the click or action yet ({error.code}). It is sent again in six hours."
        case Handling.SEARCHED:
            return (
                f"Google finds no click for the conversion ({error.code}). It is sent again after 6 and after "
                "24 hours, then it fails."
            )
        case Handling.LIMITED:
            return f"Google's rate limit is reached ({error.code})."
        case Handling.TRANSIENT:
            return f"Google could not accept the conversion now ({error.code})."
        case Handling.REFUSED | Handling.ALONE | Handling.DELIVERED:
            return f"Google refuses the conversion ({error.code})."
        case _:
            assert_never(error.handling)


def errors_of(status: Mapping[str, Any]) -> tuple[list[GoogleError], str | None]:
    """The errors in a google.rpc.Status (an error body's `error`, or a partialFailureError), and the request's id."""
    found: list[GoogleError] = []
    request_id: str | None = None
    for detail in as_dicts(status.get("details")):
        if _text(detail.get("@type")).endswith("GoogleAdsFailure") or "errors" in detail:
            found += [_error(error) for error in as_dicts(detail.get("errors"))]
            request_id = request_id or _text(detail.get("requestId")) or None
    return found, request_id


def _error(error: Mapping[str, Any]) -> GoogleError:
    value = error.get("errorCode")
    family, code = next(iter(value.items()), ("", "")) if isinstance(value, dict) else ("", "")
    row = _row(as_dict(error.get("location")).get("fieldPathElements"))
    if "details" not in error:
        return GoogleError(family, code_of(code), row)
    quota = as_dict(as_dict(error["details"]).get("quotaErrorDetails"))
    delay = duration(quota.get("retryDelay"))
    return GoogleError(family, code_of(code), row, delay, quota.get("rateScope") == "DEVELOPER")


def _row(path: Any) -> int | None:
    for element in as_dicts(path):
        if element.get("fieldName") == "conversions":
            index = element.get("index")
            return index if isinstance(index, int) and index >= 0 else None
    return None


def code_of(value: Any) -> str:
    """A code is a name in capitals. Anything else is not stored or logged."""
    return value if isinstance(value, str) and _is_code(value) else "UNKNOWN"


@lru_cache(1024)
def _is_code(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", value) is not None


def duration(value: Any) -> timedelta | None:
    """A protobuf Duration in JSON, "40591s"; a day at most."""
    number = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)s", _text(value))
    return min(timedelta(seconds=float(number[1])), LONGEST_ANSWER_PAUSE) if number else None


def as_dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
