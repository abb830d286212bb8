"""Third of the checks: every record → its typed fields, and what kind of record it is."""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.rules.faults import own_faults
from weighbridge.rules.plan import LAST_DAY, SPACE, Locale, Plan, literal, quoted, stages

ACCEPTED, BLANK, TOTALS, REJECTED, NOT_DAILY, DUPLICATE, LEADING = range(7)


def typed(plan: Plan, locale: Locale, source: str) -> str:
    """SELECT row_index, line, kind, the grain's fields typed, and the number of the dimensions' cells."""
    bad = " OR ".join(f"({fault.when})" for fault in own_faults(plan)) or "false"
    empty = " AND ".join(f"{column.text} IS NULL" for column in plan.own_columns) or "true"
    columns = [*(f"{value} AS {quoted(name)}" for name, value in plan.own_values.items()), "combo"]
    # A sound record is through after the first question; the costly ones are for those that are not.
    return f"""
        SELECT row_index, line, CAST(CASE WHEN row_index = 0 OR misfit OR longer OR bad OR ({empty}) THEN CASE
                WHEN {_blank(plan)} THEN {BLANK}
                WHEN {_totals(plan)} THEN {TOTALS}
                WHEN {_leading(plan)} THEN {LEADING}
                WHEN misfit THEN {REJECTED}
                WHEN longer THEN {NOT_DAILY}
                WHEN bad THEN {REJECTED}
                ELSE {ACCEPTED} END
            ELSE {ACCEPTED} END AS UTINYINT) AS kind, {", ".join(columns)}
        FROM (SELECT *, {misfit(plan)} AS misfit, {_several_days(plan)} AS longer, {bad} AS bad
        FROM {stages(plan.own_columns, plan, locale, source)})"""


def settle_leading(db: Any) -> None:
    """Where all records before it are such too, it is an aggregate; else a record that lacks its key."""
    others = f"SELECT min(row_index) FROM typed WHERE kind NOT IN ({LEADING}, {BLANK})"
    db.execute(f"""UPDATE typed SET kind = CASE WHEN row_index < coalesce(({others}), row_index + 1)
            THEN {TOTALS} ELSE {REJECTED} END
        WHERE kind = {LEADING}""")


def misfit(plan: Plan) -> str:
    """A record that does not fit the header or could not be read.

    In JSON also one with a key that came too late to be a column and is a field's.
    """
    if plan.csv:
        return "fault IS NOT NULL"
    keys = ", ".join(literal(name) for name in sorted(plan.known_headers))
    return f"""CASE WHEN fault IS NOT NULL THEN true WHEN surplus IS NULL THEN false
        ELSE len(list_filter(json_keys(surplus), lambda key: fold_header(key) IN ({keys}))) > 0 END"""


def _blank(plan: Plan) -> str:
    cells = ", ".join(f"c{i}" for i in range(len(plan.layout.header)))
    return f"surplus IS NULL AND trim(concat({cells}), {literal(SPACE)}) = ''"


def _totals(plan: Plan) -> str:
    """A record without a day and with a totals label in any cell; or Meta's, with neither label nor name."""
    profile = plan.profile
    if profile is None:
        return "false"
    required = _required(plan)
    no_day = ["longer", *(f"{day} IS NULL" for day in required)]
    conditions = ["false"]
    if profile.totals:
        label = f"(?im)^[ \\t]*(?:{'|'.join(profile.totals)})[ \\t\\r]*$"
        instead = [f"regexp_matches({day}, {literal(label)})" for day in required]
        cells = ", ".join(f"c{i}" for i in range(len(plan.layout.header)))
        # A cell a line: the dot of a pattern stays in its cell.
        anywhere = f"regexp_matches(concat_ws(chr(10), {cells}), {literal(label)})"
        conditions.append(f"({' OR '.join([*no_day, *instead])}) AND {anywhere}")
    if profile.nameless_totals and plan.shared_columns:
        nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
        nameless = " AND ".join(
            f"coalesce(trim(c{p}, {literal(SPACE)}), '') IN ({nulls})" for p in plan.shared_positions
        )
        figures = _any_figure(plan)
        # Of all days when it stands first; of several, or of none, when it was moved.
        when = " OR ".join(["row_index = 0", *no_day])
        conditions.append(f"{nameless} AND ({figures}) AND ({when})")
    return " OR ".join(f"({condition})" for condition in conditions)


def _leading(plan: Plan) -> str:
    """An aggregate at the beginning of the file: figures of no key."""
    keyless = " AND ".join(f"{text} IS NULL" for text in _required(plan)) or "false"
    return f"row_index < {plan.pipeline.leading_totals} AND {keyless} AND ({_any_figure(plan)})"


def _required(plan: Plan) -> list[str]:
    return [column.text for column in plan.own_columns if column.name in plan.pipeline.required]


def _any_figure(plan: Plan) -> str:
    return " OR ".join(f"{c.value} IS NOT NULL" for c in plan.own_columns if c.numeric) or "false"


def _several_days(plan: Plan) -> str:
    """Where a period stands in for the day: does it end on another day than it starts?"""
    return f"coalesce({LAST_DAY} <> {plan.period[0].value}, false)" if plan.period else "false"
