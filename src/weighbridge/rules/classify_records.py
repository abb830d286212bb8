"""Third check: every record → its typed fields and its kind (accepted, blank, totals, header, rejected)."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.sheet import SPACE
from weighbridge.rules.check_plan import LAST_DAY, CheckPlan, Column, Locale, literal, quoted, stages
from weighbridge.rules.field_errors import grain_errors
from weighbridge.rules.headers import synonyms
from weighbridge.rules.normalise import TYPED
from weighbridge.rules.record_kinds import (
    ACCEPTED,
    BAD_LABEL,
    BAD_NAMELESS,
    BLANK,
    HEADER,
    LABELLED,
    LEADING,
    MISFIT,
    NAMELESS,
    NAMES,
    NOT_DAILY,
    OTHER_TABLE,
    REJECTED,
    TOTALS,
)
from weighbridge.rules.totals_rows import is_label, labelled, leading, nameless_first, totals

SYNONYMS = 2  # headers of each field with which every record is compared
_TEXT = "coalesce(array_to_string(all_cells, ''), '')"


def classified(plan: CheckPlan, locale: Locale, source: str) -> str:
    """SELECT row_index, line, kind, the typed fields of the grain, and the number of the dimensions' combination."""
    bad = " OR ".join(f"({fault.when})" for fault in grain_errors(plan)) or "false"
    empty = " AND ".join(f"{column.text} IS NULL" for column in plan.grain_columns) or "true"
    columns = [*(f"{value} AS {quoted(name)}" for name, value in plan.grain_values.items()), "combo"]
    # A valid record passes with the first condition. Only the others have `all_cells`, a list, and need the slow
    # conditions.
    return f"""
        SELECT row_index, line, CAST(CASE
            WHEN all_cells IS NOT NULL THEN CASE
                WHEN surplus IS NULL AND trim({_TEXT}, {literal(SPACE)}) = '' THEN {BLANK}
                WHEN {_header_again(plan)} THEN {HEADER}
                WHEN {_other_header(plan)} THEN {OTHER_TABLE}
                WHEN {totals(plan)} THEN {TOTALS}
                WHEN {nameless_first(plan)} THEN CASE WHEN bad OR misfit THEN {BAD_NAMELESS} ELSE {NAMELESS} END
                WHEN {leading(plan)} THEN {LEADING}
                WHEN misfit THEN {MISFIT}
                WHEN {labelled(plan)} THEN CASE WHEN bad THEN {BAD_LABEL} ELSE {LABELLED} END
                WHEN longer THEN {NOT_DAILY}
                WHEN bad THEN CASE WHEN {_names(plan)} THEN {NAMES} ELSE {REJECTED} END
                ELSE {ACCEPTED} END
            ELSE {ACCEPTED} END AS UTINYINT) AS kind, {", ".join(columns)}
        FROM (SELECT *, CASE WHEN row_index = 0 OR misfit OR longer OR bad OR ({empty}) OR {_strange(plan)}
            THEN [{", ".join(f"c{i}" for i in range(len(plan.layout.header)))}] END AS all_cells
        FROM (SELECT *, {misfit(plan)} AS misfit, {_several_days(plan)} AS longer, {bad} AS bad
        FROM {stages(plan.grain_columns, plan, locale, source)}))"""


def classify_names(db: Any) -> None:
    """A record of names where values are expected is the header of another table, or it is rejected.

    It is a header if records are above and below it, and a blank line is directly before it or before its title. A
    blank line is no evidence in a file where half of the records follow one.
    """
    accepted = f"(SELECT row_index FROM typed WHERE kind = {ACCEPTED})"
    blank = f"(SELECT row_index + 1 AS row_index FROM typed WHERE kind = {BLANK})"
    below_blank = f"SELECT count(*) FROM {accepted} SEMI JOIN {blank} USING (row_index)"
    spaced = f"2 * ({below_blank}) >= (SELECT count(*) FROM {accepted})"
    above, below = (f"(SELECT {edge}(row_index) FROM {accepted})" for edge in ("min", "max"))
    db.execute(f"""UPDATE typed SET kind = CASE WHEN before.kind = {BLANK} AND NOT ({spaced})
            AND {above} < names.row_index AND names.row_index < {below} THEN {OTHER_TABLE} ELSE {REJECTED} END
        FROM (SELECT row_index FROM typed WHERE kind = {NAMES}) AS names
        ASOF LEFT JOIN (SELECT row_index, kind FROM typed WHERE kind <> {MISFIT}) AS before
            ON names.row_index > before.row_index
        WHERE names.row_index = typed.row_index""")


def misfit(plan: CheckPlan) -> str:
    """SQL: does the record not fit the header, or could it not be read?

    In JSON also: does it have a key of a field that is not a column, as it first appears too late?
    """
    if plan.csv:
        return "fault IS NOT NULL"
    keys = ", ".join(literal(name) for name in sorted(plan.known_headers))
    return f"""CASE WHEN fault IS NOT NULL THEN true WHEN surplus IS NULL THEN false
        ELSE len(list_filter(json_keys(surplus), lambda key: fold_header(key) IN ({keys}))) > 0 END"""


def _header_again(plan: CheckPlan) -> str:
    """SQL: is every cell the name of its column?"""
    if not plan.csv:
        return "false"
    named = [(i, cell.strip().lower()) for i, cell in enumerate(plan.layout.header, 1) if cell.strip()]
    places = ", ".join(str(i) for i, _ in named)
    cells = "all_cells" if len(named) == len(plan.layout.header) else f"list_select(all_cells, [{places}])"
    # One text instead of a list: DuckDB would plan every element.
    names = literal("\n".join(name for _, name in named))
    texts = f"list_transform({cells}, lambda cell: lower(trim(cell, {literal(SPACE)})))"
    same = f"array_to_string({texts}, chr(10)) = {names}"
    return f"surplus IS NULL AND {same}" if named else "false"


def _other_header(plan: CheckPlan) -> str:
    """SQL: are half of its cells, and at least two, known column names, without a digit in any cell?"""
    if not plan.csv:
        return "false"
    # One text instead of a list: DuckDB would plan every element. Folded names consist of letters and digits.
    known = literal(f"|{'|'.join(sorted(plan.known_headers))}|")
    return f"""(NOT regexp_matches({_TEXT}, '[0-9]') AND list_transform(
        [list_filter(all_cells, lambda cell: trim(cell) <> '')], lambda filled: list_transform(
            [len(list_filter(filled, lambda cell: contains({known}, '|' || fold_header(cell) || '|')))],
            lambda names: names >= 2 AND 2 * names >= len(filled))[1])[1])"""


def _names(plan: CheckPlan) -> str:
    """SQL: two or more different cells, each with a letter and without `@`, and no readable number or date.

    If only one number or date is expected: three or more cells without a digit, as `A2,Ann,unknown` is a record.
    """
    expected = [column for column in plan.grain_columns if column.field.type not in (str, bool)]
    if not plan.csv or not expected:
        return "false"
    words = " + ".join(f"({column.text} IS NOT NULL)::INT" for column in expected)
    values = ", ".join(f"CAST({column.value} AS VARCHAR)" for column in expected)
    fewest = 2 if len(expected) > 1 else 3
    filled = "list_filter(all_cells, lambda cell: trim(cell) <> '')"
    named = "list_filter(filled, lambda cell: regexp_matches(cell, '^[^@]*[A-Za-z[:^ascii:]][^@]*$'))"
    return f"""(coalesce({values}) IS NULL AND {words} > regexp_matches({_TEXT}, '[0-9]')::INT
        AND list_transform([{filled}], lambda filled: len(filled) >= {fewest}
            AND len(list_distinct(filled)) = len(filled) AND len({named}) = len(filled))[1])"""


def _strange(plan: CheckPlan) -> str:
    """SQL, fast: may a valid record be a header or a row of totals?"""
    required = plan.required_columns
    labels = [is_label(c.text) for c in required if c.field.type is str] if plan.profile is None else []
    # A header is no number or date: if one is required, a header is never a valid record.
    again = [] if any(_reads_no_name(column) for column in required) else _names_a_column(plan)
    return " OR ".join([*again, *labels]) or "false"


def _reads_no_name(column: Column) -> bool:
    """Is a ready-made rule for numbers, dates or times its only rule? It never accepts the name of a column."""
    if column.field.type in (str, bool) or len(column.steps) != 1:
        return False
    return any(column.steps[0].expression == rule.expression for rule in TYPED[column.field.type])


def _names_a_column(plan: CheckPlan) -> list[str]:
    """SQL, fast: is the first cell of the grain the name of a column?"""
    first = min((p for column in plan.grain_columns for p in column.cells), default=0)
    found = {*plan.layout.header}
    for name, declared in plan.pipeline.fields.items():
        found |= set(synonyms(name, declared, plan.pipeline, plan.profile)[:SYNONYMS])
    # In a list of search terms, `keyword` may be a search term.
    exact = plan.pipeline.headerless
    cell = f"c{first}" if exact else f"lower(t{first})"
    names = sorted({name if exact else name.strip().lower() for name in found} - {""})
    return [f"{cell} IN ({', '.join(map(literal, names))})"] if plan.csv and names else []


def _several_days(plan: CheckPlan) -> str:
    """SQL: if a period replaces the day, does it have more than one day?"""
    return f"coalesce({LAST_DAY} <> {plan.period[0].value}, false)" if plan.period else "false"
