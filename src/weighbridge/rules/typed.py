"""Third of the checks: every record → its typed fields, and what kind of record it is."""

from __future__ import annotations

from weighbridge.rules.faults import own_faults
from weighbridge.rules.plan import SPACE, Locale, Plan, known, literal, quoted, stages

ACCEPTED, BLANK, TOTALS, REJECTED, NOT_DAILY, DUPLICATE = range(6)


def typed(plan: Plan, locale: Locale, source: str) -> str:
    """SELECT row_index, line, kind, the grain's fields typed, and the trimmed cells of the dimensions' fields."""
    bad = " OR ".join(f"({fault.when})" for fault in own_faults(plan)) or "false"
    empty = " AND ".join(f"{column.text} IS NULL" for column in plan.own_columns) or "true"
    values = [f"{column.value} AS {quoted(column.name)}" for column in plan.own_columns]
    # A sound record is through after the first question; the costly ones are for those that are not.
    return f"""
        SELECT row_index, line, CAST(CASE WHEN row_index = 0 OR misfit OR longer OR bad OR ({empty}) THEN CASE
                WHEN {_blank(plan)} THEN {BLANK}
                WHEN {_totals(plan)} THEN {TOTALS}
                WHEN misfit THEN {REJECTED}
                WHEN longer THEN {NOT_DAILY}
                WHEN bad THEN {REJECTED}
                ELSE {ACCEPTED} END
            ELSE {ACCEPTED} END AS UTINYINT) AS kind, {", ".join([*values, *plan.shared_cells])}
        FROM (SELECT *, {misfit(plan)} AS misfit, {_several_days(plan)} AS longer, {bad} AS bad
        FROM {stages(plan.own_columns, plan, locale, source)})"""


def misfit(plan: Plan) -> str:
    """A record with cells missing or too many; empty ones beyond the last column do no harm."""
    short = f"cells < {len(plan.layout.header)} OR " if plan.csv else ""
    return f"{short}surplus IS NOT NULL"


def _blank(plan: Plan) -> str:
    cells = [f"coalesce(trim(c{i}, {literal(SPACE)}), '') = ''" for i in range(len(plan.layout.header))]
    return " AND ".join([*cells, "surplus IS NULL"])


def _totals(plan: Plan) -> str:
    """A record without a day and with a totals label in any cell; or Meta's, which has no label but no name either."""
    profile = plan.profile
    if profile is None:
        return "false"
    required = [c for c in plan.own_columns if c.field.required]
    no_day = " OR ".join([*(f"{c.value} IS NULL" for c in required), "longer"])
    conditions = ["false"]
    if profile.totals:
        cells = ", ".join(f"c{i}" for i in range(len(plan.layout.header)))
        pattern = literal("|".join(profile.totals))
        labels = f"lambda cell: regexp_full_match(trim(cell, {literal(SPACE)}), {pattern}, 'i')"
        conditions.append(f"({no_day}) AND len(list_filter([{cells}], {labels})) > 0")
    if profile.nameless_totals and plan.shared_columns:
        nameless = " AND ".join(f"{known(f't{p}', plan)} IS NULL" for c in plan.shared_columns for p in c.cells)
        conditions.append(f"{nameless} AND (row_index = 0 OR {no_day})")
    return " OR ".join(f"({condition})" for condition in conditions)


def _several_days(plan: Plan) -> str:
    """Where a period stands in for the day: does it end on another day than it starts?"""
    daily = plan.profile.daily if plan.profile else None
    if daily is None or plan.layout.ends is None:
        return "false"
    return f"coalesce(t{plan.layout.columns[daily.field][0]} <> t{plan.layout.ends}, false)"
