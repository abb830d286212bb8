"""Third of the checks: every record → its typed fields, and what kind of record it is."""

from __future__ import annotations

from weighbridge.rules.faults import faults
from weighbridge.rules.plan import SPACE, Locale, Plan, duck_type, literal, quoted, stages

ACCEPTED, BLANK, TOTALS, REJECTED, NOT_DAILY, DUPLICATE = range(6)


def typed(plan: Plan, locale: Locale, source: str) -> str:
    """SELECT row_index, line, kind and every field of the file, typed."""
    bad = " OR ".join(f"({fault.when})" for fault in faults(plan)) or "false"
    fields = [f"TRY_CAST({c.value} AS {duck_type(c.field)}) AS {quoted(c.name)}" for c in plan.columns]
    fields += [f"{quoted(f'{name}~')}" for name in plan.folded]
    return f"""
        SELECT row_index, line, CAST(CASE
            WHEN {_blank(plan)} THEN {BLANK}
            WHEN {_totals(plan)} THEN {TOTALS}
            WHEN {misfit(plan)} THEN {REJECTED}
            WHEN {_several_days(plan)} THEN {NOT_DAILY}
            WHEN {bad} THEN {REJECTED}
            ELSE {ACCEPTED} END AS UTINYINT) AS kind, {", ".join(fields)}
        FROM {stages(plan, locale, source)}"""


def misfit(plan: Plan) -> str:
    """A record with cells missing or too many; empty ones beyond the last column do no harm."""
    width = len(plan.layout.header)
    return f"cells < {width} OR surplus IS NOT NULL" if plan.csv else "surplus IS NOT NULL"


def _blank(plan: Plan) -> str:
    """Cheap conditions first: the cells themselves are looked at where no field has text."""
    texts = [f"{column.text} IS NULL" for column in plan.columns]
    cells = [f"coalesce(trim(c{i}, {literal(SPACE)}), '') = ''" for i in range(len(plan.layout.header))]
    return " AND ".join([*texts, *cells, "surplus IS NULL"])


def _totals(plan: Plan) -> str:
    """A record that is no day's, with a totals label in any cell; or Meta's, which has no label but no name either."""
    profile = plan.profile
    if profile is None or not (profile.totals or profile.nameless_totals):
        return "false"
    anchors = [c for c in plan.columns if c.field.required and (not profile.daily or c.name == profile.daily.field)]
    no_day = " OR ".join([*(f"{c.value} IS NULL" for c in anchors), _several_days(plan)])
    conditions = []
    if profile.totals:
        cells = ", ".join(f"c{i}" for i in range(len(plan.layout.header)))
        pattern = literal("|".join(profile.totals))
        found = f"lambda cell: regexp_full_match(trim(cell, {literal(SPACE)}), {pattern}, 'i')"
        conditions.append(f"({no_day}) AND len(list_filter([{cells}], {found})) > 0")
    if profile.nameless_totals:
        grain = f"{plan.pipeline.grain.name}."
        names = [f"{c.text} IS NULL" for c in plan.columns if not c.name.startswith(grain)]
        conditions.append(f"{' AND '.join(names)} AND (row_index = 0 OR {no_day})")
    return " OR ".join(f"({condition})" for condition in conditions)


def _several_days(plan: Plan) -> str:
    """Where a period stands in for the day: does it end on another day than it starts?"""
    daily = plan.profile.daily if plan.profile else None
    if daily is None or plan.layout.ends is None:
        return "false"
    start, end = f"t{plan.layout.columns[daily.field][0]}", f"t{plan.layout.ends}"
    return f"{start} <> {end}"
