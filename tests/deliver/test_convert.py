"""Validation of conversions from programs: the resulting sales, and the errors of invalid ones."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.checking import check_text

from weighbridge.delivery.receive_conversions import FIELDS, checked, order_of_click
from weighbridge.model.errors import RequestRefused
from weighbridge.pipelines.conversions import pipeline

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SITE = UUID("5ac9b7d6-0000-4000-8000-000000000001")
GOOD: dict[str, Any] = {
    "site_id": str(SITE),
    "order_id": "order-1",
    "occurred_at": "2026-11-10T14:30:00+01:00",
    "gclid": "gclid-canary",
    "value": 12.5,
    "currency": "eur",
}


def test_a_conversion_is_read_with_our_own_field_names() -> None:
    sale = checked("", GOOD | {"fbclid": "fb", "email": "A@b.de", "clicked_at": "2026-11-10T13:30:00Z"}, NOW)
    assert (sale.site_id, sale.order_id) == (SITE, "order-1")
    assert (sale.value, sale.currency) == (Decimal("12.5"), "EUR")
    assert sale.occurred_at == sale.clicked_at == datetime(2026, 11, 10, 13, 30, tzinfo=UTC)
    assert sale.clicks == (("gclid", "gclid-canary"), ("fbclid", "fb"))
    assert [name for name, _ in sale.user_data] == ["email", "email_google"]
    assert "canary" not in repr(sale)
    assert "fb" not in repr(sale)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"order_id": 4711}, {"order_id": "4711"}),
        ({"value": "0.1234567"}, {"value": Decimal("0.123457")}),
        ({"value": 0.1 + 0.2}, {"value": Decimal("0.3")}),
        ({"value": None, "currency": ""}, {"value": None, "currency": None}),
        ({"value": 0}, {"value": Decimal(0)}),
        ({"occurred_at": "2026-11-16T11:00:00Z"}, {}),  # a sender's clock may be wrong
    ],
)
def test_values_with_a_clear_meaning_are_accepted(change: dict[str, Any], expected: dict[str, Any]) -> None:
    sale = checked("", GOOD | change, NOW)
    assert {name: getattr(sale, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (
            {"site_id": None},
            "invalid_site_id",
            "site_id: expected the id of a site, got none. To create one: POST /api/sites",
        ),
        ({"site_id": "shop"}, "invalid_site_id", "site_id: expected a UUID"),
        ({"occurred_at": None}, "invalid_occurred_at", "occurred_at: expected a time with a time zone"),
        ({"occurred_at": "2026-01-31T14:30:00"}, "invalid_occurred_at", "got a time without a time zone"),
        ({"occurred_at": "yesterday"}, "invalid_occurred_at", "such as 2026-01-31T14:30:00+01:00"),
        ({"occurred_at": 1769866200}, "invalid_occurred_at", "such as 2026-01-31T14:30:00+01:00"),
        ({"occurred_at": "0001-01-01T00:00:00+14:00"}, "invalid_occurred_at", "expected a time"),
        (
            {"occurred_at": "2190-01-31T14:30:00Z"},
            "invalid_occurred_at",
            "expected a time at most one day in the future",
        ),
        ({"occurred_at": "1999-01-31T14:30:00Z"}, "invalid_occurred_at", "expected a time since 2000"),
        ({"clicked_at": "2189-01-31T14:30:00Z"}, "invalid_clicked_at", "before the conversion"),
        ({"value": -1}, "invalid_value", "value: expected a number of at least 0"),
        ({"value": "1,5"}, "invalid_value", "value: expected a number of at least 0"),
        ({"value": True}, "invalid_value", "value: expected a number of at least 0"),
        ({"value": "NaN"}, "invalid_value", "value: expected a number of at least 0"),
        ({"value": 1e12}, "invalid_value", "value: expected less than 1,000,000,000,000"),
        ({"currency": None}, "invalid_currency", "currency: expected the currency of the value"),
        ({"currency": "Euro"}, "invalid_currency", "currency: expected a currency such as EUR"),
        ({"gclid": None}, "no_click_id", "expected one of gclid, wbraid, gbraid, fbclid, ttclid, got none"),
        ({"gclid": "a canary"}, "invalid_gclid", "gclid: expected a click id as the platform writes it"),
        ({"gclid": "a" * 513}, "invalid_gclid", "of at most 512 characters"),
        ({"gclid": ["canary"]}, "invalid_gclid", "gclid: expected a click id"),
        ({"order_id": "a" * 201}, "invalid_order_id", "order_id: expected text of at most 200"),
        ({"order_id": "a\u0000b"}, "invalid_order_id", "order_id: expected text of at most 200"),
        ({"order_id": "\ud800"}, "invalid_order_id", "order_id: expected text of at most 200"),
        ({"email": "canary"}, "not_an_email", "email: expected an address such as name@example.com"),
        ({"email": "canary\ud800@example.com"}, "invalid_email", "email: expected an address"),
        ({"phone": "0170 1234567"}, "not_a_phone_number", "phone: expected a number with its country code"),
        ({"conversation_id": "canary"}, "invalid_conversation_id", "conversation_id: expected a UUID"),
        ({"gcild": "canary"}, "unknown_field", "'gcild' is not a field; did you mean 'gclid'?"),
    ],
)
def test_the_error_of_a_wrong_conversion_repeats_no_value(
    change: dict[str, Any], code: str, said: str
) -> None:
    for place, start in (("conversions[1].", "conversions[1]"), ("", "body")):
        with pytest.raises(RequestRefused) as refused:
            checked(place, GOOD | change, NOW)
        assert (refused.value.status, refused.value.code) == (422, code)
        assert said in refused.value.message
        assert refused.value.message.startswith(start)
        assert "canary" not in refused.value.message


@given(
    st.dictionaries(
        st.sampled_from(FIELDS),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2),
    )
)
def test_nothing_that_json_can_hold_is_a_bug(change: dict[str, Any]) -> None:
    with suppress(RequestRefused):
        checked("", GOOD | change, NOW)


def test_the_order_id_of_a_click_is_the_same_over_http_and_in_a_file() -> None:
    at = datetime(2026, 1, 31, 14, 30, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))
    said = {"occurred_at": at.isoformat(), "order_id": None, "wbraid": "w"}
    sale = checked("", GOOD | said, NOW)
    assert sale.order_id == order_of_click("gclid-canary", at)
    text = f"Conversion Time,GCLID,WBRAID\n{at.isoformat()},gclid-canary,w\n"
    [row] = check_text(text, None, pipeline=pipeline).rows["sale"]
    assert row["order_id"] == sale.order_id
    moved = checked("", GOOD | said | {"occurred_at": (at + timedelta(microseconds=1)).isoformat()}, NOW)
    assert moved.order_id != sale.order_id
