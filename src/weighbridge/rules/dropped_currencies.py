"""After typing: warnings about currencies next to amounts, if no field stores the currency.

An American file with `$1,234.56` has no warning: dollars are the ordinary case. Any other currency has one.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.counts import counted
from weighbridge.rules import currencies
from weighbridge.rules.check_plan import CheckPlan, Column, quoted, texts
from weighbridge.rules.record_kinds import ACCEPTED
from weighbridge.rules.record_source import RecordSource

_ONLY_NUMBERS = "Only the numbers were loaded, not these currencies."


def warnings(
    db: Any, plan: CheckPlan, columns: list[tuple[Column, str]], source: RecordSource
) -> dict[str, str]:
    """By code: `several_currencies`, `currency_not_stored`, `currency_not_named`.

    The columns have a SELECT of their noted texts as x.
    """
    found = _by_header(plan) | _not_named(db, plan)
    for column, noted in columns:
        if not column.drops_currency or not _unordinary(_words_next_to_amounts(db, "x", f"({noted})")):
            continue
        accepted = f"(SELECT row_index FROM typed WHERE kind = {ACCEPTED})"
        used = [column, column.currency] if column.currency else [column]
        amounts = (
            f"(SELECT * FROM {texts(used, source.records(db))} AS sheet"
            f" SEMI JOIN {accepted} AS accepted USING (row_index) WHERE {column.drops_currency})"
        )
        named = _words_next_to_amounts(db, column.text, amounts)
        examples = [repr(word if plan.pipeline.personal else cell) for word, cell in named.items()]
        if not _unordinary(named):
            continue
        where = f" where {column.currency.header!r} has no currency code" if column.currency else ""
        if len({currencies.meaning(word) for word in named}) > 1:
            found["several_currencies"] = (
                f"{column.header!r} has amounts in several currencies{where}: {', '.join(examples)}. {_ONLY_NUMBERS}"
            )
        else:
            found["currency_not_stored"] = (
                f"{column.header!r} has amounts such as {examples[0]}{where}. {_ONLY_NUMBERS}"
            )
    return found


def _by_header(plan: CheckPlan) -> dict[str, str]:
    """A currency in the header of an amount, where no field stores it."""
    layout = plan.layout
    stored = {*layout.constants, *layout.columns}
    for name, code in layout.currencies.items():
        if code in currencies.CODES - {currencies.ORDINARY} and plan.currency_field(name) not in stored:
            return {"currency_not_stored": f"{layout.mapping[name]!r} has amounts in {code}. {_ONLY_NUMBERS}"}
    for name, symbol in layout.symbols.items():
        if currencies.meaning(symbol) != currencies.ORDINARY and plan.currency_field(name) not in stored:
            return {
                "currency_not_stored": f"{layout.mapping[name]!r} has amounts in {symbol!r}. {_ONLY_NUMBERS}"
            }
    return {}


def _not_named(db: Any, plan: CheckPlan) -> dict[str, str]:
    """Amounts of records whose currency cell is empty, in a file with a column for it."""
    amounts: dict[str, list[Column]] = {}
    for column in plan.grain_columns:
        if column.currency:
            amounts.setdefault(column.currency.name, []).append(column)
    for currency, columns in amounts.items():
        values = ", ".join(f"CAST({quoted(column.name)} AS VARCHAR)" for column in columns)
        empty = f"{quoted(currency)} IS NULL AND coalesce({values}) IS NOT NULL"
        [(records,)] = db.execute(
            f"SELECT count(*) FROM typed WHERE kind = {ACCEPTED} AND {empty}"
        ).fetchall()
        if records:
            header, many = plan.layout.mapping[currency], counted(records, "record")
            lost = " An earlier currency of the same rows is removed." if _replaces(plan) else ""
            return {"currency_not_named": f"{header!r} is empty in {many} with amounts.{lost}"}
    return {}


def _replaces(plan: CheckPlan) -> bool:
    return plan.pipeline.grain.upsert.name == "replace"


def _words_next_to_amounts(db: Any, x: str, source: str) -> dict[str, str]:
    """The texts next to the amounts, with one amount for each."""
    word = f"split_part({currencies.words(x)}, ':', -1)"  # of `$5.00 CAD` the closer one
    rows = db.execute(
        f"SELECT {word} AS word, min({x}) FROM {source} WHERE {word} <> '' GROUP BY ALL ORDER BY ALL"
    )
    return dict(rows.fetchall())


def _unordinary(words: dict[str, str]) -> bool:
    return any(currencies.meaning(word) != currencies.ORDINARY for word in words)
