"""Called by check_plan.py: the currency of the amounts of a record, from the header or from a column of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import InHeader, Pipeline
from weighbridge.model.rule import Normaliser
from weighbridge.rules import currencies, header_currency, normalise, number_sql
from weighbridge.rules.headers import Layout

_NAMES = ("currency", "currency_code")


@dataclass(frozen=True)
class StatedCurrency:
    """The currency of an amount."""

    stated_by: str  # "header 'Amount spent (USD)'"
    code: str = ""  # empty if each record states it
    field: str = ""  # the field in which each record states it


def stated_currency(amount: str, pipeline: Pipeline, layout: Layout) -> StatedCurrency | None:
    """How the file states the currency of this field; None if it does not."""
    stores = currency_field(amount, pipeline)
    code, of = layout.currencies.get(amount), amount
    if code is None and stores and stores in layout.constants:
        code, of = layout.constants[stores], _named_by(stores, pipeline)
    if code in currencies.CODES:
        return StatedCurrency(f"header {layout.mapping[of]!r}", code=str(code))
    if stores and stores in layout.columns:
        return StatedCurrency(f"column {layout.mapping[stores]!r}", field=stores)
    return None


def currency_field(amount: str, pipeline: Pipeline) -> str | None:
    """The field of the same entity that stores the currency, as `daily_metric.currency` does for all its amounts."""
    entity = amount.partition(".")[0]
    own = {name: field for name, field in pipeline.fields.items() if name.partition(".")[0] == entity}
    in_header = [name for name, field in own.items() if isinstance(field.otherwise, InHeader)]
    named = [f"{entity}.{name}" for name in _NAMES if f"{entity}.{name}" in own]
    return next(iter([*in_header, *named]), None)


def expected_currency(currency: str, pipeline: Pipeline, layout: Layout) -> StatedCurrency | None:
    """The currency that the headers of amounts state for a field that stores the currency."""
    for amount in layout.currencies:
        found = stated_currency(amount, pipeline, layout)
        if found and found.code and currency_field(amount, pipeline) == currency:
            return found
    return None


def possible_currencies(
    currency: str, pipeline: Pipeline, layout: Layout
) -> tuple[str, Sequence[str]] | None:
    """The header of an amount with a symbol such as `$`, and the currency codes that fit it."""
    for amount, symbol in layout.symbols.items():
        if currency_field(amount, pipeline) == currency and symbol in currencies.SYMBOLS:
            return layout.mapping[amount], currencies.SYMBOLS[symbol]
    return None


def refuse_several(pipeline: Pipeline, layout: Layout) -> None:
    """One field stores the currency of all amounts of an entity. Raises FileRefused: `several_currencies`."""
    first: dict[str, str] = {}
    named = {**layout.currencies, **layout.symbols}
    for amount, mark in named.items():
        stores = currency_field(amount, pipeline)
        other = first.setdefault(stores, amount) if stores else amount
        if header_currency.contradict(named[other], mark):
            raise FileRefused(
                "several_currencies",
                f"{stores}: expected one currency, got {layout.mapping[other]!r} and {layout.mapping[amount]!r}. "
                "Export one currency per file.",
            )


def in_currency(step: Normaliser, known: StatedCurrency | None, value: str) -> Normaliser:
    """The rule for amounts with a known currency: an amount in another currency is rejected.

    `value` is SQL for the currency of the record. Any other rule is returned unchanged.
    """
    if known is None or step.expression != normalise.money.expression:
        return step
    # If the header states the currency, a pattern with fewer currencies takes no extra time. If each record states it,
    # it is compared for every amount that has more than digits.
    named = currencies.agrees_quickly("{x}", value)
    expression = number_sql.amount(known.code) if known.code else number_sql.amount(also=named)
    reason = number_sql.other_currency(value, known.stated_by)
    return replace(step, expression=expression, reasons=(reason, *step.reasons))


def _named_by(currency: str, pipeline: Pipeline) -> str:
    otherwise = pipeline.fields[currency].otherwise
    return otherwise.of if isinstance(otherwise, InHeader) else currency
