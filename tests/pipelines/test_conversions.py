"""Files of conversions: which columns they have, what is made of them, what is refused and how it is said."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rules.checking import Outcome, check_text

from weighbridge.model.errors import ConfigError, FileRefused
from weighbridge.model.pipeline import ComputedDefault, Entity, Field, Pipeline
from weighbridge.model.rule import Validator
from weighbridge.pipelines.conversions import pipeline

DOCS = Path(__file__).parents[2] / "docs" / "files.md"
HEADER = "Order ID,Conversion Time,Conversion Value,Conversion Currency,GCLID"
TEMPLATE = """### INSTRUCTIONS ###,,,,
# IMPORTANT: Remember to set the TimeZone value in the "parameters" row,,,,
### TEMPLATE ###,,,,
Parameters:TimeZone=America/New_York,,,,
Google Click ID,Conversion Name,Conversion Time,Conversion Value,Conversion Currency
CjwKCAcanary1,Lead,01/31/2026 2:30:00 PM,12.50,usd
CjwKCAcanary2,Lead,2026-01-31 14:30:00+0100,,
CjwKCAcanary1,Lead,"Feb 1, 2026 9:00:00 AM",7,USD
"""


def check(*lines: str, header: str = HEADER) -> Outcome:
    return check_text("\n".join([header, *lines]) + "\n", None, pipeline=pipeline)


def sales(outcome: Outcome, *columns: str) -> list[tuple[Any, ...]]:
    staged = sorted(outcome.rows["sale"], key=lambda row: row["row_index"])
    return [tuple(row[column] for column in columns) for row in staged]


def test_the_template_of_google_ads_loads_as_it_is() -> None:
    outcome = check_text(TEMPLATE, None, pipeline=pipeline)
    new_york = timezone(timedelta(hours=-5))
    assert sales(outcome, "gclid", "occurred_at", "value", "currency") == [
        ("CjwKCAcanary1", datetime(2026, 1, 31, 14, 30, tzinfo=new_york), Decimal("12.5"), "USD"),
        ("CjwKCAcanary2", datetime(2026, 1, 31, 13, 30, tzinfo=UTC), None, None),
        ("CjwKCAcanary1", datetime(2026, 2, 1, 9, tzinfo=new_york), Decimal(7), "USD"),
    ]
    orders = [order for (order,) in sales(outcome, "order_id")]
    said = hashlib.sha256(b"CjwKCAcanary2|2026-01-31T13:30:00.000000Z").hexdigest()
    assert orders[1] == f"wb-{said[:32]}"
    assert len(set(orders)) == 3  # a click may lead to several conversions


def test_the_zone_of_one_file_is_not_that_of_the_next() -> None:
    check_text(TEMPLATE, None, pipeline=pipeline)
    outcome = check("1,2026-01-31 14:30:00,,,abc")
    assert sales(outcome, "occurred_at") == [(datetime(2026, 1, 31, 14, 30, tzinfo=UTC),)]


def test_an_offset_is_a_zone_too_and_an_unknown_one_refuses_the_file() -> None:
    outcome = check_text(TEMPLATE.replace("America/New_York", "+0530"), None, pipeline=pipeline)
    assert sales(outcome, "occurred_at")[0] == (datetime(2026, 1, 31, 9, tzinfo=UTC),)
    with pytest.raises(FileRefused, match=r"time zone such as Europe/Berlin .* got 'Nowhere'") as refused:
        check_text(TEMPLATE.replace("America/New_York", "Nowhere"), None, pipeline=pipeline)
    assert refused.value.code == "unknown_time_zone"


def test_every_click_id_and_name_of_a_column_is_known() -> None:
    header = "order_id,occurred_at,value,currency,gclid,wbraid,gbraid,fbclid,ttclid,clicked_at"
    line = "7,2026-01-31T14:30:00Z,3.5,EUR,a,b,c,d,e,2026-01-30T10:00:00Z"
    assert sales(check(line, header=header), *header.split(",")[4:9]) == [("a", "b", "c", "d", "e")]
    header = "Transaction ID,Event Time,Amount (CHF),Facebook Click ID,TikTok Click ID,Click Time"
    [row] = sales(
        check("7,2026-01-31T14:30:00Z,3.5,d,e,2026-01-30 10:00:00", header=header),
        *("order_id", "value", "currency", "fbclid", "ttclid", "clicked_at"),
    )
    assert row == ("7", Decimal("3.5"), "CHF", "d", "e", datetime(2026, 1, 30, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("1,yesterday,,,abc", "bad_timestamp", "occurred_at: expected a day and a time"),
        ("1,2026-01-31,,,abc", "bad_timestamp", "occurred_at: expected a day and a time"),
        ("1,infinity,,,abc", "bad_timestamp", "occurred_at: expected a day and a time"),
        ("1,1999-01-31 10:00:00,,,abc", "too_small", "occurred_at: expected at least 2000-01-01"),
        ("1,,,,abc", "missing_value", "occurred_at: expected a value"),
        ("1,2026-01-31 10:00:00,5,EUR,", "no_click_id", "the time of a conversion with a click id"),
        ("1,2026-01-31 10:00:00,5,,abc", "missing_currency", "value: expected an amount with its currency"),
        ("1,2026-01-31 10:00:00,-5,EUR,abc", "too_small", "value: expected at least 0"),
        ("1,2026-01-31 10:00:00,5,Euro,abc", "bad_currency", "currency: expected a currency such as EUR"),
        ("1,2026-01-31 10:00:00,,,a b", "bad_click_id", "gclid: expected a click id as the platform writes"),
        (f"1,2026-01-31 10:00:00,,,{'a' * 513}", "too_long", "gclid: expected at most 512 characters"),
        (f"{'1' * 201},2026-01-31 10:00:00,,,abc", "too_long", "order_id: expected at most 200 characters"),
        ("1.23E+11,2026-01-31 10:00:00,,,abc", "mangled_id", "order_id: expected an id with all its digits"),
    ],
)
def test_what_the_table_would_not_take_is_said_in_a_sentence(line: str, code: str, said: str) -> None:
    outcome = check("good,2026-01-31 10:00:00,1,EUR,abc", line)
    [refused] = outcome.rejections
    assert refused["code"] == code
    assert said in refused["message"]
    assert "abc" not in refused["message"]


def test_a_click_that_comes_after_its_conversion_is_refused() -> None:
    header = f"{HEADER},Click Time"
    outcome = check("1,2026-01-31 10:00:00,,,abc,2026-01-31 10:00:01", header=header)
    assert outcome.rejections[0]["code"] == "click_after_conversion"
    assert not check("1,2026-01-31 10:00:00,,,abc,2026-01-31 10:00:00", header=header).rejections


def test_an_order_told_twice_in_different_words_is_refused() -> None:
    outcome = check("1,2026-01-31 10:00:00,5,EUR,abc", "1,2026-01-31 10:00:00,6,EUR,abc")
    assert [each["code"] for each in outcome.rejections] == ["conflicting_repeat"] * 2


def test_a_blank_order_id_is_made_of_click_and_time() -> None:
    outcome = check("7,2026-01-31 10:00:00,,,abc", ",2026-01-31 10:00:00,,,def", ",2026-01-31 10:00:00,,,def")
    orders = [order for (order,) in sales(outcome, "order_id")]
    assert orders[0] == "7"
    assert orders[1].startswith("wb-")
    assert len(orders) == 2  # the third is the second again


def test_every_header_is_in_the_documentation() -> None:
    page = DOCS.read_text()
    headers = {header for field in pipeline.fields.values() for header in field.header}
    assert {header for header in headers if f"`{header}`" not in page} == set()


def test_rules_over_several_fields_are_checked_when_a_pipeline_is_built() -> None:
    asks = Validator("asks", "{order.currency} IS NOT NULL", "asks", "one")
    with pytest.raises(ConfigError, match=r"Field order\.value: .* got 'order\.currency'"):
        Pipeline("shop", [Entity("orders", ["number"], [Field("number"), Field("value", validate=[asks])])])
    made = ComputedDefault("{order.numbr}")
    with pytest.raises(ConfigError, match=r"did you mean 'order\.number'\?"):
        Pipeline("shop", [Entity("orders", ["number"], [Field("number"), Field("other", otherwise=made)])])
