"""Called by classify_records.py, dimensions.py and rejection_messages.py: the possible errors of each field.

Each has a condition (SQL), a code and a message, in the order of the columns in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from weighbridge.model.pipeline import Entity, NamePath
from weighbridge.model.rule import Reason
from weighbridge.rules import record_currency
from weighbridge.rules.check_plan import LAST_DAY, CheckPlan, Column, Locale, filled, literal, quoted

# SQL: certainly no personal data, but a mistyped amount or date.
_A_FIGURE = (
    "length({x}) <= 24 AND NOT contains({x}, '@')"
    " AND length(regexp_replace({x}, '[^0-9]', '', 'g')) BETWEEN 1 AND 8"
    r" AND length(regexp_replace({x}, '\P{{L}}', '', 'g')) <= 3"
)


@dataclass(frozen=True)
class FieldError:
    """`when` is SQL over the stages of check_plan.py. A record reports its first error, then the others."""

    column: Column
    when: str
    code: str
    expected: str
    hint: str = ""
    reasons: tuple[Reason, ...] = ()

    def struct(self, locale: Locale) -> str:
        """SQL for {column_name, code, message}; NULL for a record without this error."""
        closer = []
        for reason in self.reasons:
            looks = f"regexp_full_match({self.column.text}, {literal(reason.pattern)})"
            if reason.when:
                looks += f" AND {filled(reason.when, self.column.text, locale)}"
            sentence = self._sentence(reason.expected, reason.hint, reason.value)
            closer.append(f"WHEN {looks} THEN {self._struct(reason.code, sentence)}")
        found = self._struct(self.code, self._sentence(self.expected, self.hint))
        if closer:
            found = f"CASE {' '.join(closer)} ELSE {found} END"
        return f"CASE WHEN {self.when} THEN {found} END"

    def _struct(self, code: str, sentence: str) -> str:
        header = literal(self.column.header)
        return f"{{'column_name': {header}, 'code': {literal(code)}, 'message': {sentence}}}"

    def _sentence(self, expected: str, hint: str, value: str = "") -> str:
        text = self.column.text
        shown = f"CASE WHEN length({text}) > 60 THEN {text}[:60] || '…' ELSE {text} END"
        got = (
            f"CASE WHEN {text} IS NULL THEN 'nothing' WHEN {self._hidden} THEN 'something else'"
            f" ELSE '''' || {shown} || '''' END"
        )
        tail = literal(f"). {hint}" if hint else ").")
        start = literal(f"{self.column.label}: expected {expected}, got ")
        if value:
            start = f"replace({start}, '{{value}}', {value})"
        return f"{start} || {got} || ' (line ' || line || {tail}"

    @property
    def _hidden(self) -> str:
        """SQL: may the cell contain personal data? Then the message does not show it."""
        if self.column.field.personal:
            return "true"
        return f"NOT ({_A_FIGURE.format(x=self.column.text)})" if self.column.beside_people else "false"


def faults(plan: CheckPlan) -> list[FieldError]:
    """All possible errors."""
    return sorted([*grain_errors(plan), *dimension_errors(plan)], key=lambda fault: fault.column.cells)


def grain_errors(plan: CheckPlan) -> list[FieldError]:
    """The errors of the grain's columns."""
    found = [fault for column in plan.grain_columns for fault in _of_column(column, plan)]
    if plan.period:
        _, last = plan.period
        found.append(FieldError(last, f"{last.text} IS NULL", "missing_value", "a value"))
        found.append(
            FieldError(last, f"{last.text} IS NOT NULL AND {LAST_DAY} IS NULL", "bad_date", "a date")
        )
    return found


def dimension_errors(plan: CheckPlan) -> list[FieldError]:
    """The errors of the dimensions' columns."""
    found = [fault for column in plan.dimension_columns for fault in _of_column(column, plan)]
    for entity in plan.pipeline.dimensions:
        found += _of_key(entity, plan)
    return found


def _of_column(column: Column, plan: CheckPlan) -> Iterator[FieldError]:
    first = next(
        each for each in plan.columns if each.cells == column.cells
    )  # several fields may have the same header: only the first reports
    for i, copy in enumerate(column.cells[1:] if column is first else ()):
        yield FieldError(
            column,
            quoted(f"{column.name}!{i}"),
            "columns_disagree",
            f"the same in every column {plan.layout.header[copy]!r}",
            "Remove the wrong column.",
        )
    if column.name in plan.pipeline.required and not column.field.otherwise:
        yield FieldError(column, f"{column.text} IS NULL", "missing_value", "a value")
    for level, step in enumerate(column.steps):
        if step.code:
            before, after = column.stage(level), column.stage(level + 1)
            when = f"{before} IS NOT NULL AND {after} IS NULL"
            yield FieldError(column, when, step.code, step.expected, step.hint, tuple(step.reasons))
    yield from _of_currency(column, plan)
    yield from _beyond_column(column, plan)
    for rule in column.field.validate:
        predicate = plan.with_others(rule.predicate)
        when = f"NOT ({filled(predicate, column.value, Locale(), plan.today)})"
        yield FieldError(column, when, rule.code, rule.expected, rule.hint)


def _of_currency(column: Column, plan: CheckPlan) -> Iterator[FieldError]:
    """A currency column that contradicts the header of an amount."""
    if column.field.type is not str:
        return
    hint = "Correct the header or the cell."
    if header := record_currency.expected_currency(column.name, plan.pipeline, plan.layout):
        expected = f"{header.code}, as stated by the {header.stated_by}"
        yield FieldError(
            column, f"{column.value} <> {literal(header.code)}", "currency_differs", expected, hint
        )
    elif fitting := record_currency.possible_currencies(column.name, plan.pipeline, plan.layout):
        amount_header, codes = fitting
        differs = f"length({column.value}) = 3 AND {column.value} NOT IN ({', '.join(map(literal, codes))})"
        expected = f"a currency that fits the header {amount_header!r}"
        yield FieldError(column, differs, "currency_differs", expected, hint)


def _beyond_column(column: Column, plan: CheckPlan) -> Iterator[FieldError]:
    """Values that the production column would round or refuse."""
    x, hint = (
        plan.grain_values.get(column.name, column.value),
        "Change the value, or give the column a wider type.",
    )
    for when, code, expected in beyond(column, plan, x):
        yield FieldError(column, when, code, expected, hint)


def beyond(column: Column, plan: CheckPlan, x: str) -> Iterator[tuple[str, str, str]]:
    """(condition, code, expected): when the production column cannot hold the value `x` (SQL)."""
    limits = plan.column_limits.get(column.name)
    if limits is None:
        return
    because = f", as its column is {limits.sql_type}"
    if limits.max_length is not None:
        expected = f"at most {limits.max_length} characters{because}"
        yield f"length({x}) > {limits.max_length}", "too_long", expected
    if limits.places is not None:
        if column.field.type is datetime:
            finer = f"epoch_us({x}) % {10 ** (6 - limits.places)} <> 0"
            expected = f"at most {limits.places} decimal places of a second{because}"
        else:
            finer = f"{x} <> round({x}, {limits.places})"
            expected = f"at most {limits.places} decimal places" if limits.places else "a whole number"
            expected += because
        yield finer, "too_many_digits", expected
    if limits.below is not None:
        expected = f"a number between -{limits.below} and {limits.below}{because}"
        yield f"abs({x}) >= {limits.below}", "too_many_digits", expected
    if limits.least is not None and limits.most is not None:
        expected = f"a number from {limits.least} to {limits.most}{because}"
        yield f"{x} NOT BETWEEN {limits.least} AND {limits.most}", "out_of_range", expected
    if limits.digits is not None:
        written = f"trim(replace(CAST(abs({x}) AS VARCHAR), '.', ''), '0')"
        expected = f"at most {limits.digits} significant digits{because}"
        yield f"length({written}) > {limits.digits}", "too_many_digits", expected


def _of_key(entity: Entity, plan: CheckPlan) -> Iterator[FieldError]:
    """An id that can be built from names: the id is required if the file has a column for it, otherwise the name is."""
    columns = {column.name: column for column in plan.columns}
    for declared in entity.fields:
        if not isinstance(declared.otherwise, NamePath):
            continue
        own, name = columns.get(f"{entity.name}.{declared.name}"), columns.get(declared.otherwise.names[-1])
        if own and declared.required:
            yield FieldError(own, f"{own.text} IS NULL", "missing_value", "a value")
        elif own and name:
            when = f"{own.text} IS NULL AND {name.text} IS NOT NULL"
            yield FieldError(own, when, "missing_value", "an id, because the record has a name")
        elif name and declared.required:
            yield FieldError(name, f"{name.text} IS NULL", "missing_value", "a name")
