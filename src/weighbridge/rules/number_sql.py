"""Called by normalise.py: the SQL of `n.number`, `n.money`, `n.percent` and `n.integer`.

A thousands separator is between groups of three digits: 1,234 may be a thousand, 12,34 never is. Indian grouping
(12,34,567) is accepted only in a file that uses it throughout. A space or an apostrophe may group digits with either
decimal mark. While the decimal mark is undecided, only numbers with the same value under both marks are read.

No number is rounded: a number with more digits than its type can hold gives NULL and is rejected with that reason.
"""

from __future__ import annotations

from weighbridge.model.rule import Reason
from weighbridge.rules import currencies

PLACES = 6  # of numeric(18,6), the SQL type of Decimal
_SPACE = "[ \u00a0\u202f\u2009]"
_APOSTROPHE = "[\u2019'']"  # doubled, because it is inside an SQL string
_SIGN = "[-+\u2212]?"

# Patterns for the text before the digits, before a decimal mark without digits before it, and after the number.
# `kr.5` is the abbreviation `kr.` and 5, so only symbols are allowed before `.5`.
Ends = tuple[str, str, str]
PLAIN: Ends = (_SIGN, _SIGN, "")


def money(code: str = "") -> Ends:
    """An amount in any currency, or in this one only."""
    currency, symbol = currencies.names(code), currencies.symbols(code)
    return (
        f"(?:{_SIGN}(?:{currency}{_SPACE}?)?|{currency}{_SPACE}?{_SIGN})",
        f"(?:{_SIGN}{symbol}?|{symbol}{_SPACE}?{_SIGN})",
        f"(?:{_SPACE}?{currency})?",
    )


MONEY = money()
_BOUND = f"(?:[<>]{_SPACE}?)?{_SIGN}"
PERCENT: Ends = (_BOUND, _BOUND, f"(?:{_SPACE}?%)?")
# Any text, except for a decimal mark next to the digits: `.5` is not 5.
_ANY: Ends = ("(?:[^0-9]*[^0-9.,])?", "[^0-9.,A-Za-z]*", "(?:[^0-9.,][^0-9]*)?")

# Digits after the decimal mark. 1234.00 is whole; 1.000 may be a thousand, so an integer field rejects it unless
# amounts of the same file show the mark.
_DECIMAL, _FITTING, _USUAL = "[0-9]+", f"[0-9]{{1,{PLACES}}}0*", f"[0-9]{{1,{PLACES}}}"
_WHOLE, _USUAL_WHOLE = "(?:00?|0{4,})", "00?"
ZEROS, ANY_ZEROS = _WHOLE, "0+"


# The first pattern matches nearly all numbers. RE2 is much faster with a pattern that can match in one way only.
_EXPRESSION = """CASE
    WHEN regexp_full_match({x}, '-?[0-9]+(?:{mark}<USUAL>)?')
        THEN TRY_CAST(CASE WHEN {decimal} = ',' THEN replace({x}, ',', '.') ELSE {x} END AS <TYPE>)
    WHEN regexp_full_match({x}, '<PATTERN>')<ALSO>
        THEN TRY_CAST(replace(regexp_replace(
            replace({x}, '\u2212', '-'), '[^0-9' || {decimal} || '-]', '', 'g'), ',', '.') AS <TYPE>)
    END"""

# 1.5E-2 → 0.015, by moving the decimal mark in the text: floating point would not be exact.
IN_FULL = """CASE WHEN regexp_full_match({x}, '-?[0-9]+(?:[.][0-9]+)?[eE][-+]?0*[0-9]{1,2}') THEN
    list_transform([regexp_extract({x}, '^(-?)([0-9]+)[.]?([0-9]*)[eE]([-+]?[0-9]+)$',
        ['sign', 'whole', 'fraction', 'exponent'])], lambda part: part.sign || list_transform(
        [CAST(length(part.whole) + CAST(part.exponent AS INTEGER) AS INTEGER)], lambda places: CASE
            WHEN places <= 0 THEN '0.' || repeat('0', -places) || part.whole || part.fraction
            WHEN places >= length(part.whole || part.fraction)
                THEN rpad(part.whole || part.fraction, places, '0')
            ELSE (part.whole || part.fraction)[:places] || '.' || (part.whole || part.fraction)[places + 1:]
            END)[1])[1]
    ELSE {x} END"""


_HELD = f"a number with at most {PLACES} decimal places and {18 - PLACES} digits before them"
EXPONENT = Reason(
    "-?[0-9]+(?:[.][0-9]+)?[eE][-+]?[0-9]+",
    "too_many_digits",
    _HELD,
    "Numbers are not rounded: export this one with fewer digits.",
)
BY_TWO = "[1-9][0-9]?(?:{group}[0-9]{2})+{group}[0-9]{3}"  # as in India: 12,34,567
BY_THREE = "[1-9][0-9]{0,2}(?:{group}[0-9]{3})+"
BY_EITHER = "[1-9][0-9]?{group}[0-9]{3}"  # up to five digits, both groupings are equal


def decimal_of(ends: Ends, also: str = "") -> str:
    """SQL from text to DECIMAL(18,6). `also`: a further condition (SQL) for numbers that have more than digits."""
    return _expression(_pattern(ends, _FITTING, open_end=True), _USUAL, f"DECIMAL(18,{PLACES})", also)


def amount(code: str = "", also: str = "") -> str:
    """The same for an amount in any currency, or only in this one."""
    if code:
        return decimal_of(money(code), also)
    known = f"CASE WHEN {currencies.MAY_NAME_ONE} THEN {currencies.known('{x}')} ELSE true END"
    return decimal_of(MONEY, f"{known} AND {also}" if also else known)


def other_currency(code: str, stated_by: str) -> Reason:
    """The reason for an amount in another currency than the record's. `code` is SQL."""
    number = "[0-9][0-9.,\u2019'\u00a0\u202f\u2009 ]*"
    before, before_mark, after = MONEY
    return Reason(
        f"(?:{before}{number}|{before_mark}[.,][0-9]+){after}",
        "currency_differs",
        f"an amount in {{value}}, as stated by the {stated_by}",
        "Amounts are not converted: export one currency, or correct the wrong one.",
        when=f"{currencies.known('{x}')} AND NOT {currencies.agrees('{x}', code)}",
        value=code,
    )


def whole_of() -> str:
    """SQL from text to BIGINT."""
    return _expression(_pattern(PLAIN, "{zeros}", open_end=True), _USUAL_WHOLE, "BIGINT")


def too_many_digits(ends: Ends) -> Reason:
    """The reason for a number with more digits than its type can hold."""
    before, before_mark, after = ends
    places = f"(?:{before}[0-9][0-9.,]*|{before_mark})[.,][0-9]{{{PLACES}}}[0-9]*[1-9][0-9]*"
    return Reason(
        f"(?:{places}|{before}{_at_least(19 - PLACES)}(?:[.,][0-9]*)?){after}",
        "too_many_digits",
        _HELD,
        "Numbers are not rounded: export this one with fewer digits.",
    )


def too_many_whole_digits() -> Reason:
    return Reason(
        f"{_SIGN}{_at_least(19)}(?:[.,]{_WHOLE})?",
        "too_many_digits",
        f"a whole number from {-(2**63)} to {2**63 - 1}",
        "Check its digits, or load the column as text.",
    )


TWO_WAYS = Reason(
    f"{_SIGN}[0-9]{{1,3}}[.,]000",
    "bad_integer",
    "a whole number that can be read in one way only",
    "It may be units or thousands: write it without a separator.",
)


def readable(*, whole: bool, open_end: bool = True) -> str:
    """A regular expression with `{mark}` and `{group}` for any number, with any grouping."""
    # A whole number 1.000 may be one or a thousand, so it does not show the mark. A whole number 1.234 is a thousand.
    pattern = _pattern(_ANY, "0+" if whole else _DECIMAL, open_end=False)
    if open_end:
        pattern += f"|{_ANY[0]}[0-9]+{{mark}}"
    return pattern.replace("{by_two}", BY_TWO).replace("{by_three}", BY_THREE)


def grouped(digits: str) -> str:
    """A regular expression for a number with this grouping of digits and a decimal point."""
    return f"{_ANY[0]}(?:{digits.replace('{group}', ',')})(?:[.][0-9]+)?{_ANY[2]}"


def _expression(pattern: str, usual: str, sql_type: str, also: str = "") -> str:
    filled = _EXPRESSION.replace("<PATTERN>", pattern).replace("<ALSO>", f" AND {also}" if also else "")
    return filled.replace("<USUAL>", usual).replace("<TYPE>", sql_type)


def _pattern(ends: Ends, fraction: str, *, open_end: bool) -> str:
    """`open_end`: the number may end with its mark, as in `5.`"""
    before, before_mark, after = ends
    by_space = [f"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+" for mark in (_SPACE, _APOSTROPHE)]
    digits = "|".join(["[0-9]+", "{by_three}", *by_space, "{by_two}"])
    end = f"(?:{fraction})?" if open_end else fraction
    return f"(?:{before}(?:{digits})(?:{{mark}}{end})?|{before_mark}{{mark}}{fraction}){after}"


def _at_least(digits: int) -> str:
    """A regular expression for at least so many digits, grouped or not."""
    separator = f"(?:[.,]|{_SPACE}|[\u2019'])"
    return f"(?:[0-9]{{{digits},}}|[1-9][0-9]{{0,2}}(?:{separator}[0-9]{{3}}){{{digits // 3},}})"
