"""Classification of the errors of Google Ads, for rows and requests.

Google's own sentences repeat what was sent (`trigger`), so none of them is passed on: here are ours.
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

SETTLING = timedelta(hours=6)  # how long Google needs until it knows a click, or a new conversion action
SEARCHING = (SETTLING, timedelta(hours=18))  # 6 h and 24 h after the first answer
LONGEST_WAIT = timedelta(days=1)


class Fate(Enum):
    """The consequence of an error for a row. Worst first: of several errors of a row, the worst is reported."""

    AUTH = auto()  # account or credentials: no row is accepted until they are changed
    REFUSED = auto()  # a retry cannot succeed
    LATER = auto()  # Google does not know it yet: after 6 hours
    SEARCHED = auto()  # Google may find it later: retry after 6 and 24 hours, then fail
    LIMITED = auto()  # rate limit
    TRANSIENT = auto()  # temporary or unexplained
    ALONE = auto()  # conflicts with other rows of the request: send it again without them
    DELIVERED = auto()  # Google has it from an earlier call


@dataclass(frozen=True)
class GoogleError:
    """One error, as the answer has it."""

    family: str  # conversionUploadError, quotaError, …; empty where the answer has none
    code: str
    row: int | None = None  # its place in the request; None: it names no row
    retry_delay: timedelta | None = None
    developer_wide: bool = False  # rateScope DEVELOPER: all accounts of the project share the limit

    @property
    def fate(self) -> Fate:
        return _fate(self.family, self.code)


@lru_cache(1024)
def _fate(family: str, code: str) -> Fate:
    if family == "conversionUploadError":
        return CONVERSION_UPLOAD.get(code, Fate.TRANSIENT)  # newer than this table: nothing is lost
    if family in FAMILIES:
        return FAMILIES[family]
    return _CODES.get(code, Fate.REFUSED if family else Fate.TRANSIENT)


CONVERSION_UPLOAD: Mapping[str, Fate] = {
    **dict.fromkeys(
        ("ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS", "CALL_CONVERSION_ALREADY_EXISTS"),
        Fate.DELIVERED,
    ),
    **dict.fromkeys(("TOO_RECENT_EVENT", "TOO_RECENT_CONVERSION_ACTION", "TOO_RECENT_CALL"), Fate.LATER),
    **dict.fromkeys(("CLICK_NOT_FOUND", "EVENT_NOT_FOUND", "CALL_NOT_FOUND"), Fate.SEARCHED),
    **dict.fromkeys(
        (
            "TOO_MANY_CONVERSIONS_IN_REQUEST",
            "DUPLICATE_ORDER_ID",
            "DUPLICATE_CLICK_CONVERSION_IN_REQUEST",
            "DUPLICATE_CALL_CONVERSION_IN_REQUEST",
        ),
        Fate.ALONE,
    ),
    **dict.fromkeys(("UNKNOWN", "UNSPECIFIED"), Fate.TRANSIENT),
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
        Fate.REFUSED,
    ),
}

FAMILIES: Mapping[str, Fate] = {
    "internalError": Fate.TRANSIENT,
    "quotaError": Fate.LIMITED,
    "authenticationError": Fate.AUTH,
    "authorizationError": Fate.AUTH,
    "notAllowlistedError": Fate.AUTH,
    "headerError": Fate.AUTH,  # login-customer-id
}

# Codes of other enums or none: fixed codes, gRPC codes, and codes that are not about the row.
_CODES: Mapping[str, Fate] = {
    **dict.fromkeys(("INVALID_ARGUMENT", "INVALID_GCLID", "RESOURCE_NOT_FOUND"), Fate.REFUSED),
    **dict.fromkeys(("RESOURCE_EXHAUSTED", "RATE_LIMIT"), Fate.LIMITED),
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
        Fate.TRANSIENT,
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
        Fate.AUTH,
    ),
}

# What to do, where there is something to do. Of the others the code itself says enough.
_SENTENCES: Mapping[str, str] = {
    "CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE": "Google no longer accepts conversions of this account here: "
    "since June 2026 it is closed to accounts that did not use it before. Use the provider "
    "google_datamanager instead: it takes the same credentials, with a refresh token for the scope "
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
    "INVALID_CONVERSION_ACTION_TYPE": "The conversion action takes no uploads: it needs the type 'import from "
    "clicks'.",
    "CUSTOMER_NOT_ACCEPTED_CUSTOMER_DATA_TERMS": "The account has not accepted the customer data terms. "
    "Accept them in its conversion settings.",
    "CUSTOMER_NOT_ENABLED_ENHANCED_CONVERSIONS_FOR_LEADS": "Enhanced conversions for leads are disabled "
    "for the account. Enable them in its conversion settings.",
    "ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID": "The conversion action counts one per click, "
    "which is not possible with gbraid and wbraid. Change it to count every conversion.",
    "ORDER_ID_CONTAINS_PII": "Google considers the order id personal data, such as an e-mail address.",
    "NOT_TAKEN": "Google did not accept this row because of another row of the request.",
    "USER_PERMISSION_DENIED": "These credentials may not use the account. If a manager account has the "
    "access, set login_customer_id to its number.",
}


def outcome(errors: Sequence[GoogleError], row: Conversion, request_id: str | None) -> Outcome:
    """What becomes of one row that has these errors. It is delivered already only if all of them say so."""
    told = worst(errors)
    match told.fate:
        case Fate.DELIVERED:
            return Outcome.completed(request_id, duplicate=True)
        case Fate.AUTH:
            return _outcome(Verdict.FAILED, told, Category.AUTH, request_id)
        case Fate.REFUSED:
            return _outcome(Verdict.FAILED, told, Category.VALIDATION, request_id)
        case Fate.LATER:  # of the row, not of the provider's health: no breaker may open for it
            return _outcome(Verdict.RETRY, told, Category.VALIDATION, request_id, SETTLING)
        case Fate.SEARCHED:
            times = row.last_code_times if CONVERSION_UPLOAD.get(row.last_code or "") is Fate.SEARCHED else 0
            if times >= len(SEARCHING):
                return _outcome(Verdict.FAILED, told, Category.VALIDATION, request_id)
            return _outcome(Verdict.RETRY, told, Category.VALIDATION, request_id, SEARCHING[times])
        case Fate.LIMITED:
            return _outcome(Verdict.RETRY, told, Category.RATE_LIMIT, request_id, told.retry_delay)
        case Fate.TRANSIENT:
            return _outcome(Verdict.RETRY, told, Category.TRANSIENT, request_id)
        case Fate.ALONE if told.code == "TOO_MANY_CONVERSIONS_IN_REQUEST":
            return _outcome(Verdict.RETRY, told, Category.TRANSIENT, request_id)
        case Fate.ALONE:  # it was alone already
            return _outcome(Verdict.FAILED, told, Category.VALIDATION, request_id)
        case _:
            assert_never(told.fate)


def worst(errors: Sequence[GoogleError]) -> GoogleError:
    """Of several errors of a row the one that decides."""
    return errors[0] if len(errors) == 1 else min(errors, key=lambda error: error.fate.value)


def _outcome(
    verdict: Verdict,
    error: GoogleError,
    category: Category,
    request_id: str | None,
    after: timedelta | None = None,
) -> Outcome:
    return Outcome(verdict, error.code, category, sentence(error), request_id, after)


def sentence(error: GoogleError) -> str:
    if told := _SENTENCES.get(error.code):
        return told
    match error.fate:
        case Fate.AUTH:
            return f"Google refuses the account or its credentials ({error.code})."
        case Fate.LATER:
            return (
                f"Google does not know the click or action yet ({error.code}). It is sent again in six hours."
            )
        case Fate.SEARCHED:
            return (
                f"Google finds no click for it ({error.code}). Tried immediately, after 6 and after 24 hours."
            )
        case Fate.LIMITED:
            return f"Google's rate limit is reached ({error.code})."
        case Fate.TRANSIENT:
            return f"Google could not accept it now ({error.code})."
        case Fate.REFUSED | Fate.ALONE | Fate.DELIVERED:
            return f"Google refuses it ({error.code})."
        case _:
            assert_never(error.fate)


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
    said = error.get("errorCode")
    family, code = next(iter(said.items()), ("", "")) if isinstance(said, dict) else ("", "")
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


def code_of(said: Any) -> str:
    """A code is a name in capitals. Anything else does not get into a table or a log."""
    return said if isinstance(said, str) and _is_code(said) else "UNKNOWN"


@lru_cache(1024)
def _is_code(said: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", said) is not None


def duration(said: Any) -> timedelta | None:
    """A protobuf Duration in JSON, "40591s"; a day at most."""
    number = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)s", _text(said))
    return min(timedelta(seconds=float(number[1])), LONGEST_WAIT) if number else None


def as_dicts(said: Any) -> list[dict[str, Any]]:
    return [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []


def as_dict(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""
