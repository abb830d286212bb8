"""The classification table contains every error of the installed google-ads wheel."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.providers.google_types import conversion_upload_errors, google_type
from weighbridge.delivery.providers import google_errors
from weighbridge.delivery.providers.google_errors import CONVERSION_UPLOAD, FAMILIES, GoogleError, Handling
from weighbridge.model.delivery import Category, Conversion, Outcome, Verdict

SPECIFIED = "INVALID_GCLID"  # an error of the specification only
KNOWN = CONVERSION_UPLOAD.keys() - {SPECIFIED}
HOUR = timedelta(hours=1)


def row(**more: object) -> Conversion:
    usual = {
        "order_id": "o",
        "click_type": "gclid",
        "click_id": "c",
        "occurred_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Conversion(uuid4(), **{**usual, **more})  # type: ignore[arg-type]


def of(*codes: str, **more: object) -> Outcome:
    """The outcome of a row with these errors: "family.CODE", or a conversionUploadError."""
    errors = [
        GoogleError(family or "conversionUploadError", code)
        for family, _, code in (each.rpartition(".") for each in codes)
    ]
    return google_errors.outcome(errors, row(**more), "request-1")


def test_every_conversion_upload_error_of_the_wheel_is_classified() -> None:
    assert conversion_upload_errors() == KNOWN


@pytest.mark.parametrize("code", sorted(KNOWN))
def test_each_upload_error_has_the_result_of_the_reference(code: str) -> None:
    outcome = of(code)
    wait = {6 * HOUR: "retry after 6 h", None: "retry"}
    told = "already delivered" if outcome.duplicate else wait.get(outcome.retry_after, "?")
    told = "failed" if outcome.verdict is Verdict.FAILED else told
    if code in (
        "ORDER_ID_ALREADY_IN_USE",
        "CLICK_CONVERSION_ALREADY_EXISTS",
        "CALL_CONVERSION_ALREADY_EXISTS",
    ):
        assert (outcome.verdict, told) == (Verdict.COMPLETED, "already delivered")
    elif code.startswith("TOO_RECENT_") or code in ("CLICK_NOT_FOUND", "EVENT_NOT_FOUND", "CALL_NOT_FOUND"):
        assert (outcome.verdict, told) == (Verdict.RETRY, "retry after 6 h")
    elif code in ("UNKNOWN", "UNSPECIFIED", "TOO_MANY_CONVERSIONS_IN_REQUEST"):
        assert (outcome.verdict, told, outcome.category) == (Verdict.RETRY, "retry", Category.TRANSIENT)
    else:
        assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.VALIDATION)
    assert outcome.duplicate or (outcome.code == code and outcome.message)
    assert outcome.request_id == "request-1"


@pytest.mark.parametrize("code", ["CLICK_NOT_FOUND", "EVENT_NOT_FOUND", "CALL_NOT_FOUND"])
def test_a_click_that_is_not_found_is_retried_after_6_and_24_hours_and_then_fails(code: str) -> None:
    assert of(code, last_code="TOO_RECENT_EVENT", last_code_times=3).retry_after == 6 * HOUR
    assert of(code, last_code=code, last_code_times=1).retry_after == 18 * HOUR  # 24 after the first
    assert of(code, last_code=code, last_code_times=2).verdict is Verdict.FAILED


def test_a_code_that_is_not_in_the_table_is_retried() -> None:
    assert of("SOMETHING_OF_V27").verdict is Verdict.RETRY


@pytest.mark.parametrize(
    ("family", "handling"),
    [(family, handling) for family, handling in FAMILIES.items()],
    ids=lambda each: str(each),
)
def test_a_whole_family_has_one_category_and_exists_in_the_wheel(family: str, handling: Handling) -> None:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in family)
    assert name in google_type("errors.types.errors", "ErrorCode").meta.fields
    capital = family[0].upper() + family[1:]
    for value in getattr(google_type(f"errors.types.{name}", f"{capital}Enum"), capital):
        assert GoogleError(family, value.name).handling is handling


@pytest.mark.parametrize(
    "code", ["INVALID_ARGUMENT", "INVALID_GCLID", "UNPARSEABLE_GCLID", "RESOURCE_NOT_FOUND"]
)
def test_errors_that_the_specification_fails_are_failed(code: str) -> None:
    for family in ("conversionUploadError", "requestError", "mutateError"):
        if family == "conversionUploadError" and code not in CONVERSION_UPLOAD:
            continue
        outcome = of(f"{family}.{code}")
        assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.VALIDATION)


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("RESOURCE_EXHAUSTED", Category.RATE_LIMIT),
        ("RATE_LIMIT", Category.RATE_LIMIT),
        ("UNAVAILABLE", Category.TRANSIENT),
        ("DEADLINE_EXCEEDED", Category.TRANSIENT),
        ("BACKEND_ERROR", Category.TRANSIENT),
    ],
)
def test_errors_that_the_specification_retries_are_retried(code: str, category: Category) -> None:
    outcome = google_errors.outcome([GoogleError("", code)], row(), None)
    assert (outcome.verdict, outcome.category) == (Verdict.RETRY, category)


def test_a_row_is_already_delivered_only_if_all_its_errors_mean_that() -> None:
    assert of("ORDER_ID_ALREADY_IN_USE", "CLICK_CONVERSION_ALREADY_EXISTS").duplicate
    for other in ("EXPIRED_EVENT", "TOO_RECENT_EVENT", "internalError.INTERNAL_ERROR", "fieldError.REQUIRED"):
        outcome = of("ORDER_ID_ALREADY_IN_USE", other)
        assert outcome.verdict is not Verdict.COMPLETED
        assert outcome.code == other.rpartition(".")[2]


def test_a_permanent_error_is_reported_before_temporary_ones() -> None:
    assert of("TOO_RECENT_EVENT", "EXPIRED_EVENT", "internalError.INTERNAL_ERROR").code == "EXPIRED_EVENT"


def test_the_error_of_a_new_account_names_google_datamanager() -> None:
    outcome = of("notAllowlistedError.CUSTOMER_NOT_ALLOWLISTED_FOR_THIS_FEATURE")
    assert (outcome.verdict, outcome.category) == (Verdict.FAILED, Category.AUTH)
    assert "google_datamanager" in (outcome.message or "")


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("40s", timedelta(seconds=40)),
        ("1.500s", timedelta(seconds=1.5)),
        ("40591000s", timedelta(days=1)),
        ("-3s", None),
        ("soon", None),
        (7, None),
    ],
)
def test_a_delay_is_read_and_limited_to_a_day(said: object, read: timedelta | None) -> None:
    assert google_errors.duration(said) == read


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"details": None},
        {"details": ["x", {"errors": "x"}]},
        {"details": [{"errors": [None, 3]}]},
    ],
)
def test_an_error_in_an_unknown_format_causes_no_failure(status: dict[str, object]) -> None:
    assert google_errors.errors_of(status) == ([], None)


def test_an_error_without_a_code_is_retried_and_an_invalid_code_is_not_reported() -> None:
    errors, _ = google_errors.errors_of(
        {"details": [{"errors": [{}, {"errorCode": {"x": "jane@example.com"}}]}]}
    )
    assert [error.code for error in errors] == ["UNKNOWN", "UNKNOWN"]
    assert {google_errors.outcome([error], row(), None).verdict for error in errors} == {Verdict.RETRY}
