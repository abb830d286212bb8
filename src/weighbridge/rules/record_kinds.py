"""Third of the checks: every record → its typed fields, and what kind of record it is."""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.space import SPACE
from weighbridge.rules.faults import own_faults
from weighbridge.rules.headers import synonyms
from weighbridge.rules.normalise import TYPED
from weighbridge.rules.plan import LAST_DAY, Column, Locale, Plan, literal, quoted, stages

ACCEPTED, BLANK, TOTALS, REJECTED, NOT_DAILY, DUPLICATE, LEADING, HEADER, OTHER_TABLE, LABELLED = range(10)
NAMES, MISFIT = 10, 11  # until settle_names
BAD_LABEL = 12  # LABELLED, and it cannot be a record: a label is no date and no number
NAMELESS, BAD_NAMELESS = 13, 14  # until settle_nameless: the first record, with a day and without any name

# A cell that says that its row adds up others; a profile may have its own.
TOTALS_LABELS = (
    r"(?:grand |sub[- ]?|over ?all |sous[- ])?totals?(?: amount| g[eé]n[eé]ral| geral)?:?",
    r"sum(?:me|a)?:?|(?:gesamt|total|zwischen)(?:summe|betrag)?:?|insgesamt:?|(?:sub)?totale?:?|totaux:?|totaal:?",
    r"razem:?|łącznie:?|celkem:?|toplam:?|итого:?|всего:?|合計|总计|總計|小计|小計|합계|총계",
    r"total(?: of|:)? [0-9.,]+ [^0-9]+|(?:results?|ergebnisse?|r[eé]sultats?|risultati|resultados|resultaten) "
    r"(?:from|of|aus|von|de|da|di|van|uit) [0-9.,]+ [^0-9]+",
)
SYNONYMS = 2  # of each field: every record is compared with them
_TEXT = "coalesce(array_to_string(all_cells, ''), '')"
_NO_WORDS = r"(?:[A-Z]{3} ?)?[^\p{L}]*(?: ?[A-Z]{3})?"  # a figure, perhaps with its currency


def typed(plan: Plan, locale: Locale, source: str) -> str:
    """SELECT row_index, line, kind, the grain's fields typed, and the number of the dimensions' cells."""
    bad = " OR ".join(f"({fault.when})" for fault in own_faults(plan)) or "false"
    empty = " AND ".join(f"{column.text} IS NULL" for column in plan.own_columns) or "true"
    columns = [*(f"{value} AS {quoted(name)}" for name, value in plan.own_values.items()), "combo"]
    # A sound record is through after the first question; the costly ones are for those that are not. Only these have
    # `all_cells`, a list.
    return f"""
        SELECT row_index, line, CAST(CASE
            WHEN all_cells IS NOT NULL THEN CASE
                WHEN surplus IS NULL AND trim({_TEXT}, {literal(SPACE)}) = '' THEN {BLANK}
                WHEN {_header_again(plan)} THEN {HEADER}
                WHEN {_other_header(plan)} THEN {OTHER_TABLE}
                WHEN {_totals(plan)} THEN {TOTALS}
                WHEN {_nameless_first(plan)} THEN CASE WHEN bad OR misfit THEN {BAD_NAMELESS} ELSE {NAMELESS} END
                WHEN {_leading(plan)} THEN {LEADING}
                WHEN misfit THEN {MISFIT}
                WHEN {_labelled(plan)} THEN CASE WHEN bad THEN {BAD_LABEL} ELSE {LABELLED} END
                WHEN longer THEN {NOT_DAILY}
                WHEN bad THEN CASE WHEN {_names(plan)} THEN {NAMES} ELSE {REJECTED} END
                ELSE {ACCEPTED} END
            ELSE {ACCEPTED} END AS UTINYINT) AS kind, {", ".join(columns)}
        FROM (SELECT *, CASE WHEN row_index = 0 OR misfit OR longer OR bad OR ({empty}) OR {_strange(plan)}
            THEN [{", ".join(f"c{i}" for i in range(len(plan.layout.header)))}] END AS all_cells
        FROM (SELECT *, {misfit(plan)} AS misfit, {_several_days(plan)} AS longer, {bad} AS bad
        FROM {stages(plan.own_columns, plan, locale, source)}))"""


def settle_leading(db: Any) -> None:
    """Where all records before it are such too, it is an aggregate; else a record that lacks its key."""
    others = f"SELECT min(row_index) FROM typed WHERE kind NOT IN ({LEADING}, {BLANK})"
    db.execute(f"""UPDATE typed SET kind = CASE WHEN row_index < coalesce(({others}), row_index + 1)
            THEN {TOTALS} ELSE {REJECTED} END
        WHERE kind = {LEADING}""")


def settle_names(db: Any) -> None:
    """A record of names, where values are expected: the header of another table, or rejected like any other.

    It is a header if records are above and below it, and a blank line directly before it, or before the title that it
    has. A blank line shows nothing in a file where half of the records follow one.
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


def settle_labelled(db: Any, plan: Plan, *, confirmed: bool) -> None:
    """A record whose key is a label such as Total: do its figures add up those of at least two other records?

    All of them must: Total is also a company. Where they do not, the record is rejected, and its sender decides. In a
    list of search terms, which has such terms, one figure that adds up shows totals, and else it is a term.
    `confirmed`: the sender loads it again in a rejects file, so it is a record.
    """
    names = [quoted(column.name) for column in plan.own_columns if column.numeric]
    if confirmed or not names:
        kind = ACCEPTED if confirmed or plan.pipeline.headerless else REJECTED
        db.execute(f"""UPDATE typed SET kind = CASE WHEN kind = {LABELLED} THEN {kind} ELSE {REJECTED} END
            WHERE kind IN ({LABELLED}, {BAD_LABEL})""")
        return
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    if plan.pipeline.headerless:
        shown, otherwise = " OR ".join(f"typed.{name} = others.{name}" for name in names), ACCEPTED
    else:
        figures = ", ".join(f"typed.{name}" for name in names)
        fits = [f"coalesce(typed.{name} = others.{name}, typed.{name} IS NULL)" for name in names]
        shown, otherwise = " AND ".join([f"coalesce({figures}) IS NOT NULL", *fits]), REJECTED
    db.execute(f"""UPDATE typed SET kind = CASE WHEN others.records > 1 AND ({shown}) IS TRUE
            THEN {TOTALS} WHEN kind = {BAD_LABEL} THEN {REJECTED} ELSE {otherwise} END
        FROM (SELECT count(*) AS records, {sums} FROM typed WHERE kind = {ACCEPTED}) AS others
        WHERE kind IN ({LABELLED}, {BAD_LABEL})""")


def settle_nameless(db: Any, plan: Plan) -> None:
    """The first record, with a day and without any name: totals if it adds up the records of its day.

    Every additive figure must, or two of them: a platform may count conversions of a day otherwise than their sum. Else
    it is a record that lacks its names, and is rejected as such.
    """
    days = ", ".join(quoted(column.name) for column in _own_required(plan))
    names = [quoted(column.name) for column in plan.own_columns if column.numeric and column.field.additive]
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)
    equal = [f"(typed.{name} IS NULL OR typed.{name} = others.{name})" for name in names]
    matching = " + ".join(f"(typed.{name} <> 0 AND typed.{name} = others.{name})::INT" for name in names)
    if names and days:
        db.execute(f"""UPDATE typed SET kind = {TOTALS}
            FROM (SELECT {days}, {sums} FROM typed WHERE kind = {ACCEPTED} GROUP BY {days}) AS others
            WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})
                AND {" AND ".join(f"typed.{quoted(c.name)} = others.{quoted(c.name)}" for c in _own_required(plan))}
                AND (({" AND ".join(equal)}) OR coalesce({matching}, 0) >= 2)""")
    db.execute(f"""UPDATE typed SET kind = CASE WHEN kind = {NAMELESS} THEN {ACCEPTED} ELSE {REJECTED} END
        WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})""")


def misfit(plan: Plan) -> str:
    """A record that does not fit the header or could not be read.

    In JSON also one with a key that came too late to be a column and is a field's.
    """
    if plan.csv:
        return "fault IS NOT NULL"
    keys = ", ".join(literal(name) for name in sorted(plan.known_headers))
    return f"""CASE WHEN fault IS NOT NULL THEN true WHEN surplus IS NULL THEN false
        ELSE len(list_filter(json_keys(surplus), lambda key: fold_header(key) IN ({keys}))) > 0 END"""


def _totals(plan: Plan) -> str:
    """A record without a day and with a totals label in any cell; or Meta's, with neither day, label nor name."""
    profile = plan.profile
    required = _required(plan)
    if profile is None:
        without = " OR ".join(f"{text} IS NULL" for text in required) or "false"
        return f"({without}) AND NOT misfit AND {_label_and_figures(plan)}"
    no_day = ["longer", *(f"{day} IS NULL" for day in required)]
    label = f"(?im)^[ \\t]*(?:{'|'.join([*profile.totals, *TOTALS_LABELS])})[ \\t\\r]*$"
    # A cell a line: the dot of a pattern stays in its cell. With a day, only the day's cell can be the label.
    lines = "coalesce(array_to_string(all_cells, chr(10)), '')"
    either = f"CASE WHEN {' OR '.join(no_day)} THEN {lines} ELSE {_lines(required)} END"
    conditions = [f"regexp_matches({either}, {literal(label)})"]
    if nameless := _nameless(plan):
        conditions.append(f"{nameless} AND ({' OR '.join(no_day)})")
    return " OR ".join(f"({condition})" for condition in conditions)


def _nameless_first(plan: Plan) -> str:
    """Meta's totals of a single day come first, with that day. So may a record whose names were lost."""
    nameless = _nameless(plan)
    return f"row_index = 0 AND {nameless}" if nameless else "false"


def _nameless(plan: Plan) -> str | None:
    """SQL: figures, and no name or id at any level. None: this profile has no such totals."""
    if plan.profile is None or not plan.profile.nameless_totals or not plan.shared_columns:
        return None
    nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
    names = ", ".join(f"c{p}" for p in plan.shared_positions)
    named = f"lambda cell: trim(cell, {literal(SPACE)}) NOT IN ({nulls})"
    return f"len(list_filter([{names}], {named})) = 0 AND ({_any_figure(plan)})"


def _lines(texts: list[str]) -> str:
    return f"concat_ws(chr(10), {', '.join(texts)})" if texts else "''"


def _label_and_figures(plan: Plan) -> str:
    """SQL: one cell is a totals label, and the others are labels, figures or empty."""
    label = "|".join(TOTALS_LABELS)
    line = f"(?i)^[ \\t]*(?:{label})[ \\t]*$"
    nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
    is_label = f"regexp_matches(cell, {literal(line)})"
    plain = f"regexp_full_match(cell, {literal(_NO_WORDS)}) OR trim(cell) IN ({nulls}) OR {is_label}"
    listed = "list_filter(all_cells, lambda cell: cell IS NOT NULL)"
    return (
        f"len(list_filter({listed}, lambda cell: {is_label})) > 0"
        f" AND len(list_filter({listed}, lambda cell: {plain})) = len({listed})"
    )


def _labelled(plan: Plan) -> str:
    """SQL: a cell that every record must have, or of a key, is a totals label, and the other cells are figures."""
    if plan.profile is not None:
        return "false"
    key = {f"{plan.pipeline.grain.name}.{name}" for name in plan.pipeline.grain.key}
    keys = [c for c in plan.own_columns if c.name in key and c.field.type is not str]
    texts = dict.fromkeys(c.text for c in [*_own_required(plan), *keys])
    in_key = " OR ".join(is_label(text) for text in texts) or "false"
    return f"({in_key}) AND {_label_and_figures(plan)}"


def is_label(text: str) -> str:
    """SQL: the text is a totals label."""
    label = "|".join(TOTALS_LABELS)
    return f"(length({text}) < 40 AND regexp_full_match({text}, {literal(f'(?i)(?:{label})')}))"


def _strange(plan: Plan) -> str:
    """SQL, cheap: may a record that reads well be no record, but a header or a row of totals?"""
    required = _own_required(plan)
    labels = [is_label(c.text) for c in required if c.field.type is str] if plan.profile is None else []
    # No header is a number or a date: where one is required, it does not read well.
    again = [] if any(_reads_no_name(column) for column in required) else _names_a_column(plan)
    return " OR ".join([*again, *labels]) or "false"


def _reads_no_name(column: Column) -> bool:
    """Are its cells read by a ready-made rule for numbers, dates or times, and by no other?"""
    if column.field.type in (str, bool) or len(column.steps) != 1:
        return False
    return any(column.steps[0].expression == rule.expression for rule in TYPED[column.field.type])


def _names_a_column(plan: Plan) -> list[str]:
    """SQL, cheap: is the first cell of the grain the name of a column?"""
    first = min((p for column in plan.own_columns for p in column.cells), default=0)
    found = {*plan.layout.header}
    for name, declared in plan.pipeline.fields.items():
        found |= set(synonyms(name, declared, plan.pipeline, plan.profile)[:SYNONYMS])
    # In a list of search terms `keyword` is one of them.
    exact = plan.pipeline.headerless
    cell = f"c{first}" if exact else f"lower(t{first})"
    names = sorted({name if exact else name.strip().lower() for name in found} - {""})
    return [f"{cell} IN ({', '.join(map(literal, names))})"] if plan.csv and names else []


def _header_again(plan: Plan) -> str:
    """SQL: every cell is the name of its column."""
    if not plan.csv:
        return "false"
    named = [(i, cell.strip().lower()) for i, cell in enumerate(plan.layout.header, 1) if cell.strip()]
    places = ", ".join(str(i) for i, _ in named)
    cells = "all_cells" if len(named) == len(plan.layout.header) else f"list_select(all_cells, [{places}])"
    # One text, not a list: DuckDB would plan every name.
    names = literal("\n".join(name for _, name in named))
    texts = f"list_transform({cells}, lambda cell: lower(trim(cell, {literal(SPACE)})))"
    same = f"array_to_string({texts}, chr(10)) = {names}"
    return f"surplus IS NULL AND {same}" if named else "false"


def _other_header(plan: Plan) -> str:
    """SQL: half of its cells, and two at least, are names of columns that are known, and none has a figure."""
    if not plan.csv:
        return "false"
    # One text, not a list: DuckDB would plan every name. Folded names consist of letters and digits.
    known = literal(f"|{'|'.join(sorted(plan.known_headers))}|")
    return f"""(NOT regexp_matches({_TEXT}, '[0-9]') AND list_transform(
        [list_filter(all_cells, lambda cell: trim(cell) <> '')], lambda filled: list_transform(
            [len(list_filter(filled, lambda cell: contains({known}, '|' || fold_header(cell) || '|')))],
            lambda names: names >= 2 AND 2 * names >= len(filled))[1])[1])"""


def _names(plan: Plan) -> str:
    """SQL: two or more cells, all different, each with a letter and none with `@`; and no number or date can be read.

    Where only one value was expected, there are three or more, and none has a digit: `A2,Ann,unknown` is a record.
    """
    expected = [column for column in plan.own_columns if column.field.type not in (str, bool)]
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


def _leading(plan: Plan) -> str:
    """An aggregate at the beginning of the file: figures of no key."""
    if not plan.pipeline.leading_totals:
        return "false"
    keyless = " AND ".join(f"{text} IS NULL" for text in _required(plan)) or "false"
    return f"row_index < {plan.pipeline.leading_totals} AND {keyless} AND ({_any_figure(plan)})"


def _required(plan: Plan) -> list[str]:
    return [column.text for column in _own_required(plan)]


def _own_required(plan: Plan) -> list[Column]:
    return [column for column in plan.own_columns if column.name in plan.pipeline.required]


def _any_figure(plan: Plan) -> str:
    return " OR ".join(f"{c.value} IS NOT NULL" for c in plan.own_columns if c.numeric) or "false"


def _several_days(plan: Plan) -> str:
    """Where a period stands in for the day: does it end on another day than it starts?"""
    return f"coalesce({LAST_DAY} <> {plan.period[0].value}, false)" if plan.period else "false"
