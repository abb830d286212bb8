"""Called by repeats.py, fifth check: records of one key that are parts of a whole, such as one row for each device.

    compared         the cells of all records whose key occurs several times
    contradictions   the keys whose records are not all equal; `breakdown`: the records are parts of a whole
    parts            the records that were added up, each with the first record of its key

Parts are equal in all fields except the measures, and each part has another value in an unused column.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.rules import accepted_rows, dimensions
from weighbridge.rules.check_plan import CheckPlan, Column, duck_type, literal
from weighbridge.rules.field_errors import beyond
from weighbridge.rules.headers import fold, listed
from weighbridge.rules.record_kinds import DUPLICATE

# Numbers of contradicting records always differ, so they do not distinguish parts.
_FIGURE = r"[^\p{L}]*[0-9][^\p{L}]*"
# A number that may be a label: a whole number, a time of day, a range of either.
_TIME = r"[0-9]{1,2}(?::[0-9]{2})+"
_LABEL = rf"[0-9]{{1,9}}|[0-9]{{1,3}}(?: ?[-–] ?[0-9]{{1,3}}|[+])|{_TIME}(?: ?[-–] ?{_TIME})?"
# Headers of unused measures: a whole number in such a column is a count, not a label.
_MEASURE = re.compile(
    r"result|ergebnis|résultat|risultat|click|klick|clic|conver|lead|purchas|kauf|käufe|achat|compra|acquist|view|aufruf"
    r"|vue|visual|install|reach|reichweite|portée|alcance|copertura|impress|engag|intera|like|share|comment|cost|kosten"
    r"|coût|costo|custo|spend|spent|budget|value|wert|valeur|valor|rate|cp[acmv]|ctr|roas|total|count|anzahl|frequen",
    re.IGNORECASE,
)
_LARGEST = {int: 2**63 - 1, Decimal: 999_999_999_999}  # maximum of each type


def mark_contradictions(db: Any, plan: CheckPlan, headers: list[str]) -> tuple[dict[int, str], bool]:
    """Mark the keys in `contradictions` that are broken down. Returns the columns that distinguish their parts, if any.

    `headers` are the names of the cells in `compared`. The second result: are the records certainly parts? If they
    differ only in numbers such as a rate, they may be one record twice, and are never added up.
    """
    used = set(plan.positions)
    unused = {p: header for p, header in enumerate(headers) if p not in used}
    if not unused:
        return {}, True
    alike = _alike(plan)
    distinguishing = _labels(db, plan, unused, alike) or _numbered(db, unused, alike)
    certain = bool(distinguishing)
    if not certain and not plan.options.sum_breakdowns:
        # Only rates and similar numbers differ: such records are parts only if their measures are equal.
        alike += "".join(f" AND count(DISTINCT c{p}) = 1" for p in sorted(_measures(plan)))
        distinguishing = _differing(db, unused, alike)
    if not distinguishing:
        return {}, True
    each = f"count(DISTINCT concat_ws(chr(31), {', '.join(f'c{p}' for p in distinguishing)})) = count(*)"
    db.execute(f"UPDATE contradictions SET breakdown = true WHERE no IN ({_keys(f'{alike} AND {each}')})")
    found = db.execute("SELECT count(*) FROM contradictions WHERE breakdown").fetchall()[0][0]
    return ({p: headers[p] for p in distinguishing} if found else {}), certain


def refuse_unless_summable(
    db: Any, plan: CheckPlan, distinguishing: list[str], *, certain: bool, some_rejected: bool
) -> None:
    """Raises FileRefused: `unexpected_breakdown` without --sum-breakdowns, `incomplete_breakdown` for unread parts."""
    if not plan.options.sum_breakdowns or not _can_sum(plan):
        raise _unexpected_breakdown(db, plan, distinguishing, certain=certain)
    if not some_rejected:
        return
    unread = db.execute("SELECT line FROM rejected_keys WHERE NOT readable ORDER BY row_index").fetchall()
    if unread:
        shown = ", ".join(str(line) for (line,) in unread[:3])
        raise FileRefused(
            "incomplete_breakdown",
            f"The file is broken down by {listed(distinguishing)}, and the {_level(plan)} of {len(unread):,} of its "
            f"records cannot be read (line {shown}). Such a record may be missing in any sum. Fix or remove these "
            "lines, and load the complete file again.",
        )


def add_up(db: Any, plan: CheckPlan, distinguishing: list[str]) -> str | None:
    """Add up the parts of each complete whole, and create `parts`. Measures that cannot be added up become empty.

    A single part next to its totals is not changed. Returns the warning; None if no records were added up.
    """
    members = """SELECT row_index, line, no FROM compared
        WHERE no IN (SELECT no FROM contradictions WHERE breakdown AND NOT incomplete AND unclear_line IS NULL)
            AND NOT is_copy AND row_index NOT IN (SELECT row_index FROM breakdown_totals)
        QUALIFY count(*) OVER (PARTITION BY no) > 1"""
    [(records, kept)] = db.execute(f"SELECT count(*), count(DISTINCT no) FROM ({members})").fetchall()
    if not kept:
        return None
    made, empty = {}, []
    for column in plan.grain_columns:
        name = accepted_rows.grain_column(plan, column.field.name)
        if name is None or not column.numeric:
            continue
        kind = duck_type(column.field)
        if column.field.additive:
            _refuse_overflow(db, plan, members, column)
            made[name] = f"CAST(sum({name}) AS {kind})"
        else:
            made[name] = f"CAST(NULL AS {kind})"
            empty.append(column.label)
    merge(db, members, made)
    db.make("parts", f"""SELECT first, row_index, line FROM ({members}) JOIN merged USING (no)""")
    left = f" Empty, because they cannot be added up: {', '.join(empty)}." if empty else ""
    by = listed(distinguishing)
    return f"{records:,} records were added up into {kept:,}; they were distinguished by {by}.{left}"


def merge(db: Any, members: str, made: dict[str, str]) -> None:
    """Accept the first record of each key with the given values; the others count as duplicates."""
    values = "".join(f", {how} AS {name}" for name, how in made.items())
    db.make(
        "merged",
        f"""SELECT no, min(row_index) AS first{values}
        FROM grain JOIN (SELECT row_index, no FROM ({members})) USING (row_index) GROUP BY no""",
    )
    if made:
        taken = ", ".join(f"{name} = merged.{name}" for name in made)
        db.execute(f"UPDATE typed SET {taken} FROM merged WHERE typed.row_index = merged.first")
    db.execute(f"""UPDATE typed SET kind = {DUPLICATE}
        FROM (SELECT row_index, first FROM ({members}) JOIN merged USING (no)) AS others
        WHERE typed.row_index = others.row_index AND others.row_index <> first""")


def _alike(plan: CheckPlan) -> str:
    """SQL over the records of one key: are they equal in every field except the measures?"""
    return " AND ".join(
        ["true", *(f"count(DISTINCT c{p}) = 1" for p in plan.positions if p not in _measures(plan))]
    )


def _measures(plan: CheckPlan) -> set[int]:
    """The positions of measures; none if the file has no measure that can be added up."""
    if not _can_sum(plan):
        return set()
    return {p for column in plan.grain_columns if column.numeric for p in column.cells}


def _labels(db: Any, plan: CheckPlan, unused: dict[int, str], alike: str) -> list[int]:
    """The columns that differ and are known breakdowns, or have text."""
    known = {fold(header) for header in plan.profile.breakdowns} if plan.profile else set()
    named = {p for p, header in unused.items() if fold(header) in known}
    with_text = f"NOT bool_and(c{{p}} = '' OR regexp_full_match(c{{p}}, {literal(_FIGURE)}))"
    return _differing(db, unused, alike, with_text, named)


def _numbered(db: Any, unused: dict[int, str], alike: str) -> list[int]:
    """The columns of whole numbers and times that are labels, not counts: the same few values occur with every key."""
    possible = [p for p, header in unused.items() if not _MEASURE.search(header)]
    labels = f"count(DISTINCT c{{p}}) = count(*) AND bool_and(regexp_full_match(c{{p}}, {literal(_LABEL)}))"
    found = []
    for p in _differing(db, possible, alike, labels):
        [(values, records, keys)] = db.execute(f"""SELECT count(DISTINCT c{p}), count(*), count(DISTINCT no)
            FROM compared WHERE NOT is_copy AND no IN ({_keys(alike)})""").fetchall()
        if keys == 1 or 2 * values <= records:
            found.append(p)
    return found


def _differing(
    db: Any,
    among: Iterable[int],
    alike: str,
    also: str = "true",
    named: set[int] | frozenset[int] = frozenset(),
) -> list[int]:
    """The columns that differ between records of a key which are `alike` otherwise. `also`: SQL about column {p}."""
    among = list(among)
    if not among:
        return []
    conditions = [f"bool_or(differs{p})" for p in among]
    flags = [
        f"count(DISTINCT c{p}) > 1 AND ({'true' if p in named else also.replace('{p}', str(p))}) AS differs{p}"
        for p in among
    ]
    [found] = db.execute(f"""SELECT {", ".join(conditions)}
        FROM (SELECT {", ".join(flags)} FROM compared WHERE NOT is_copy GROUP BY no HAVING {alike})""").fetchall()
    return [p for p, differs in zip(among, found, strict=True) if differs]


def _keys(having: str) -> str:
    return f"SELECT no FROM compared WHERE NOT is_copy GROUP BY no HAVING count(*) > 1 AND {having}"


def _unexpected_breakdown(
    db: Any, plan: CheckPlan, distinguishing: list[str], *, certain: bool
) -> FileRefused:
    [(lines,)] = db.execute("""SELECT list_sort(list(DISTINCT line))[:2] FROM compared
        WHERE NOT is_copy AND no = (SELECT min(no) FROM contradictions WHERE breakdown)""").fetchall()
    shown = f"line{'s' if len(lines) > 1 else ''} {' and '.join(map(str, lines))}"
    advice = ", or load it with --sum-breakdowns to add the records up" if certain and _can_sum(plan) else ""
    return FileRefused(
        "unexpected_breakdown",
        f"Expected one record for each {_level(plan)}, got several, as on {shown}, distinguished by "
        f"{listed(distinguishing)}. Export the file again without that breakdown{advice}.",
    )


def _can_sum(plan: CheckPlan) -> bool:
    """Does the file have a measure that can be added up?"""
    return any(column.field.additive for column in plan.grain_columns)


def _refuse_overflow(db: Any, plan: CheckPlan, members: str, column: Column) -> None:
    """Refuse a sum that its type or its production column cannot hold."""
    name, largest = accepted_rows.grain_column(plan, column.field.name), _LARGEST[column.field.type]
    limits = [(f"abs(whole) > {largest}", f"a sum between -{largest} and {largest}")]
    limits += [(when, expected) for when, _, expected in beyond(column, plan, "whole")]
    for when, expected in limits:
        found = db.execute(f"""SELECT whole, lines
            FROM (SELECT sum({name}) AS whole, list_sort(list(parts.line)) AS lines
                FROM grain JOIN ({members}) AS parts USING (row_index) GROUP BY no)
            WHERE {when} LIMIT 1""").fetchall()
        for whole, lines in found:
            raise FileRefused(
                "sum_too_large",
                f"{column.label}: expected {expected}, got {whole} for lines {', '.join(map(str, lines[:3]))}"
                f"{' …' if lines[3:] else ''}. Check the figures, or give the column a wider type.",
            )


def _level(plan: CheckPlan) -> str:
    """The key columns that the file has, in words: `campaign and date`."""
    found = {entity.name for entity in dimensions.entities(plan)}
    refs = {ref.name: ref.entity for ref in plan.pipeline.grain.refs}
    names = [name for name in plan.pipeline.grain.key if name not in refs or refs[name] in found]
    return " and ".join(name.removesuffix("_id").replace("_", " ") for name in names)
