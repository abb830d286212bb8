"""Records that are none: repeated headers, other tables, rows of totals, in a pipeline of a user's own."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rules.checking import Outcome, check_text
from weighbridge import Entity, Field, Pipeline
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins
from weighbridge.pipelines import keywords

ORDERS = Pipeline(
    "orders",
    [
        Entity(
            "orders",
            ["order_no"],
            [
                Field("order_no", header=["Order No"], required=True),
                Field("customer", header=["Customer"]),
                Field("amount", Decimal, header=["Amount"]),
            ],
        )
    ],
    min_valid=0,
)
HEADER = "Order No,Customer,Amount"


def check(*lines: str) -> Outcome:
    return check_text("\n".join([HEADER, *lines, ""]), None, pipeline=ORDERS)


def numbers(outcome: Outcome) -> list[str]:
    return [row["order_no"] for row in outcome.rows["order"]]


def test_a_header_that_stands_there_again_is_a_header() -> None:
    outcome = check("A1,Ann,5", HEADER, "A2,Bob,6", HEADER)
    assert outcome.bins == Bins(header=3, accepted=2)
    assert numbers(outcome) == ["A1", "A2"]


@pytest.mark.parametrize(
    "other", ["Customer,Order No,Amount", "Amount,Order No", "Order No,Customer,Amount,Day"]
)
def test_a_second_table_with_other_columns_refuses_the_file(other: str) -> None:
    with pytest.raises(FileRefused, match="Line 4 is another header") as refused:
        check("A1,Ann,5", "A2,Bob,6", other, "Cid,A3,7")
    assert refused.value.code == "several_tables"


@pytest.mark.parametrize(
    "totals", ["Total,,11", ",Total,11", "Grand Total:,,11", "Summe,,11.00", "TOTAL,,11", ",,\n合計,,11"]
)
def test_a_row_of_totals_is_counted_as_such(totals: str) -> None:
    outcome = check("A1,Ann,5", "A2,Bob,6", totals)
    assert outcome.bins.totals == 1
    assert numbers(outcome) == ["A1", "A2"]


def test_a_label_over_figures_that_do_not_add_up_is_rejected_and_not_loaded() -> None:
    outcome = check("A1,Ann,5", "A2,Bob,6", "Total,,99")
    assert (numbers(outcome), outcome.codes) == (["A1", "A2"], ["looks_like_totals"])


def test_all_figures_of_a_row_of_totals_add_up() -> None:
    fields = [
        Field("item", header=["Item"], required=True),
        Field("pieces", int, header=["Pieces"]),
        Field("price", Decimal, header=["Price"]),
    ]
    items = Pipeline("items", [Entity("items", ["item"], fields)], min_valid=0)
    text = "Item,Pieces,Price\nA,1,5\nB,2,6\nTotal,3,{price}\n"
    assert check_text(text.format(price="11"), None, pipeline=items).bins.totals == 1
    assert check_text(text.format(price=""), None, pipeline=items).bins.totals == 1
    outcome = check_text(text.format(price="1.5"), None, pipeline=items)
    assert (outcome.bins.totals, outcome.codes) == (0, ["looks_like_totals"])


def test_a_company_called_total_in_a_file_without_figures_is_not_lost() -> None:
    fields = [Field("name", header=["Name"], required=True), Field("phone", header=["Phone"])]
    companies = Pipeline("companies", [Entity("companies", ["name"], fields)], min_valid=0)
    outcome = check_text("Name,Phone\nShell,123\nTotal,33147\nBP,99\n", None, pipeline=companies)
    assert (outcome.bins.accepted, outcome.bins.totals, outcome.codes) == (2, 0, ["looks_like_totals"])


def test_one_record_equal_to_another_is_no_sum() -> None:
    outcome = check("A1,,5", "Total,,5")
    assert (outcome.bins.totals, outcome.codes) == (0, ["looks_like_totals"])


def test_a_customer_called_total_is_a_customer() -> None:
    outcome = check("A1,Total,5", "A2,Total Wine,6")
    assert (outcome.bins.accepted, outcome.bins.totals) == (2, 0)


def test_a_search_term_may_be_total() -> None:
    text = "Keyword,Volume\nshoes,10\ntotal,3\nsum,4\n"
    outcome = check_text(text, None, pipeline=keywords.pipeline)
    assert sorted(row["keyword"] for row in outcome.rows["keyword"]) == ["shoes", "sum", "total"]


def test_records_above_the_header_are_not_left_out_without_a_word() -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(f"A1,Ann,5\nA2,Bob,6\n{HEADER}\nA3,Cid,7\n", None, pipeline=ORDERS)
    assert refused.value.code == "records_above_header"


def test_a_file_that_does_not_end_with_a_line_end_may_be_cut_off() -> None:
    outcome = check_text(f"{HEADER}\nA1,Ann,5\nA2,Bob,6", None, pipeline=ORDERS)
    assert "the record on line 3 may be incomplete" in outcome.warnings["no_final_line_end"]
    assert "no_final_line_end" not in check("A1,Ann,5").warnings
