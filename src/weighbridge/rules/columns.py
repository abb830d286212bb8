"""Beside the checks: what became of each column of the file, and which expected fields it lacks."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import islice

from weighbridge.model.columns import ColumnReport, ColumnUse, MissingField
from weighbridge.model.pipeline import InHeader, OrMade, Pipeline
from weighbridge.model.profile import Profile
from weighbridge.rules import dimensions
from weighbridge.rules.headers import Layout, fold, lay_out, listed, missing, nearest, synonyms
from weighbridge.rules.plan import Plan

LATE = 200  # keys of JSON that come too late to be columns, and are listed


def report(plan: Plan, late: Iterable[str] = ()) -> ColumnReport:
    """Each column in the order of the file, the expected fields that are missing, and what the file fills.

    `late` are keys of JSON that come too late to be columns.
    """
    layout = plan.layout
    unused = (ColumnUse(key, "unused") for key in islice(late, LATE))
    return ColumnReport(
        (*_uses(layout), *unused),
        _missing(layout, plan.pipeline, plan.profile),
        tuple(sorted(_filled(plan))),
    )


def report_of_refused(header: tuple[str, ...], pipeline: Pipeline, profile: Profile | None) -> ColumnReport:
    """The same of a file that is refused for its columns; it fills nothing."""
    layout = lay_out(header, pipeline, profile)
    return ColumnReport(_uses(layout), _missing(layout, pipeline, profile))


def warnings(plan: Plan, empty: Container[int] = ()) -> dict[str, str]:
    """What people should know of the columns: code → sentence. `empty` are columns with neither a name nor text."""
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
            says = f"several have the {symbol!r} of the header" if symbol else "the file names none"
            found[f"{declared.name}_not_named"] = (
                f"{name}: {says}; {read}. Rows that are already in production keep theirs."
            )
    for each in _missing(plan.layout, plan.pipeline, plan.profile):
        code = each.field.removeprefix(f"{plan.pipeline.grain.name}.").replace(".", "_")
        found[f"{code}_column_not_found"] = _not_found(each)
    return found


def _says_the_day(plan: Plan) -> Callable[[str], bool]:
    """Tells of a header whether its column has the report's period, which a file with a day in each record repeats."""
    daily = plan.profile.daily if plan.profile else None
    names = {fold(header) for header in (*daily.starts, *daily.ends)} if daily else set()
    return lambda header: fold(header) in names


def _not_found(lost: MissingField) -> str:
    guess = f"; did you mean {lost.guess!r}? It" if lost.guess else "; it"
    return f"{lost.field}: expected a column such as {lost.header!r}, got none{guess} is left as it was."


def _uses(layout: Layout) -> tuple[ColumnUse, ...]:
    fields: dict[int, list[str]] = {}
    for name, positions in layout.columns.items():
        for position in positions:
            fields.setdefault(position, []).append(name)
    return tuple(
        ColumnUse(header, "mapped", tuple(fields[position]))
        if position in fields
        else ColumnUse(header, "kept", (), "the last day of the period; it must be the first day, too")
        if position == layout.ends
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
        for name in missing(layout, pipeline, profile)
    )


def _filled(plan: Plan) -> set[str]:
    """The columns of production that get a value from this file, refs and made values included."""
    named = {entity.name for entity in dimensions.entities(plan)}
    found = {*plan.layout.columns, *plan.layout.constants}
    found |= {
        name
        for name, declared in plan.pipeline.fields.items()
        if isinstance(declared.otherwise, OrMade) and not found.isdisjoint(declared.otherwise.fields)
    }
    for entity in plan.pipeline.entities:
        found |= {f"{entity.name}.{ref.name}" for ref in entity.refs if ref.entity in named}
        found |= {f"{entity.name}.{name}" for name in entity.key}
        found |= {f"{entity.name}.{name}" for name in dimensions.made(entity, plan)}
    return found
