"""The decimal mark with little evidence: JSON numbers, and files whose numbers all have three decimals."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from rules.checking import Outcome, check_text
from weighbridge import Entity, Field, Pipeline, n
from weighbridge.model.errors import FileRefused
from weighbridge.model.read_options import ReadOptions

STOCK = Pipeline(
    "stock",
    [
        Entity(
            "stock",
            ["code"],
            [
                Field("code", header=["Code"], required=True),
                Field("amount", Decimal, header=["Amount"], normalise=[n.money]),
                Field("pieces", int, header=["Pieces"]),
            ],
            name="item",
        )
    ],
    min_valid=0,
    expects=(),
)


def check(text: str, **options: Any) -> Outcome:
    kind = "json" if text.startswith("[") else "csv"
    return check_text(text, None, pipeline=STOCK, kind=kind, options=ReadOptions(**options))


def amounts(outcome: Outcome) -> dict[str, tuple[Decimal | None, int | None]]:
    return {row["code"]: (row["amount"], row["pieces"]) for row in outcome.rows["item"]}


def test_a_number_of_json_has_a_decimal_point_whatever_texts_have() -> None:
    outcome = check('[{"code": "A", "amount": "1,5"}, {"code": "B", "amount": 2.345}]')
    assert amounts(outcome) == {"B": (Decimal("2.345"), None)}
    assert outcome.codes == ["bad_amount"]


def test_three_decimals_of_json_are_no_thousands() -> None:
    outcome = check('[{"code": "A", "amount": 12.500}, {"code": "B", "amount": 3.250, "pieces": 1234}]')
    assert amounts(outcome) == {"A": (Decimal("12.5"), None), "B": (Decimal("3.25"), 1234)}


def test_json_texts_may_have_a_decimal_comma() -> None:
    outcome = check('[{"code": "A", "amount": "1,5"}, {"code": "B", "amount": "2.345,00", "pieces": 7}]')
    assert amounts(outcome) == {"A": (Decimal("1.5"), None), "B": (Decimal(2345), 7)}


def test_a_decimal_comma_that_is_asked_for_does_not_change_numbers_of_json() -> None:
    with pytest.raises(
        FileRefused, match=r"such as 2\.345, whose decimal mark is always the point"
    ) as refused:
        check('[{"code": "A", "amount": 2.345}]', decimal=",")
    assert refused.value.code == "ambiguous_numbers"


@pytest.mark.parametrize(
    "rows",
    [
        "A,12.500,1.000\nB,3.250,2.000\nC,10.750,15.000\n",
        'A,"1,234",1.000\nB,"12,345",5\n',
    ],
)
def test_a_whole_number_with_three_zeros_shows_no_mark(rows: str) -> None:
    with pytest.raises(FileRefused, match="--decimal") as refused:
        check("Code,Amount,Pieces\n" + rows)
    assert refused.value.code == "ambiguous_numbers"


def test_a_whole_number_with_other_digits_behind_the_mark_shows_a_separator() -> None:
    outcome = check("Code,Amount,Pieces\nA,1.500,1.234\n")
    assert amounts(outcome) == {"A": (Decimal(1500), 1234)}


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [
        ("A;1.50;2.000\nB;12.25;10.000\n", [2, 10]),
        ("A;1,50;2,000\nB;12,25;-10,000\n", [2, -10]),
        ("A;1.50;2.000\nB;12.25;1,234\n", [2, 1234]),
    ],
)
def test_three_zeros_behind_a_mark_that_amounts_show_are_decimals(rows: str, pieces: list[int]) -> None:
    outcome = check("Code;Amount;Pieces\n" + rows)
    assert [found for _, found in amounts(outcome).values()] == pieces
    assert outcome.warnings == {}


@pytest.mark.parametrize(
    "rows",
    [
        "A;;2.000\nB;;3.000\nC;;1,234\nD;;5\n",  # no amount shows the mark
        "A;1.5;2.000\nB;;3.000\nC;;4.000\nD;5;5\n",  # one does, for three such numbers
    ],
)
def test_three_zeros_behind_a_mark_that_little_shows_are_rejected(rows: str) -> None:
    outcome = check("Code;Amount;Pieces\n" + rows)
    assert set(outcome.codes) == {"bad_integer"}
    assert "It may be units or thousands: write it without a separator" in outcome.rejections[0]["message"]
    assert not {2, 3, 2000, 3000} & {found for _, found in amounts(outcome).values()}
