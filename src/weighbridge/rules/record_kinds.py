"""Third check: every record → its typed fields and its kind (accepted, blank, totals, header, rejected)."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.sheet import SPACE
from weighbridge.rules.check_plan import LAST_DAY, Column, Locale, Plan, literal, quoted, stages
from weighbridge.rules.field_errors import grain_errors
from weighbridge.rules.headers import synonyms
from weighbridge.rules.normalise import TYPED

ACCEPTED, BLANK, TOTALS, REJECTED, NOT_DAILY, DUPLICATE, LEADING, HEADER, OTHER_TABLE, LABELLED = range(10)
NAMES, MISFIT = 10, 11  # provisional, until settle_names
BAD_LABEL = (
    12  # provisional: LABELLED and certainly not a record, as the label is where a date or number is required
)
NAMELESS, BAD_NAMELESS = (
    13,
    14,
)  # provisional, until settle_nameless: the first record, with a day and without any name

# Labels of totals rows; a profile may have more.
TOTALS_LABELS = (
    r"(?:grand |sub[- ]?|over ?all |sous[- ])?totals?(?: amount| g[eé]n[eé]ral| geral)?:?",
    r"sum(?:me|a)?:?|(?:gesamt|total|zwischen)(?:summe|betrag)?:?|insgesamt:?|(?:sub)?totale?:?|totaux:?|totaal:?",
    r"razem:?|łącznie:?|celkem:?|toplam:?|итого:?|всего:?|合計|总计|總計|小计|小計|합계|총계",
    r"total(?: of|:)? [0-9.,]+ [^0-9]+|(?:results?|ergebnisse?|r[eé]sultats?|risultati|resultados|resultaten) "
    r"(?:from|of|aus|von|de|da|di|van|uit) [0-9.,]+ [^0-9]+",
)
SYNONYMS = 2  # headers of each field with which every record is compared
_TEXT = "coalesce(array_to_string(all_cells, ''), '')"
_NO_WORDS = r"(?:[A-Z]{3} ?)?[^\p{L}]*(?: ?[A-Z]{3})?"  # a number, with or without a currency code


def typed(plan: Plan, locale: Locale, source: str) -> str:
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
        FROM {stages(plan.grain_columns, plan, locale, source)}))"""


def settle_leading(db: Any) -> None:
    """A record without a key at the beginning of the file is totals if all records before it are; else rejected."""
    others = f"SELECT min(row_index) FROM typed WHERE kind NOT IN ({LEADING}, {BLANK})"
    db.execute(f"""UPDATE typed SET kind = CASE WHEN row_index < coalesce(({others}), row_index + 1)
            THEN {TOTALS} ELSE {REJECTED} END
        WHERE kind = {LEADING}""")


def settle_names(db: Any) -> None:
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


def settle_labelled(db: Any, plan: Plan, *, confirmed: bool) -> None:
    """A record whose key is a label such as Total is totals if its figures are the sums of two or more other records.

    All figures must be: Total is also a company. Otherwise the record is rejected, and the sender decides. In a list of
    search terms, one figure that is a sum is enough, and otherwise the label is a search term.
    `confirmed`: the sender loads the record again in a rejects file, so it is not totals.
    """
    names = [quoted(column.name) for column in plan.grain_columns if column.numeric]
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
    """The first record, with a day and without any name, is totals if its figures are the sums of its day.

    All additive figures must be, or two of them: a platform may count the conversions of a day differently. Otherwise
    it is a record without names, and is rejected.
    """
    days = ", ".join(quoted(column.name) for column in _required_columns(plan))
    names = [quoted(column.name) for column in plan.grain_columns if column.numeric and column.field.additive]
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)
    equal = [f"(typed.{name} IS NULL OR typed.{name} = others.{name})" for name in names]
    matching = " + ".join(f"(typed.{name} <> 0 AND typed.{name} = others.{name})::INT" for name in names)
    if names and days:
        db.execute(f"""UPDATE typed SET kind = {TOTALS}
            FROM (SELECT {days}, {sums} FROM typed WHERE kind = {ACCEPTED} GROUP BY {days}) AS others
            WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})
                AND {" AND ".join(f"typed.{quoted(c.name)} = others.{quoted(c.name)}" for c in _required_columns(plan))}
                AND (({" AND ".join(equal)}) OR coalesce({matching}, 0) >= 2)""")
    db.execute(f"""UPDATE typed SET kind = CASE WHEN kind = {NAMELESS} THEN {ACCEPTED} ELSE {REJECTED} END
        WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})""")


def misfit(plan: Plan) -> str:
    """SQL: does the record not fit the header, or could it not be read?

    In JSON also: does it have a key of a field that is not a column, as it first appears too late?
    """
    if plan.csv:
        return "fault IS NOT NULL"
    keys = ", ".join(literal(name) for name in sorted(plan.known_headers))
    return f"""CASE WHEN fault IS NOT NULL THEN true WHEN surplus IS NULL THEN false
        ELSE len(list_filter(json_keys(surplus), lambda key: fold_header(key) IN ({keys}))) > 0 END"""


def _totals(plan: Plan) -> str:
    """SQL: a record without a day and with a totals label in any cell; or Meta's totals without day, label and name."""
    profile = plan.profile
    required = _required(plan)
    if profile is None:
        without = " OR ".join(f"{text} IS NULL" for text in required) or "false"
        return f"({without}) AND NOT misfit AND {_label_and_figures(plan)}"
    no_day = ["longer", *(f"{day} IS NULL" for day in required)]
    label = f"(?im)^[ \\t]*(?:{'|'.join([*profile.totals, *TOTALS_LABELS])})[ \\t\\r]*$"
    # One cell per line, so that the dot of a pattern matches within one cell. With a day, only its cell can be a label.
    lines = "coalesce(array_to_string(all_cells, chr(10)), '')"
    either = f"CASE WHEN {' OR '.join(no_day)} THEN {lines} ELSE {_lines(required)} END"
    conditions = [f"regexp_matches({either}, {literal(label)})"]
    if nameless := _nameless(plan):
        conditions.append(f"{nameless} AND ({' OR '.join(no_day)})")
    return " OR ".join(f"({condition})" for condition in conditions)


def _nameless_first(plan: Plan) -> str:
    """SQL: Meta's totals of a single day are the first record, with that day. It may also be a record without names."""
    nameless = _nameless(plan)
    return f"row_index = 0 AND {nameless}" if nameless else "false"


def _nameless(plan: Plan) -> str | None:
    """SQL: figures, and no name or id at any level. None if this profile has no such totals."""
    if plan.profile is None or not plan.profile.nameless_totals or not plan.dimension_columns:
        return None
    nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
    names = ", ".join(f"c{p}" for p in plan.dimension_positions)
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
    """SQL: a required cell or a key cell is a totals label, and the other cells are figures."""
    if plan.profile is not None:
        return "false"
    key = {f"{plan.pipeline.grain.name}.{name}" for name in plan.pipeline.grain.key}
    keys = [c for c in plan.grain_columns if c.name in key and c.field.type is not str]
    texts = dict.fromkeys(c.text for c in [*_required_columns(plan), *keys])
    in_key = " OR ".join(is_label(text) for text in texts) or "false"
    return f"({in_key}) AND {_label_and_figures(plan)}"


def is_label(text: str) -> str:
    """SQL: the text is a totals label."""
    label = "|".join(TOTALS_LABELS)
    return f"(length({text}) < 40 AND regexp_full_match({text}, {literal(f'(?i)(?:{label})')}))"


def _strange(plan: Plan) -> str:
    """SQL, fast: may a valid record be a header or a row of totals?"""
    required = _required_columns(plan)
    labels = [is_label(c.text) for c in required if c.field.type is str] if plan.profile is None else []
    # A header is no number or date: if one is required, a header is never a valid record.
    again = [] if any(_reads_no_name(column) for column in required) else _names_a_column(plan)
    return " OR ".join([*again, *labels]) or "false"


def _reads_no_name(column: Column) -> bool:
    """Is a ready-made rule for numbers, dates or times its only rule? It never accepts the name of a column."""
    if column.field.type in (str, bool) or len(column.steps) != 1:
        return False
    return any(column.steps[0].expression == rule.expression for rule in TYPED[column.field.type])


def _names_a_column(plan: Plan) -> list[str]:
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


def _header_again(plan: Plan) -> str:
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


def _other_header(plan: Plan) -> str:
    """SQL: are half of its cells, and at least two, known column names, without a digit in any cell?"""
    if not plan.csv:
        return "false"
    # One text instead of a list: DuckDB would plan every element. Folded names consist of letters and digits.
    known = literal(f"|{'|'.join(sorted(plan.known_headers))}|")
    return f"""(NOT regexp_matches({_TEXT}, '[0-9]') AND list_transform(
        [list_filter(all_cells, lambda cell: trim(cell) <> '')], lambda filled: list_transform(
            [len(list_filter(filled, lambda cell: contains({known}, '|' || fold_header(cell) || '|')))],
            lambda names: names >= 2 AND 2 * names >= len(filled))[1])[1])"""


def _names(plan: Plan) -> str:
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


def _leading(plan: Plan) -> str:
    """SQL: totals at the beginning of the file, with figures and without a key."""
    if not plan.pipeline.leading_totals:
        return "false"
    keyless = " AND ".join(f"{text} IS NULL" for text in _required(plan)) or "false"
    return f"row_index < {plan.pipeline.leading_totals} AND {keyless} AND ({_any_figure(plan)})"


def _required(plan: Plan) -> list[str]:
    return [column.text for column in _required_columns(plan)]


def _required_columns(plan: Plan) -> list[Column]:
    return [column for column in plan.grain_columns if column.name in plan.pipeline.required]


def _any_figure(plan: Plan) -> str:
    return " OR ".join(f"{c.value} IS NOT NULL" for c in plan.grain_columns if c.numeric) or "false"


def _several_days(plan: Plan) -> str:
    """SQL: if a period replaces the day, does it have more than one day?"""
    return f"coalesce({LAST_DAY} <> {plan.period[0].value}, false)" if plan.period else "false"
