"""The numbers that SQL functions decide by are those of the table of retry policies."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

import weighbridge.delivery
import weighbridge.engine
from weighbridge.model.retry import (
    ANNOUNCEMENT,
    BREAKER_FAILURES,
    BREAKER_JITTER,
    BREAKER_PAUSE,
    CONFIRMATION_PAUSE,
    CONVERSION,
    PARKED_JITTER,
    STUCK_MINUTES,
    UNCOUNTED_JITTER,
)

FUNCTIONS = "\n".join(
    Path(str(subject.__file__)).with_name("functions.sql").read_text()
    for subject in (weighbridge.engine, weighbridge.delivery)
)
SECOND = timedelta(seconds=1)  # the unit of pause_seconds


def body(function: str) -> str:
    [found] = re.findall(rf"^CREATE OR REPLACE FUNCTION \w+\.{function}\(.*?\$\$;$", FUNCTIONS, re.M | re.S)
    return str(found)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("record_provider_outcome", [BREAKER_PAUSE, BREAKER_JITTER]),
        ("park_deliveries", [PARKED_JITTER]),
        ("settle_conversions", [UNCOUNTED_JITTER, SECOND]),
        ("claim_confirmations", [CONFIRMATION_PAUSE]),
    ],
)
def test_pauses_in_sql_are_those_of_the_table(function: str, expected: list[timedelta]) -> None:
    found = re.findall(r"INTERVAL '(\d+) (second|minute|hour|day)s?'", body(function))
    assert [timedelta(**{f"{unit}s": int(number)}) for number, unit in found] == expected


def test_the_pauses_of_a_conversion_grow_by_the_factor_of_the_table() -> None:
    assert re.findall(r"power\((\d+),", body("settle_conversions")) == [str(CONVERSION.factor)]


def test_an_event_is_given_up_after_the_number_of_retries_in_the_table() -> None:
    assert re.findall(r"failures \+ 1 > (\d+)", body("recover_event_delivery")) == [str(ANNOUNCEMENT.tries)]


def test_the_breaker_opens_after_the_number_of_failures_in_the_table() -> None:
    assert re.findall(r"failure_count \+ 1 >= (\d+)", body("record_provider_outcome")) == [
        str(BREAKER_FAILURES)
    ]


def test_conversions_are_stuck_after_the_number_of_minutes_in_the_table() -> None:
    assert re.findall(
        r"p_min_age_minutes int DEFAULT (\d+)", body("recover_stuck_offline_conversion_jobs")
    ) == [str(STUCK_MINUTES)]
