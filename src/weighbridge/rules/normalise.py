"""Ready-made normalisers: text as the file has it → tidy text or a typed value.

    Field("judgment_amount", Decimal, header=["Amount"], normalise=[n.money])

Cells reach the first rule without outer space, and NULL where they hold a null marker. A rule that gives
NULL for text rejects the record with its `code`.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

from weighbridge.model.rule import Normaliser, Reason
from weighbridge.rules import numbers

strip = Normaliser("strip", "trim({x})")
upper = Normaliser("upper", "upper({x})")
lower = Normaliser("lower", "lower({x})")
fold_space = Normaliser("fold_space", r"trim(regexp_replace({x}, '[\s\x{00A0}\x{202F}]+', ' ', 'g'))")
nfkc = Normaliser("nfkc", "nfkc_normalize({x})")  # and of what only looks different: ﬁ is fi, Ａ is A

number = Normaliser(
    "number",
    numbers.decimal_of(numbers.PLAIN),
    expected="a number",
    hint="Use 1234.56.",
    code="bad_number",
)
money = Normaliser(
    "money",
    numbers.decimal_of(numbers.MONEY),
    expected="an amount",
    hint="Use 1234.56 or $1,234.56.",
    code="bad_amount",
)
percent = Normaliser(
    "percent",  # 12.5% is 12.5; a bound such as < 10% is the figure that it names
    numbers.decimal_of(numbers.PERCENT),
    expected="a percentage",
    hint="Use 12.5 or 12.5%.",
    code="bad_percentage",
)
integer = Normaliser(
    "integer",
    numbers.whole_of(),
    expected="a whole number",
    hint="Use 1234 or 1,234.",
    code="bad_integer",
)

_SLASHED = r"[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{4}"
_DAY_FIRST = "CAST(try_strptime(replace({x}, '-', '/'), '%d/%m/%Y') AS DATE)"
_MONTH_FIRST = "CAST(try_strptime(replace({x}, '-', '/'), '%m/%d/%Y') AS DATE)"
_MIDNIGHT = r"(?:[ T]00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:?00)?)?"
_FORMATS = "['%Y/%m/%d', '%b %d, %Y', '%B %d, %Y', '%d %b %Y', '%d %B %Y', '%d.%m.%Y']"
date = Normaliser(
    "date",
    rf"""CASE
    WHEN {{x}} LIKE '____-__-__' AND {{x}} >= '0' THEN TRY_CAST({{x}} AS DATE)
    WHEN regexp_full_match({{x}}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_MIDNIGHT}')
        THEN TRY_CAST({{x}}[:10] AS DATE)
    WHEN regexp_full_match({{x}}, '{_SLASHED}') THEN CASE
        WHEN {{day_first}} THEN {_DAY_FIRST}
        WHEN NOT {{day_first}} OR {_DAY_FIRST} = {_MONTH_FIRST} THEN {_MONTH_FIRST} END
    ELSE TRY_CAST(try_strptime({{x}}, {_FORMATS}) AS DATE) END""",
    expected="a date",
    hint="Use 2025-07-31.",
    code="bad_date",
)
timestamp = Normaliser(
    "timestamp",
    "TRY_CAST({x} AS TIMESTAMPTZ)",
    expected="a date and time",
    hint="Use 2025-07-31T14:30:00Z.",
    code="bad_timestamp",
)
boolean = Normaliser(
    "boolean",
    "CASE WHEN lower({x}) IN ('true', 'yes', 'y', '1') THEN true "
    "WHEN lower({x}) IN ('false', 'no', 'n', '0') THEN false END",
    expected="yes or no",
    hint="Use true or false.",
    code="bad_boolean",
)

platform_id = Normaliser(
    "platform_id",
    "CASE WHEN regexp_full_match({x}, '[0-9]{1,20}') THEN {x} END",
    expected="an id of digits",
    hint="Use the id as the platform writes it.",
    code="bad_id",
    reasons=[
        Reason(  # a spreadsheet keeps 15 digits of an id: nothing brings the others back
            r"[0-9]+[.,][0-9]*|[0-9]+(?:[.,][0-9]*)?[eE]\+?[0-9]+",
            code="mangled_id",
            expected="an id with all its digits",
            hint="A spreadsheet has rounded it: export again and upload the file without opening it there.",
        )
    ],
)

BY_TYPE: dict[type, Normaliser] = {
    int: integer,
    Decimal: number,
    datetime.date: date,
    datetime.datetime: timestamp,
    bool: boolean,
}
TYPED = (*BY_TYPE.values(), money, percent)
