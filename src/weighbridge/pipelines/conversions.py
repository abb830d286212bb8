"""Conversions: sales to report to an ad platform, with the click that led to them.

Google Ads' template for offline conversions loads unchanged. A sale is identified by its order id or, if the file has
none, by its click and time; delivery/receive_conversions.py derives the same id for sales over HTTP. The client of an
upload is the site. Writing a sale adds its rows to offline_conversion_queue in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

from weighbridge.model.delivery import CLICKS
from weighbridge.model.pipeline import ComputedDefault, Entity, Field, InHeader, Pipeline
from weighbridge.model.rule import Validator
from weighbridge.rules import n, v

ORDER_ID = [
    *("Order ID", "Order Number", "Order No", "Order #", "Order", "Transaction ID", "Event ID", "Lead ID"),
]
OCCURRED = [
    *("Conversion Time", "Conversion Date Time", "Conversion Timestamp", "Event Time", "Event Timestamp"),
    *("Occurred At", "Converted At", "Sale Time", "Order Time", "Timestamp", "Time", "Date Time", "Datetime"),
]
CLICKED = ["Click Time", "Clicked At", "Click Timestamp", "Click Date Time"]
VALUE = [
    *("Conversion Value", "Value", "Amount", "Revenue", "Sale Amount", "Order Value", "Order Total", "Total"),
]
CURRENCY = ["Conversion Currency", "Currency Code", "Currency"]
GCLID = ["Google Click ID", "GCLID", "Click ID"]

# A time without a zone is in the zone named above the header, or in UTC.
moment = replace(
    n.timestamp,
    name="moment",
    expected="a day and a time",
    hint="Use 2026-01-31T14:30:00+01:00. A day without a time is rejected.",
)
not_in_future = Validator(
    "not_in_future",  # one day more than any time zone is ahead
    "{x} < {today} + INTERVAL 2 DAY",
    "in_future",
    "a time in the past",
    "Check the year and the order of day and month.",
)
with_click = Validator(
    "with_click",
    f"coalesce({', '.join(f'{{sale.{name}}}' for name in CLICKS)}) IS NOT NULL",
    "no_click_id",
    "the time of a conversion with a click id",
    f"At least one click id is required: {', '.join(CLICKS)}.",
)
with_currency = Validator(
    "with_currency",
    "{x} IS NULL OR {sale.currency} IS NOT NULL",
    "missing_currency",
    "an amount with its currency",
    "Fill the column Conversion Currency, for example with EUR.",
)
before_sale = Validator(
    "before_sale",
    "{x} <= {sale.occurred_at}",
    "click_after_conversion",
    "a time before the conversion",
)
printable = Validator(
    "printable", r"NOT regexp_matches({x}, '\p{Cc}')", "bad_order_id", "an id without control characters"
)
not_rounded = Validator(
    "not_rounded",
    r"NOT regexp_full_match({x}, '[0-9]+[.,][0-9]*[eE]\+?[0-9]+|[0-9]+[eE]\+[0-9]+')",
    "mangled_id",
    "an id with all its digits",
    "A spreadsheet program has rounded it. Export the file again, and do not open it in such a program.",
)
# delivery/receive_conversions.py derives the same id.
ORDER_OF_CLICK = (
    f"'wb-' || sha256(coalesce({', '.join(f'{{sale.{name}}}' for name in CLICKS)}) || '|' ||"
    " strftime({sale.occurred_at} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ'))[:32]"
)


def _click(name: str, header: Sequence[str]) -> Field:
    """An id of a person's click: no message repeats it."""
    written = v.matches(r"[!-~]+", expected="a click id as the platform writes it", code="bad_click_id")
    return Field(name, header=header, validate=[v.max_length(512), written], personal=True)


sale = Entity(
    table="sales",
    scope=["client_id"],
    key=["order_id"],
    fields=[
        Field(
            "order_id",
            header=ORDER_ID,
            normalise=[n.fold_space],
            validate=[v.max_length(200), printable, not_rounded],
            otherwise=ComputedDefault(ORDER_OF_CLICK),
        ),
        Field(
            "occurred_at",
            datetime,
            header=OCCURRED,
            normalise=[moment],
            validate=[v.at_least(date(2000, 1, 1)), not_in_future, with_click],
            required=True,
        ),
        Field("value", Decimal, header=VALUE, normalise=[n.money], validate=[v.at_least(0), with_currency]),
        Field(
            "currency",
            header=CURRENCY,
            normalise=[n.upper],
            validate=[v.matches("[A-Z]{3}", expected="a currency such as EUR", code="bad_currency")],
            otherwise=InHeader("sale.value"),
        ),
        _click("gclid", GCLID),
        _click("wbraid", ["WBRAID"]),
        _click("gbraid", ["GBRAID"]),
        _click("fbclid", ["fbclid", "Facebook Click ID", "Meta Click ID"]),
        _click("ttclid", ["ttclid", "TikTok Click ID"]),
        Field(
            "clicked_at",
            datetime,
            header=CLICKED,
            normalise=[moment],
            validate=[v.at_least(date(2000, 1, 1)), before_sale],
        ),
    ],
)
pipeline = Pipeline(
    name="conversions",
    entities=[sale],
    nulls=["-", "--", "N/A", "n/a", "NA", "NULL", "null", "None"],
    decimal=".",
    expects=["sale.occurred_at", "sale.value", "sale.currency"],
    day_first=False,  # as Google writes it: 01/31/2026
    zone_above=r"(?i)\bTimeZone\s*=\s*([A-Za-z0-9_+:/-]+)",
    sites=True,
)
