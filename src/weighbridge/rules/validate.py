"""Ready-made validators: conditions on a typed value. A record without the value passes all of them.

Field("impressions", int, header=["Impr."], normalise=[n.integer], validate=[v.at_least(0)])
"""

from __future__ import annotations

import datetime
from decimal import Decimal

from weighbridge.model.rule import Validator

Bound = int | Decimal | datetime.date


def at_least(least: Bound) -> Validator:
    return Validator(
        f"at_least({_shown(least)})", f"{{x}} >= {_literal(least)}", "too_small", f"at least {_shown(least)}"
    )


def at_most(most: Bound) -> Validator:
    return Validator(
        f"at_most({_shown(most)})", f"{{x}} <= {_literal(most)}", "too_large", f"at most {_shown(most)}"
    )


def one_of(*choices: str) -> Validator:
    """Upper and lower case do not matter."""
    known = ", ".join(choices)
    folded = ", ".join(_literal(choice.lower()) for choice in choices)
    return Validator(
        f"one_of({known})",
        f"lower({{x}}) IN ({folded})",
        "unknown_choice",
        f"one of {known}",
        f"Use one of {known}.",
    )


def matches(pattern: str, *, expected: str, hint: str = "", code: str = "bad_format") -> Validator:
    """The regular expression (RE2) must match the whole text."""
    return Validator(
        f"matches({pattern})", f"regexp_full_match({{x}}, {_literal(pattern)})", code, expected, hint
    )


def max_length(most: int) -> Validator:
    return Validator(
        f"max_length({most})", f"length({{x}}) <= {most}", "too_long", f"at most {most} characters"
    )


not_in_future = Validator(
    "not_in_future",
    "{x} <= {today}",
    "in_future",
    "a date that is not in the future",
    "Check the year and the order of day and month.",
)


def _literal(value: str | Bound) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return str(value)


def _shown(value: Bound) -> str:
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
