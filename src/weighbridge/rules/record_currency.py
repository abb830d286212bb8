"""Beside the plan: which currency the amounts of a record are in, by the header or by a column of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weighbridge.model.errors import FileRefused
from weighbridge.model.pipeline import InHeader, Pipeline
from weighbridge.model.rule import Normaliser
from weighbridge.rules import currencies, header_currency, normalise, numbers
from weighbridge.rules.headers import Layout

_NAMES = ("currency", "currency_code")


@dataclass(frozen=True)
class Stated:
    """The currency of an amount."""

    says: str  # "header 'Amount spent (USD)'"
    code: str = ""  # empty where each record has its own
    field: str = ""  # the field that has it then


def stated(amount: str, pipeline: Pipeline, layout: Layout) -> Stated | None:
    """How the file states the currency of this field; None where it does not."""
    stores = storing(amount, pipeline)
    code, of = layout.currencies.get(amount), amount
    if code is None and stores and stores in layout.constants:
        code, of = layout.constants[stores], _named_by(stores, pipeline)
    if code in currencies.CODES:
        return Stated(f"header {layout.mapping[of]!r}", code=str(code))
    if stores and stores in layout.columns:
        return Stated(f"column {layout.mapping[stores]!r}", field=stores)
    return None


def storing(amount: str, pipeline: Pipeline) -> str | None:
    """The field of the same entity that stores the currency, as `daily_metric.currency` does for all its amounts."""
    entity = amount.partition(".")[0]
    own = {name: field for name, field in pipeline.fields.items() if name.partition(".")[0] == entity}
    in_header = [name for name, field in own.items() if isinstance(field.otherwise, InHeader)]
    named = [f"{entity}.{name}" for name in _NAMES if f"{entity}.{name}" in own]
    return next(iter([*in_header, *named]), None)


def expected(currency: str, pipeline: Pipeline, layout: Layout) -> Stated | None:
    """What the headers of its amounts say of a field that stores a currency."""
    for amount in layout.currencies:
        found = stated(amount, pipeline, layout)
        if found and found.code and storing(amount, pipeline) == currency:
            return found
    return None


def possible(currency: str, pipeline: Pipeline, layout: Layout) -> tuple[str, Sequence[str]] | None:
    """The header of an amount with a symbol such as `$`, and the codes that such a field may have beside it."""
    for amount, symbol in layout.symbols.items():
        if storing(amount, pipeline) == currency and symbol in currencies.SYMBOLS:
            return layout.mapping[amount], currencies.SYMBOLS[symbol]
    return None


def refuse_several(pipeline: Pipeline, layout: Layout) -> None:
    """One field stores the currency of all amounts of an entity. Raises FileRefused: `several_currencies`."""
    first: dict[str, str] = {}
    named = {**layout.currencies, **layout.symbols}
    for amount, mark in named.items():
        stores = storing(amount, pipeline)
        other = first.setdefault(stores, amount) if stores else amount
        if header_currency.contradict(named[other], mark):
            raise FileRefused(
                "several_currencies",
                f"{stores}: expected one currency, got {layout.mapping[other]!r} and {layout.mapping[amount]!r}. "
                "Export one currency a file.",
            )


def in_currency(step: Normaliser, known: Stated | None, value: str) -> Normaliser:
    """The rule for amounts, where the currency is known: another one beside the number is rejected.

    `value` is SQL for the currency of the record. Any other rule stays as it is.
    """
    if known is None or step.expression != normalise.money.expression:
        return step
    # A pattern with fewer currencies costs nothing. A currency that each record has is compared for every amount that
    # is not of digits alone.
    named = currencies.agrees_quickly("{x}", value)
    expression = numbers.amount(known.code) if known.code else numbers.amount(also=named)
    reason = numbers.other_currency(value, known.says)
    return replace(step, expression=expression, reasons=(reason, *step.reasons))


def _named_by(currency: str, pipeline: Pipeline) -> str:
    otherwise = pipeline.fields[currency].otherwise
    return otherwise.of if isinstance(otherwise, InHeader) else currency
