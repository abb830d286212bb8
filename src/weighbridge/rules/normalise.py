"""Ready-made normalisers: the text of a cell → cleaned text or a typed value.

    Field("judgment_amount", Decimal, header=["Amount"], normalise=[n.money])

Before the first rule, cells are trimmed, and texts that mean "no value" are NULL. A rule that returns NULL for a text
rejects the record with its `code`.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

from weighbridge.model.rule import Normaliser, Reason
from weighbridge.rules import date_sql, number_sql

strip = Normaliser("strip", "trim({x})")
upper = Normaliser("upper", "upper({x})")
lower = Normaliser("lower", "lower({x})")
fold_space = Normaliser("fold_space", r"trim(regexp_replace({x}, '[\s\x{00A0}\x{202F}]+', ' ', 'g'))")
nfkc = Normaliser("nfkc", "nfkc_normalize({x})")  # also compatible characters: ﬁ becomes fi, Ａ becomes A

number = Normaliser(
    "number",
    number_sql.decimal_of(number_sql.PLAIN),
    expected="a number",
    hint="Use 1234.56.",
    code="bad_number",
    reasons=(number_sql.too_many_digits(number_sql.PLAIN),),
)
money = Normaliser(
    "money",
    number_sql.amount(),
    expected="an amount",
    hint="Use 1234.56 or $1,234.56.",
    code="bad_amount",
    reasons=(number_sql.too_many_digits(number_sql.MONEY),),
)
percent = Normaliser(
    "percent",  # 12.5% is 12.5; a bound such as < 10% is 10
    number_sql.decimal_of(number_sql.PERCENT),
    expected="a percentage",
    hint="Use 12.5 or 12.5%.",
    code="bad_percentage",
    reasons=(number_sql.too_many_digits(number_sql.PERCENT),),
    reduces="({x} >= '<' AND {x} < '?')",  # it begins with < or >
)
integer = Normaliser(
    "integer",
    number_sql.whole_of(),
    expected="a whole number",
    hint="Use 1234 or 1,234.",
    code="bad_integer",
    reasons=(number_sql.too_many_whole_digits(), number_sql.TWO_WAYS),
)
# Runs before each of these in JSON, where numbers may have an exponent. In CSV an exponent is a sign of rounding.
in_full = Normaliser("in_full", number_sql.IN_FULL)

date = Normaliser(
    "date",
    date_sql.DATE,
    expected="a date",
    hint="Use 2025-07-31.",
    code="bad_date",
    reasons=(date_sql.SERIAL,),
)
timestamp = Normaliser(
    "timestamp",
    date_sql.TIMESTAMP,
    expected="a date and time",
    hint="Use 2025-07-31T14:30:00Z. A date without a time is rejected.",
    code="bad_timestamp",
    reasons=(date_sql.FINER, date_sql.SERIAL),
)
boolean = Normaliser(
    "boolean",
    "CASE WHEN lower({x}) IN ('true', 'yes', 'y', '1', 't', 'on') THEN true "
    "WHEN lower({x}) IN ('false', 'no', 'n', '0', 'f', 'off') THEN false END",
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
        Reason(  # a spreadsheet keeps 15 digits of an id; the others are lost
            r"[0-9]+[.,][0-9]*|[0-9]+(?:[.,][0-9]*)?[eE]\+?[0-9]+",
            code="mangled_id",
            expected="an id with all its digits",
            hint="A spreadsheet program has rounded it. Export the file again, and do not open it in such a program.",
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
NUMERIC = (number, money, percent, integer)
TYPED: dict[type, tuple[Normaliser, ...]] = {kind: (rule,) for kind, rule in BY_TYPE.items()} | {
    Decimal: (number, money, percent)
}


def exact(kind: type, sql_type: str) -> Normaliser:
    """Cast the result of an author's own rules, if the cast does not change the value.

    DuckDB's cast rounds 2.5 to 3, and accepts `infinity` and `epoch` as times.
    """
    written, cast = "CAST({x} AS VARCHAR)", f"TRY_CAST({{x}} AS {sql_type})"
    unchanged = {
        int: f"regexp_full_match({written}, '[-+]?[0-9]+(?:[.]0*)?')",
        Decimal: f"regexp_full_match({written}, '[-+]?[0-9]*(?:[.][0-9]{{0,{number_sql.PLACES}}}0*)?')",
        datetime.date: f"regexp_full_match({written}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?: 00:00:00(?:[+]00)?)?')"
        f" AND {written} >= '0001'",
        datetime.datetime: f"regexp_matches({written}, '^[0-9]{{4}}-') AND {written} >= '0001'"
        f" AND NOT regexp_matches({written}, '[.][0-9]{{6}}[0-9]*[1-9]')",
    }
    expression = f"CASE WHEN {unchanged[kind]} THEN {cast} END" if kind in unchanged else cast
    return Normaliser("cast", expression, f"a value of type {sql_type}", code="bad_value")
