"""Last of the checks: a sentence for every refused record, and its cells as the file has them."""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from weighbridge.model.sheet import FAULTS
from weighbridge.rules.facts import stored
from weighbridge.rules.faults import faults
from weighbridge.rules.plan import Locale, Plan, literal, stages
from weighbridge.rules.typed import REJECTED, misfit


def rejections(plan: Plan, locale: Locale, source: str, *, repeated: bool) -> str:
    """SELECT row_index, line, column_name, code, message, more, raw of the rejected records of `source`."""
    conflicts = "SELECT row_index, other_line FROM judged WHERE conflict" if repeated else "SELECT NULL, NULL"
    refused = f"""(SELECT sheet.*, other_line
        FROM {source} AS sheet
        SEMI JOIN (SELECT row_index FROM typed WHERE kind = {REJECTED}) AS refused USING (row_index)
        LEFT JOIN ({conflicts}) AS conflicts(row_index, other_line) USING (row_index))"""
    found = ", ".join(fault.struct for fault in faults(plan))
    return f"""
        SELECT row_index, line, faults[1].column_name AS column_name, faults[1].code AS code,
            faults[1].message AS message, [fault.message FOR fault IN faults[2:]] AS more, raw
        FROM (SELECT row_index, line, {_raw(plan)} AS raw, CASE
            WHEN fault IS NOT NULL THEN [{_unreadable()}]
            WHEN {misfit(plan)} THEN [{_wrong_cell_count(plan)}]
            WHEN other_line IS NOT NULL THEN [{_conflicting_repeat(plan)}]
            ELSE [fault FOR fault IN [{found}] IF fault IS NOT NULL] END AS faults
        FROM {stages(plan.columns, plan, locale, refused)})
        ORDER BY row_index"""


def _unreadable() -> str:
    sentences = " ".join(f"WHEN {literal(code)} THEN {literal(text)}" for code, text in FAULTS.items())
    return f"{{'column_name': NULL::VARCHAR, 'code': fault, 'message': CASE fault {sentences} END}}"


def _wrong_cell_count(plan: Plan) -> str:
    if not plan.csv:
        got = "'something else'" if plan.pipeline.personal else "surplus[:60]"
        return _record_fault(
            "not_a_record",
            f"'Expected an object with the keys of the first records, got ' || {got} ||"
            " ' (line ' || line || ').'",
        )
    expected = f"Expected {len(plan.layout.header)} cells as in the header, got "
    return _record_fault(
        "wrong_cell_count",
        f"{literal(expected)} || cells || ' (line ' || line || '). Check its quotes and separators.'",
    )


def _conflicting_repeat(plan: Plan) -> str:
    *others, last = (
        name.removesuffix("_id").replace("_", " ") for name in plan.pipeline.grain.key if stored(plan, name)
    )
    key = f"{', '.join(others)} and {last}" if others else last
    return _record_fault(
        "conflicting_repeat",
        f"{literal(f'Expected one record for each {key}, got another with other values on line ')}"
        " || other_line || ' (line ' || line || '). Keep the right one.'",
    )


def _record_fault(code: str, message: str) -> str:
    return f"{{'column_name': NULL::VARCHAR, 'code': {literal(code)}, 'message': {message}}}"


def _raw(plan: Plan) -> str:
    cells = f"[{', '.join(f'c{i}' for i in range(len(plan.layout.header)))}]"
    kept = f"{cells}[:cells]" if plan.csv else cells
    return f"CASE WHEN surplus IS NULL THEN {kept} ELSE list_append({cells}, surplus) END"
