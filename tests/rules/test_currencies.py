"""A currency beside an amount: it must be that of the record, and is reported where no field stores it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rules.cells import check, values
from rules.checking import check_text, meta
from weighbridge import Entity, Field, Pipeline, n
from weighbridge.model.errors import FileRefused
from weighbridge.pipelines import conversions, judgments
from weighbridge.rules import currencies, record_source

HEADER = "Day;Campaign name;Impressions;Amount spent"


def spends(cells: list[str], header: str) -> tuple[list[Decimal], list[str], list[str]]:
    """The accepted amounts, the codes of the rejections and their sentences."""
    records = [f"2025-07-{day:02};Spring;5;{cell}" for day, cell in enumerate(cells, 1)]
    outcome = check_text(meta(*records, header=header))
    said = [rejection["message"] for rejection in outcome.rejections]
    return [row["spend"] for row in outcome.metrics], outcome.codes, said


@pytest.mark.parametrize(
    "cell", ["12.00", "$12.00", "US$12.00", "USD 12.00", "12.00 USD", "$12.00 USD", "-$.50"]
)
def test_an_amount_may_name_the_currency_of_its_header(cell: str) -> None:
    accepted, codes, _ = spends([cell], f"{HEADER} (USD)")
    assert (len(accepted), codes) == (1, [])


@pytest.mark.parametrize(
    "cell", ["€12.00", "EUR 12.00", "12.00 EUR", "CA$12.00", "$12.00 CAD", "-€12.00", "€.50", "kr 5"]
)
def test_an_amount_in_another_currency_than_its_header_is_rejected(cell: str) -> None:
    accepted, codes, [said] = spends(["1.50", cell], f"{HEADER} (USD)")
    assert (len(accepted), codes) == (1, ["currency_differs"])
    assert f"expected an amount in USD, as stated by the header 'Amount spent (USD)', got '{cell}'" in said


@pytest.mark.parametrize(
    ("cell", "currency", "code"),
    [
        ("€12.00", "USD", "currency_differs"),
        ("$12.00", "EUR", "currency_differs"),
        ("$12.00 CAD", "AUD", "currency_differs"),
        ("$12.00", "CAD", ""),
        ("$12.00 CAD", "CAD", ""),
        ("12.00 kr", "NOK", ""),
        ("¥12.00", "CNY", ""),
        ("12.00 eur", "EUR", "bad_amount"),
        ("ABC 12.00", "EUR", "bad_amount"),
        ("1,234.50", "EUR", ""),
        ("€12.00", "", ""),
    ],
)
def test_an_amount_is_in_the_currency_of_its_record(cell: str, currency: str, code: str) -> None:
    _, codes, said = spends(["1.50;EUR", f"{cell};{currency}"], f"{HEADER};Currency")
    assert codes == ([code] if code else [])
    if code == "currency_differs":
        assert (
            f"expected an amount in {currency}, as stated by the column 'Currency', got '{cell}'" in said[0]
        )


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("records", "codes", "said"),
    [
        (
            ["€5.00;", "1.50;USD"],
            ["currency_not_stored"],
            "such as '€5.00' where 'Currency' has no currency code.",
        ),
        (["€5.00;", "5.00 GBP;", "1.50;USD"], ["several_currencies"], "'5.00 GBP', '€5.00'"),
        (["$5.00;", "€5.00;EUR"], [], ""),
        (["€5.00;EUR", "1.50;"], [], ""),
        (["€5.00;EUR", ";"], None, ""),
    ],
)
def test_a_currency_beside_an_empty_cell_for_it_is_reported(
    records: list[str], codes: list[str] | None, said: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(record_source, "SMALL", 1)
    lines = [f"2025-07-{day:02};Spring;11;5;{record}" for day, record in enumerate(records, 1)]
    outcome = check_text(
        meta(*lines, header="Day;Campaign name;Campaign ID;Impressions;Amount spent;Currency")
    )
    assert outcome.bins.accepted == len(records)
    # An amount without any currency is always reported; a record without an amount needs none.
    assert list(outcome.warnings) == ([] if codes is None else ["currency_not_named", *codes])
    assert all(said in outcome.warnings[code] for code in codes or ())


def test_the_value_of_a_conversion_is_in_its_currency() -> None:
    header = "Conversion Time,Google Click ID,Conversion Value,Conversion Currency\n"
    records = ["abc,€5,USD", "abd,€5,EUR", "abe,5,usd"]
    text = header + "".join(f"2026-01-31 14:30:00+0100,{record}\n" for record in records)
    outcome = check_text(text, None, pipeline=conversions.pipeline)
    assert (outcome.bins.accepted, outcome.codes) == (2, ["currency_differs"])


def test_a_column_of_currencies_must_agree_with_the_header() -> None:
    accepted, codes, [said] = spends(["2.00;EUR", "3.00;usd"], f"{HEADER} (USD);Currency")
    assert (accepted, codes) == ([Decimal(3)], ["currency_differs"])
    assert "currency: expected USD, as stated by the header 'Amount spent (USD)', got 'EUR'" in said


def test_headers_in_two_currencies_are_refused_where_one_field_stores_the_currency() -> None:
    with pytest.raises(FileRefused, match=r"Amount spent.*Purchases conversion value") as refused:
        spends(["2.00;5.00"], f"{HEADER} (USD);Purchases conversion value (EUR)")
    assert refused.value.code == "several_currencies"


def test_a_field_named_currency_is_that_of_the_amounts_beside_it() -> None:
    fields = [
        Field("no", int, header=["No"], required=True),
        Field("price", Decimal, header=["Price"], normalise=[n.money]),
        Field("currency", header=["Currency"], normalise=[n.upper]),
    ]
    own = Pipeline("own", [Entity("owns", ["no"], fields)], min_valid=0)
    outcome = check_text("No,Price,Currency\n1,€5.00,usd\n2,€5.00,eur\n", None, pipeline=own)
    assert (outcome.bins.accepted, outcome.codes) == (1, ["currency_differs"])


@pytest.mark.parametrize(
    "cell", ["ABC 5.00", "5.00 XYZ", "XY$5.00", "-ABC 5.00", "€5 USD", "$5 EUR", "EUR 5 USD"]
)
def test_a_word_that_is_no_currency_is_rejected_and_so_are_two_currencies(cell: str) -> None:
    assert check(["1.50", cell], Decimal, n.money).codes == ["bad_amount"]


def test_every_code_and_symbol_is_read() -> None:
    cells = [f"{name} 5.00" for name in [*sorted(currencies.CODES), *currencies.SYMBOLS]]
    outcome = check([*cells, *(" ".join(reversed(cell.split())) for cell in cells)], Decimal, n.money)
    assert set(values(outcome).values()) == {Decimal(5)}
    assert outcome.codes == []


# Where no field stores the currency -------------------------------------------------------------------------


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("cells", "code", "said"),
    [
        (["$5.00", "€5.00", "5.00 GBP"], "several_currencies", "'$5.00', '5.00 GBP', '€5.00'"),
        (["$5.00", "$6.00 CAD"], "several_currencies", "'$5.00', '$6.00 CAD'"),
        (["$5.00", "-€5.00"], "several_currencies", "'-€5.00'"),
        (["5.00", "€5.00", "7.00 EUR"], "currency_not_stored", "such as '7.00 EUR'"),
        (["$5.00", "$1,234.50", "US$6.00", "7.50 USD", "-$3.10"], "", ""),
        (["5.00", "1,234.50", "-.5"], "", ""),
    ],
)
def test_a_currency_that_no_field_stores_is_reported_unless_it_is_the_dollar(
    cells: list[str], code: str, said: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(record_source, "SMALL", 1)
    outcome = check(cells, Decimal, n.money)
    assert outcome.codes == []
    assert list(outcome.warnings) == ([code] if code else [])
    assert said in outcome.warnings.get(code, "")


def test_a_currency_in_a_header_that_no_field_stores_is_reported() -> None:
    text = "Case Number,Plaintiff,Defendant,Judgment Amount ({}),Filing Date\nA-1,Joe,Ann,5.00,2024-01-31\n"
    told = check_text(text.format("EUR"), None, pipeline=judgments.pipeline).warnings
    assert told["currency_not_stored"].startswith("'Judgment Amount (EUR)' has amounts in EUR.")
    assert check_text(text.format("USD"), None, pipeline=judgments.pipeline).warnings == {}


def test_a_warning_about_currencies_repeats_no_cell_of_a_personal_pipeline() -> None:
    outcome = check(["$5.00", "€5.37"], Decimal, n.money, personal=True)
    assert "'$', '€'" in outcome.warnings["several_currencies"]
    assert "5.37" not in outcome.warnings["several_currencies"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Amount spent (€)", "EUR"),
        ("Amount spent €", "EUR"),
        ("€ Amount spent", "EUR"),
        ("Amount spent [£]", "GBP"),
        ("Amount spent (in ₹)", "INR"),
        ("Amount spent (zł)", "PLN"),
        ("Amount spent Kč", "CZK"),
        ("Amount spent (CA$)", "CAD"),
        ("Amount spent (₪)", "ILS"),
        ("Amount spent\uff08€\uff09", "EUR"),
    ],
)
def test_a_symbol_in_the_header_that_one_currency_has_names_it(header: str, code: str) -> None:
    outcome = check_text(meta("2025-07-01;Spring;5;1.50", header=f"Day;Campaign name;Impressions;{header}"))
    [row] = outcome.metrics
    assert (row["spend"], row["currency"]) == (Decimal("1.5"), code)
    assert set(outcome.warnings) == {"ids_from_names"}
    other = meta("2025-07-01;Spring;5;USD 1.50", header=f"Day;Campaign name;Impressions;{header}")
    assert check_text(other).codes == ["currency_differs"]


@pytest.mark.parametrize("symbol", ["$", "¥"])
def test_a_symbol_in_the_header_that_several_currencies_have_names_none(symbol: str) -> None:
    header = f"Day;Campaign name;Impressions;Amount spent ({symbol})"
    outcome = check_text(meta("2025-07-01;Spring;5;1.50", header=header))
    assert outcome.metrics[0]["currency"] is None
    assert f"the symbol '{symbol}' of the header is ambiguous" in outcome.warnings["currency_not_named"]


def test_a_column_of_currencies_must_fit_the_symbol_of_the_header() -> None:
    header = "Day;Campaign name;Impressions;Amount spent ($);Currency"
    records = [f"2025-07-0{i};Spring;5;1.50;{code}" for i, code in enumerate(["CAD", "EUR", "USD"], 1)]
    outcome = check_text(meta(*records, header=header))
    assert ([row["currency"] for row in outcome.metrics], outcome.codes) == (
        ["CAD", "USD"],
        ["currency_differs"],
    )


@pytest.mark.parametrize(
    "headers",
    ["Amount spent (€);Amount spent ($)", "Amount spent (€);Purchases conversion value ($)"],
)
def test_symbols_of_two_currencies_in_the_headers_are_refused(headers: str) -> None:
    with pytest.raises(FileRefused) as refused:
        check_text(meta("2025-07-01;Spring;5;1;1", header=f"Day;Campaign name;Impressions;{headers}"))
    assert refused.value.code == "several_currencies"


def test_a_symbol_in_a_header_that_no_field_stores_is_reported() -> None:
    for header, warned in (("Price €", True), ("Price (¥)", True), ("Price ($)", False)):
        own = Pipeline(
            "own",
            [Entity("own", ["no"], [Field("no", str, required=True), Field("price", Decimal)], name="one")],
        )
        outcome = check_text(f"No,{header}\n1,2.50\n", None, pipeline=own)
        assert outcome.rows["one"][0]["price"] == Decimal("2.5")
        assert ("currency_not_stored" in outcome.warnings) is warned
