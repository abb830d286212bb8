"""Called by classify_records.py: rows of totals, which are not loaded as records.

A row is totals by its label, as in a last line `Total`; or because it has figures without a day, without a key or
without any name. Where such a row may also be a record, its figures decide: they must be the sums of other records.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.sheet import SPACE
from weighbridge.rules.check_plan import CheckPlan, literal, quoted
from weighbridge.rules.record_kinds import (
    ACCEPTED,
    BAD_LABEL,
    BAD_NAMELESS,
    BLANK,
    LABELLED,
    LEADING,
    NAMELESS,
    REJECTED,
    TOTALS,
)

# Labels of totals rows; a profile may have more.
TOTALS_LABELS = (
    r"(?:grand |sub[- ]?|over ?all |sous[- ])?totals?(?: amount| g[eé]n[eé]ral| geral)?:?",
    r"sum(?:me|a)?:?|(?:gesamt|total|zwischen)(?:summe|betrag)?:?|insgesamt:?|(?:sub)?totale?:?|totaux:?|totaal:?",
    r"razem:?|łącznie:?|celkem:?|toplam:?|итого:?|всего:?|合計|总计|總計|小计|小計|합계|총계",
    r"total(?: of|:)? [0-9.,]+ [^0-9]+|(?:results?|ergebnisse?|r[eé]sultats?|risultati|resultados|resultaten) "
    r"(?:from|of|aus|von|de|da|di|van|uit) [0-9.,]+ [^0-9]+",
)
_NO_WORDS = r"(?:[A-Z]{3} ?)?[^\p{L}]*(?: ?[A-Z]{3})?"  # a number, with or without a currency code


def totals(plan: CheckPlan) -> str:
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


def nameless_first(plan: CheckPlan) -> str:
    """SQL: Meta's totals of a single day are the first record, with that day. It may also be a record without names."""
    nameless = _nameless(plan)
    return f"row_index = 0 AND {nameless}" if nameless else "false"


def leading(plan: CheckPlan) -> str:
    """SQL: totals at the beginning of the file, with figures and without a key."""
    if not plan.pipeline.leading_totals:
        return "false"
    keyless = " AND ".join(f"{text} IS NULL" for text in _required(plan)) or "false"
    return f"row_index < {plan.pipeline.leading_totals} AND {keyless} AND ({_any_figure(plan)})"


def labelled(plan: CheckPlan) -> str:
    """SQL: a required cell or a key cell is a totals label, and the other cells are figures."""
    if plan.profile is not None:
        return "false"
    key = {f"{plan.pipeline.grain.name}.{name}" for name in plan.pipeline.grain.key}
    keys = [c for c in plan.grain_columns if c.name in key and c.field.type is not str]
    texts = dict.fromkeys(c.text for c in [*plan.required_columns, *keys])
    in_key = " OR ".join(is_label(text) for text in texts) or "false"
    return f"({in_key}) AND {_label_and_figures(plan)}"


def is_label(text: str) -> str:
    """SQL: the text is a totals label."""
    label = "|".join(TOTALS_LABELS)
    return f"(length({text}) < 40 AND regexp_full_match({text}, {literal(f'(?i)(?:{label})')}))"


def classify_leading(db: Any) -> None:
    """A record without a key at the beginning of the file is totals if all records before it are; else rejected."""
    others = f"SELECT min(row_index) FROM typed WHERE kind NOT IN ({LEADING}, {BLANK})"
    db.execute(f"""UPDATE typed SET kind = CASE WHEN row_index < coalesce(({others}), row_index + 1)
            THEN {TOTALS} ELSE {REJECTED} END
        WHERE kind = {LEADING}""")


def classify_labelled(db: Any, plan: CheckPlan, *, confirmed: bool) -> None:
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


def classify_nameless(db: Any, plan: CheckPlan) -> None:
    """The first record, with a day and without any name, is totals if its figures are the sums of its day.

    All additive figures must be, or two of them: a platform may count the conversions of a day differently. Otherwise
    it is a record without names, and is rejected.
    """
    days = ", ".join(quoted(column.name) for column in plan.required_columns)
    names = [quoted(column.name) for column in plan.grain_columns if column.numeric and column.field.additive]
    sums = ", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in names)
    equal = [f"(typed.{name} IS NULL OR typed.{name} = others.{name})" for name in names]
    matching = " + ".join(f"(typed.{name} <> 0 AND typed.{name} = others.{name})::INT" for name in names)
    if names and days:
        db.execute(f"""UPDATE typed SET kind = {TOTALS}
            FROM (SELECT {days}, {sums} FROM typed WHERE kind = {ACCEPTED} GROUP BY {days}) AS others
            WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})
                AND {" AND ".join(f"typed.{quoted(c.name)} = others.{quoted(c.name)}" for c in plan.required_columns)}
                AND (({" AND ".join(equal)}) OR coalesce({matching}, 0) >= 2)""")
    db.execute(f"""UPDATE typed SET kind = CASE WHEN kind = {NAMELESS} THEN {ACCEPTED} ELSE {REJECTED} END
        WHERE kind IN ({NAMELESS}, {BAD_NAMELESS})""")


def _nameless(plan: CheckPlan) -> str | None:
    """SQL: figures, and no name or id at any level. None if this profile has no such totals."""
    if plan.profile is None or not plan.profile.nameless_totals or not plan.dimension_columns:
        return None
    nulls = ", ".join(literal(marker) for marker in ("", *plan.nulls))
    names = ", ".join(f"c{p}" for p in plan.dimension_positions)
    named = f"lambda cell: trim(cell, {literal(SPACE)}) NOT IN ({nulls})"
    return f"len(list_filter([{names}], {named})) = 0 AND ({_any_figure(plan)})"


def _lines(texts: list[str]) -> str:
    return f"concat_ws(chr(10), {', '.join(texts)})" if texts else "''"


def _label_and_figures(plan: CheckPlan) -> str:
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


def _any_figure(plan: CheckPlan) -> str:
    return " OR ".join(f"{c.value} IS NOT NULL" for c in plan.grain_columns if c.numeric) or "false"


def _required(plan: CheckPlan) -> list[str]:
    return [column.text for column in plan.required_columns]
