"""Last check: code and message of each rejected record, with its original cells."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.model.sheet import FAULTS
from weighbridge.rules import clock_changes
from weighbridge.rules.accepted_rows import grain_column
from weighbridge.rules.check_plan import CheckPlan, Column, Locale, literal, stages
from weighbridge.rules.classify_records import misfit
from weighbridge.rules.field_errors import faults
from weighbridge.rules.record_kinds import REJECTED


def rejections(
    plan: CheckPlan, locale: Locale, source: str, *, repeats_rejected: bool, clocks: Sequence[Column] = ()
) -> str:
    """SELECT row_index, line, column_name, code, message, more, raw of the rejected records of `source`.

    `clocks` are the columns with times that do not exist, or exist twice, in their time zone.
    """
    found_wrong = "SELECT NULL, NULL, [''], NULL, NULL"
    if repeats_rejected:
        found_wrong = "SELECT row_index, other_line, columns, breakdown, unclear FROM rejected_repeats"
    refused = f"""(SELECT sheet.*, other_line, differing, breakdown, unclear
        FROM {source} AS sheet
        SEMI JOIN (SELECT row_index FROM typed WHERE kind = {REJECTED}) AS refused USING (row_index)
        LEFT JOIN ({found_wrong}) AS repeats(row_index, other_line, differing, breakdown, unclear)
            USING (row_index))"""
    of_clocks = [fault for column in clocks for fault in clock_changes.faults(column)]
    found = ", ".join([*(fault.struct(locale) for fault in [*faults(plan), *of_clocks]), _repeat(plan)])
    return f"""
        SELECT row_index, line, faults[1].column_name AS column_name, faults[1].code AS code,
            faults[1].message AS message, [fault.message FOR fault IN faults[2:]] AS more, raw
        FROM (SELECT row_index, line, {_raw(plan)} AS raw, CASE
            WHEN {misfit(plan)} THEN [{_unreadable(plan)}]
            ELSE coalesce(nullif([fault FOR fault IN [{found}] IF fault IS NOT NULL], []), [{_LIKE_TOTALS}])
            END AS faults
        FROM {stages(plan.columns, plan, locale, refused)})
        ORDER BY row_index"""


# SQL: the message with the first key that a record has twice; NULL if only a nested object has a key twice.
_KEY_TWICE = (
    "'Expected every key once, got ''' || list_filter(json_keys(surplus), "
    "lambda key: len(list_filter(json_keys(surplus), lambda other: other = key)) > 1)[1][:60] || ''' twice'"
)


def _unreadable(plan: CheckPlan) -> str:
    """The error of a record that does not fit. The message shows its text only if it has no personal data."""
    line = "' (line ' || line || ').'"
    shown = "" if plan.pipeline.personal or plan.csv else " || ', got ' || surplus[:60]"
    special = {
        "wrong_cell_count": f"'Expected {len(plan.layout.header)} cells as in the header, got ' || cells",
        "duplicate_key": f"coalesce({_KEY_TWICE}, {literal(FAULTS['duplicate_key'][0])})",
    }
    sentences = []
    for code, (what, hint) in FAULTS.items():
        message = special.get(code, f"{literal(what)}{shown}")
        tail = f" || {literal(f' {hint}')}" if hint else ""
        sentences.append(f"WHEN {literal(code)} THEN {message} || {line}{tail}")
    late = f"'It has a key that is not in the first 1,000 records'{shown} || {line}"
    message = f"CASE fault {' '.join(sentences)} ELSE {late} END"
    return f"{{'column_name': NULL::VARCHAR, 'code': coalesce(fault, 'late_key'), 'message': {message}}}"


def _repeat(plan: CheckPlan) -> str:
    """SQL: the error of a record that conflicts with others of its key; NULL if there is none."""
    return f"""CASE WHEN differing IS NULL THEN NULL WHEN unclear THEN {_UNCLEAR_BREAKDOWN}
        WHEN breakdown THEN {_INCOMPLETE_BREAKDOWN}
        ELSE {_conflicting_repeat(plan)} END"""


def _conflicting_repeat(plan: CheckPlan) -> str:
    *others, last = (
        name.removesuffix("_id").replace("_", " ")
        for name in plan.pipeline.grain.key
        if grain_column(plan, name)
    )
    key = f"{', '.join(others)} and {last}" if others else last
    return _record_error(
        "conflicting_repeat",
        f"{literal(f'Expected one record for each {key}, got another on line ')} || other_line"
        " || CASE WHEN differing = [] THEN ', which was rejected'"
        " ELSE ', which differs in ' || array_to_string(differing, ', ') END || ' (line ' || line || ').'"
        " || ' None of them was loaded. Check which one is correct.'",
    )


_INCOMPLETE_BREAKDOWN = """{'column_name': NULL::VARCHAR, 'code': 'incomplete_breakdown', 'message':
    'Expected every part of the sum to be valid, got an invalid part on line ' || other_line || ' (line ' || line
    || '). Fix that part and load all parts together.'}"""
_UNCLEAR_BREAKDOWN = """{'column_name': NULL::VARCHAR, 'code': 'unclear_breakdown', 'message':
    'Expected parts that can be added up, got a record on line ' || other_line || ' that may be their total (line '
    || line || '). If it is a part without a name, give it a name. Otherwise correct the figures, or export the file '
    'again without the breakdown.'}"""
_LIKE_TOTALS = """{'column_name': NULL::VARCHAR, 'code': 'looks_like_totals', 'message':
    'Expected a record, got a row that looks like totals (line ' || line || '). '
    'If it is a record, load the rejects file with this row unchanged.'}"""


def _record_error(code: str, message: str) -> str:
    return f"{{'column_name': NULL::VARCHAR, 'code': {literal(code)}, 'message': {message}}}"


def _raw(plan: CheckPlan) -> str:
    cells = f"[{', '.join(f'c{i}' for i in range(len(plan.layout.header)))}]"
    kept = f"{cells}[:cells]" if plan.csv else cells
    return f"CASE WHEN surplus IS NULL THEN {kept} ELSE list_append({cells}, surplus) END"
