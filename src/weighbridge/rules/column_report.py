"""After the checks: the use of each column of the file, and the expected fields that are missing."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import islice

from weighbridge.model.columns import ColumnReport, ColumnUse, MissingField
from weighbridge.model.pipeline import ComputedDefault, InHeader, Pipeline
from weighbridge.model.profile import Profile
from weighbridge.rules import dimensions
from weighbridge.rules.check_plan import CheckPlan
from weighbridge.rules.headers import Layout, find_columns, fold, listed, missing_expected, nearest, synonyms

LATE = 200  # JSON keys that first appear too late to be columns; so many are listed


def report(plan: CheckPlan, late: Iterable[str] = ()) -> ColumnReport:
    """Each column in the order of the file, the missing expected fields, and the production columns that get values.

    `late` are JSON keys that first appear too late to be columns.
    """
    layout = plan.layout
    unused = (ColumnUse(key, "unused") for key in islice(late, LATE))
    return ColumnReport(
        (*_uses(layout), *unused),
        _missing(layout, plan.pipeline, plan.profile),
        tuple(sorted(_filled(plan))),
    )


def report_of_refused(header: tuple[str, ...], pipeline: Pipeline, profile: Profile | None) -> ColumnReport:
    """The same for a file that is refused because of its columns; it fills no production column."""
    layout = find_columns(header, pipeline, profile)
    return ColumnReport(_uses(layout), _missing(layout, pipeline, profile))


def warnings(plan: CheckPlan, empty: Container[int] = ()) -> dict[str, str]:
    """Warnings about columns: code → sentence. `empty` are columns without a name and without text."""
    found = {}
    says_the_day = _says_the_day(plan)
    unused = [
        each.header or "(no name)"
        for position, each in enumerate(_uses(plan.layout))
        if each.use == "unused" and position not in empty and not says_the_day(each.header)
    ]
    if unused:
        found["unused_columns"] = (
            f"No field uses these columns, so they were not loaded: {listed(unused, 40)}."
        )
    for name, declared in plan.pipeline.fields.items():
        other = declared.otherwise
        named = name in plan.layout.mapping or name in plan.layout.constants
        if isinstance(other, InHeader) and other.of in plan.layout.mapping and not named:
            read = f"{plan.layout.mapping[other.of]!r} was read without it"
            symbol = plan.layout.symbols.get(other.of)
            cause = (
                f"the symbol {symbol!r} of the header is ambiguous"
                if symbol
                else "the file does not state it"
            )
            found[f"{declared.name}_not_named"] = (
                f"{name}: {cause}; {read}. Rows that are already in production keep their {declared.name}."
            )
    for each in _missing(plan.layout, plan.pipeline, plan.profile):
        code = each.field.removeprefix(f"{plan.pipeline.grain.name}.").replace(".", "_")
        found[f"{code}_column_not_found"] = _not_found(each)
    return found


def _says_the_day(plan: CheckPlan) -> Callable[[str], bool]:
    """A function: is this the header of the reporting period? A file with a day in each record needs no such column."""
    daily = plan.profile.daily if plan.profile else None
    names = {fold(header) for header in (*daily.starts, *daily.ends)} if daily else set()
    return lambda header: fold(header) in names


def _not_found(lost: MissingField) -> str:
    guess = f"; did you mean {lost.guess!r}?" if lost.guess else "."
    return f"{lost.field}: expected a column such as {lost.header!r}, got none{guess} Stored values do not change."


def _uses(layout: Layout) -> tuple[ColumnUse, ...]:
    fields: dict[int, list[str]] = {}
    for name, positions in layout.columns.items():
        for position in positions:
            fields.setdefault(position, []).append(name)
    return tuple(
        ColumnUse(header, "mapped", tuple(fields[position]))
        if position in fields
        else ColumnUse(header, "kept", (), "the last day of the period; must be equal to the first day")
        if position == layout.period_end
        else ColumnUse(header, "unused")
        for position, header in enumerate(layout.header)
    )


def _missing(layout: Layout, pipeline: Pipeline, profile: Profile | None) -> tuple[MissingField, ...]:
    return tuple(
        MissingField(
            name,
            synonyms(name, pipeline.fields[name], pipeline, profile)[0],
            nearest(name, layout, pipeline, profile),
        )
        for name in missing_expected(layout, pipeline, profile)
    )


def _filled(plan: CheckPlan) -> set[str]:
    """The production columns that get a value from this file, including references and derived values."""
    named = {entity.name for entity in dimensions.entities(plan)}
    found = {*plan.layout.columns, *plan.layout.constants}
    found |= {
        name
        for name, declared in plan.pipeline.fields.items()
        if isinstance(declared.otherwise, ComputedDefault) and not found.isdisjoint(declared.otherwise.fields)
    }
    for entity in plan.pipeline.entities:
        found |= {f"{entity.name}.{ref.name}" for ref in entity.refs if ref.entity in named}
        found |= {f"{entity.name}.{name}" for name in entity.key}
        found |= {f"{entity.name}.{name}" for name in dimensions.computed(entity, plan)}
    return found
