"""Rows that are no records: repeated headers, other tables, rows of totals, in a user's pipeline."""

from __future__ import annotations

from datetime import date
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


@pytest.mark.parametrize("between", ["", "\n", "Stock list\n", ",,\nStock list,,\n\n"])
@pytest.mark.parametrize("other", ["SKU,Name,Price", "Artikelnummer,Bezeichnung,Preis"])
def test_a_second_table_of_unknown_columns_refuses_the_file(between: str, other: str) -> None:
    with pytest.raises(
        FileRefused, match="is another header, with other columns than the header on line 1"
    ) as refused:
        check("A1,Ann,5", "A2,Bob,6", "", f"{between}{other}", "S-1,Bolt,7", "S-2,Nut,8")
    assert refused.value.code == "several_tables"


def test_names_with_digits_are_a_header_where_no_value_of_several_can_be_read() -> None:
    fields = [
        Field("item", header=["Item"], required=True),
        Field("pieces", int, header=["Pieces"]),
        Field("price", Decimal, header=["Price"]),
    ]
    items = Pipeline("items", [Entity("items", ["item"], fields)], min_valid=0)
    text = "Item,Pieces,Price\nA,1,5\nB,2,6\n\nShop,Sold Q1,Sold Q2\nNorth,7,8\n"
    with pytest.raises(FileRefused, match="Line 5 is another header"):
        check_text(text, None, pipeline=items)


@pytest.mark.parametrize(
    "lines",
    [
        ["A1,Ann,5", "SKU,Name,Price", "A2,Bob,6"],  # no blank line before it
        ["A1,Ann,5", "", "SKU,Name,Price"],  # no records below it
        ["A1,Ann,5", "", "A3,Bob,6", "SKU,Name,unknown", "A2,Bob,6"],
        ["A1,Ann,5", "", "A2,Ann,unknown", "A3,Ann,6"],  # a digit, and one value alone that cannot be read
        ["A1,Ann,5", "", "1234,Ann,unknown", "A3,Ann,6"],  # a number: no name
        ["A1,Ann,5", "", "n/a,n/a,n/a", "A3,Ann,6"],
        ["A1,Ann,5", "", "a@example.com,Ann,unknown", "A3,Ann,6"],  # an address is no name
        ["", "(text),(text),(EUR)", "A3,Ann,6"],  # no record above it
        ["A1,Ann,5", "", "Bill,Ann,unknown", "", "A3,Ann,6"],  # half of the records follow a blank line
    ],
)
def test_a_record_with_words_for_its_values_is_rejected_alone(lines: list[str]) -> None:
    outcome = check(*lines)
    assert (outcome.bins.rejected, len(outcome.codes)) == (1, 1)
    assert outcome.bins.accepted == sum(line[-1:].isdigit() for line in lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{HEADER}\nA1,Ann,1.50\nA2,Bob,2.50\nOrder No;Customer;Amount\nB1;Cid;1,50\nB2;Dan;2,50\nB3;Eve;3,50\n",
         "several_tables"),
        ("Order No;Customer;Amount\nB1;Cid;1,50\nB2;Dan;2,50\n" + f"{HEADER}\nA1,Ann,1.50\nA2,Bob,2.50\n",
         "several_tables"),
        (f"A1;Ann;1,5\nA2;Bob;2,5\n{HEADER}\nA3,Cid,3.5\n", "records_above_header"),
    ],
)  # fmt: skip
def test_tables_with_different_delimiters_refuse_the_file(text: str, code: str) -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(text, None, pipeline=ORDERS)
    assert refused.value.code == code


def test_a_rejected_record_is_no_title_of_another_table() -> None:
    outcome = check("A1,Ann,5", "", "A2,Bob,oops", "Gift,Cid,unknown", "A4,Dan,6")
    assert (numbers(outcome), outcome.bins.rejected) == (["A1", "A4"], 2)


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("Name,Amount", ["Ann,5", "", "Bob,unknown", "Cid,6"]),
        ("Name,Active", ["Ann,yes", "", "Bob,maybe", "Cid,no"]),
    ],
)
def test_two_words_are_a_record(header: str, lines: list[str]) -> None:
    fields = [
        Field("name", header=["Name"], required=True),
        Field("amount", Decimal, header=["Amount"]),
        Field("active", bool, header=["Active"]),
    ]
    names = Pipeline("names", [Entity("names", ["name"], fields)], expects=(), min_valid=0)
    outcome = check_text("\n".join([header, *lines, ""]), None, pipeline=names)
    assert (outcome.bins.accepted, outcome.bins.rejected) == (2, 1)


def test_a_header_that_is_a_value_of_its_column_is_a_header() -> None:
    fields = [Field("no", header=["No"], required=True), Field("on", bool, header=["On"], required=True)]
    switches = Pipeline("switches", [Entity("switches", ["no"], fields)], min_valid=0)
    outcome = check_text("No,On\nA,yes\nNo,On\nB,no\n", None, pipeline=switches)
    assert outcome.bins == Bins(header=2, accepted=2)


@pytest.mark.parametrize("again", ["Name,City", "name ,city", " NAME,\u00a0City "])
def test_a_header_again_in_other_letters_is_a_header_where_all_fields_are_text(again: str) -> None:
    fields = [Field("name", required=True), Field("city")]
    people = Pipeline("people", [Entity("people", ["name"], fields)], min_valid=0)
    outcome = check_text(f"name,city\nAnn,Rome\n{again}\nBob,Bonn\n", None, pipeline=people)
    assert outcome.bins == Bins(header=2, accepted=2)


@pytest.mark.parametrize("empty", ["{}", '{"Order No": null, "Amount": null}', '{"Order No": ""}'])
def test_an_empty_json_record_is_blank(empty: str) -> None:
    record = '{"Order No": "%s", "Customer": "Ann", "Amount": 5}'
    text = f"[{record % 'A1'}, {empty}, {record % 'A2'}]"
    assert check_text(text, None, pipeline=ORDERS, kind="json").bins == Bins(blank=1, accepted=2)


def test_a_title_with_another_delimiter_is_a_title() -> None:
    text = f"Orders; all; 2025\nMade: 5;6\n{HEADER}\nA1,Ann,5\nA2,Bob,6\n"
    assert numbers(check_text(text, None, pipeline=ORDERS)) == ["A1", "A2"]


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


DAYS = Pipeline(
    "days",
    [Entity("days", ["day"], [Field("day", date, required=True), Field("spend", Decimal)])],
    min_valid=0,
)
TILLS = Pipeline(
    "tills", [Entity("tills", ["till"], [Field("till", int, required=True), Field("sold", int)])], min_valid=0
)


@pytest.mark.parametrize(
    ("pipeline", "text"),
    [
        (DAYS, "Day,Spend\n2025-01-01,5.25\n2025-01-02,10.5\nTotal,{whole}\n"),
        (TILLS, "Till,Sold\n7,5\n8,10\nTotal,{whole}\n"),
    ],
)
def test_a_label_in_the_place_of_a_key_that_is_no_text_is_a_row_of_totals(
    pipeline: Pipeline, text: str
) -> None:
    whole = "15.75" if pipeline is DAYS else "15"
    outcome = check_text(text.format(whole=whole), None, pipeline=pipeline)
    assert outcome.bins == Bins(header=1, accepted=2, totals=1)
    outcome = check_text(text.format(whole="16"), None, pipeline=pipeline)
    assert (outcome.bins.accepted, outcome.codes) == (2, ["bad_date" if pipeline is DAYS else "bad_integer"])


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


@pytest.mark.parametrize(
    ("amounts", "warned"),
    [
        ("5.50 6.00 17.25 8.50", ""),
        ("5.50 6.00 17.25 8.5", "its last cell has fewer characters after its last separator"),
        ("5.50 6.00 17.25 8", "its last cell has fewer characters after its last separator"),
        ("5.50 6.00 17.25 ", "its last cell is empty"),
        ("5 6 7.5 8.25 8", ""),
        ("5.50 6.0", ""),
        ("5", ""),
        ("500 600 700 80", ""),
        ("500 600 " * 5 + "80", "its last cell is shorter"),
        ('5.50 6.00 17.25 "8.5"', ""),
        ("5 600 70 8", ""),
    ],
)
def test_a_file_without_a_final_line_end_has_a_warning_only_if_it_looks_cut_off(
    amounts: str, warned: str
) -> None:
    lines = [f"A{number},Ann,{amount}" for number, amount in enumerate(amounts.split(" "))]
    outcome = check_text("\n".join([HEADER, *lines]), None, pipeline=ORDERS)
    sentence = outcome.warnings.get("no_final_line_end", "")
    assert (warned in sentence) if warned else not sentence
    assert not warned or f"the record on line {len(lines) + 1} " in sentence.replace(
        "Compare the record", "the record"
    )
    assert "no_final_line_end" not in check(*lines).warnings


def test_a_last_record_with_too_few_cells_or_at_the_end_of_a_block_may_be_cut_off() -> None:
    short = check_text(f"{HEADER}\nA1,Ann,5\nA2,Bo", None, pipeline=ORDERS)
    assert "has another number of cells than the header" in short.warnings["no_final_line_end"]
    text = f"{HEADER}\nA1,Ann,5\nA2,{'B' * 5000}"[: 4096 - 2] + ",6"
    assert "4,096 bytes" in check_text(text, None, pipeline=ORDERS).warnings["no_final_line_end"]
    assert "no_final_line_end" not in check_text(text + "5", None, pipeline=ORDERS).warnings


def test_a_last_word_that_is_the_beginning_of_another_may_be_cut_off() -> None:
    header, rows = "Order No,Amount,Customer\n", "A1,5,Berlin\nA2,5,Berlin\nA3,5,Berlin\nA4,5,Rome\n"
    assert "no_final_line_end" in check_text(f"{header}{rows}A5,5,Ber", None, pipeline=ORDERS).warnings
    assert "no_final_line_end" not in check_text(f"{header}{rows}A5,5,Rome", None, pipeline=ORDERS).warnings
