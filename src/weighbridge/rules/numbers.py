"""How numbers are written: the SQL behind `n.number`, `n.money`, `n.percent` and `n.integer`.

A thousands separator stands between groups of three: 1,234 may be a thousand, 12,34 never is. A space or an
apostrophe groups under either decimal mark. While the file has not decided on one, only what reads alike
both ways is read.
"""

from __future__ import annotations

_SPACE = "[ \u00a0\u202f\u2009]"
_APOSTROPHE = "[\u2019'']"  # doubled: it stands in an SQL string
_SIGN = "[-+\u2212]?"
_CURRENCY = "(?:[A-Z]{0,2}[$]|[€£¥₹₺₩₽]|[A-Z]{3}|kr|zł|Kč|Ft|lei)"

# What may stand before and after the digits.
PLAIN = (_SIGN, "")
MONEY = (f"{_SIGN}(?:{_CURRENCY}{_SPACE}?)?{_SIGN}", f"(?:{_SPACE}?{_CURRENCY})?")
PERCENT = (f"(?:[<>]{_SPACE}?)?{_SIGN}", f"(?:{_SPACE}?%)?")

_ANY = ("[^0-9]*", "[^0-9]*")
_DECIMAL, _WHOLE = (
    "[0-9]+",
    "00?",
)  # what may follow the mark; 1234.00 is whole, 1.000 is a thousand or nothing

_EXPRESSION = """CASE
    WHEN regexp_full_match({x}, '-?[0-9]+(?:{mark}<FRACTION>)?')
        THEN TRY_CAST(CASE WHEN {decimal} = ',' THEN replace({x}, ',', '.') ELSE {x} END AS <TYPE>)
    WHEN regexp_full_match({x}, '<PATTERN>')
        THEN TRY_CAST(replace(regexp_replace(
            replace({x}, '\u2212', '-'), '[^0-9' || {decimal} || '-]', '', 'g'), ',', '.') AS <TYPE>)
    END"""


def decimal_of(ends: tuple[str, str]) -> str:
    """SQL from text to DECIMAL(18,6)."""
    return _expression(ends, _DECIMAL, "DECIMAL(18,6)")


def whole_of() -> str:
    """SQL from text to BIGINT."""
    return _expression(PLAIN, _WHOLE, "BIGINT")


def readable(*, whole: bool) -> str:
    """A regular expression, over `{mark}` and `{group}`, for any number at all."""
    return _pattern(_ANY, _WHOLE if whole else _DECIMAL)


def _expression(ends: tuple[str, str], fraction: str, sql_type: str) -> str:
    filled = _EXPRESSION.replace("<PATTERN>", _pattern(ends, fraction))
    return filled.replace("<FRACTION>", fraction).replace("<TYPE>", sql_type)


def _pattern(ends: tuple[str, str], fraction: str) -> str:
    by_three = [f"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+" for mark in ("{group}", _SPACE, _APOSTROPHE)]
    by_two = "[1-9][0-9]?(?:{group}[0-9]{2})+{group}[0-9]{3}"  # as in India: 12,34,567
    digits = "|".join(["[0-9]+", *by_three, by_two])
    return f"{ends[0]}(?:{digits})(?:{{mark}}{fraction})?{ends[1]}"
