"""Fifth of the checks: records with the same key. All cells are compared, those that no field uses as well.

Equal in every cell: the same record told twice. The first is accepted, the others count as duplicates.

Told apart by columns that no field uses: the file splits its days, or its cases, further than expected. The file is
refused as `unexpected_breakdown`, or its records are added up where the sender asks for that.

Anything else: the records contradict each other, and all of them are rejected as `conflicting_repeat`.

Where the grain's upsert policy combines records, none of this applies: the first is accepted with the values of all.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weighbridge.model.counts import counted
from weighbridge.model.errors import FileRefused
from weighbridge.model.space import SPACE
from weighbridge.rules import dimensions, facts
from weighbridge.rules.headers import fold, listed
from weighbridge.rules.plan import Plan, duck_type, literal
from weighbridge.rules.typed import DUPLICATE, REJECTED

# Figures of records that contradict each other differ in any case: they tell no parts of a whole apart.
_FIGURE = r"[^\p{L}]*[0-9][^\p{L}]*"


@dataclass(frozen=True)
class Repeats:
    """What was found. `conflicts`: some records contradict each other, see the table `judged`."""

    found: bool = False
    conflicts: bool = False
    warnings: dict[str, str] = field(default_factory=dict)


def settle(db: Any, plan: Plan, records: Callable[[], str]) -> Repeats:
    """Give the repeats in `grain` their kind in `typed`. `records` opens the records of the file once more.

    Raises FileRefused: `unexpected_breakdown`, `sum_too_large`.
    """
    keys = facts.keys(plan)
    key = ", ".join(keys)
    repeated = f"SELECT {key} FROM grain GROUP BY {key} HAVING count(*) > 1"
    if not db.execute(f"SELECT count(*) FROM ({repeated})").fetchall()[0][0]:
        return Repeats()
    same = " AND ".join(f"grain.{name} IS NOT DISTINCT FROM repeated.{name}" for name in keys)
    order = ", ".join(f"grain.{name}" for name in keys)
    db.execute(f"""CREATE OR REPLACE TEMP TABLE repeated AS
        SELECT grain.row_index, grain.line, dense_rank() OVER (ORDER BY {order}) AS no
        FROM grain JOIN ({repeated}) AS repeated ON {same}""")
    combined = plan.pipeline.grain.upsert.repeats
    if combined:
        return _combine(db, plan, combined)
    _compare(db, plan, records())
    return _judge(db, plan)


def _combine(db: Any, plan: Plan, aggregate: str) -> Repeats:
    """One record of each key, with the values of all."""
    _merge(db, "repeated", "true", {value: aggregate.replace("{x}", value) for value in facts.values(plan)})
    [(records, kept)] = db.execute("SELECT count(*), count(DISTINCT no) FROM repeated").fetchall()
    how = plan.pipeline.grain.upsert.name.replace("_", " ")
    rows = counted(kept, "row")
    sentence = f"{records:,} records share their key with another one; they became {rows} ({how})."
    return Repeats(found=True, warnings={"repeats_combined": sentence})


def _compare(db: Any, plan: Plan, source: str) -> None:
    """Make `compared`: the cells of the repeated records, and whether each is the copy of an earlier one."""
    cells = [f"{cell} AS c{position}" for position, cell in enumerate(_cells(plan))]
    names = ", ".join(f"c{position}" for position in range(len(cells)))
    db.execute(f"""CREATE OR REPLACE TEMP TABLE compared AS
        SELECT *, row_number() OVER (PARTITION BY no, {names} ORDER BY row_index) > 1 AS is_copy
        FROM (SELECT row_index, repeated.line, no, {", ".join(cells)}
            FROM {source} AS sheet JOIN repeated USING (row_index) JOIN grain USING (row_index))""")


def _cells(plan: Plan) -> list[str]:
    """SQL: every cell as it is compared. That of a field is compared by its value: 1.5 is 1.50."""
    values = {
        position: f"CAST({name} AS VARCHAR)"
        for column in plan.own_columns
        for position in column.cells
        if (name := facts.stored(plan, column.field.name))
    }
    texts = {position: f"t{position}" for position in plan.positions} | values
    spaces = literal(SPACE)
    positions = range(len(plan.layout.header))
    return [f"coalesce({texts.get(p, f'trim(sheet.c{p}, {spaces})')}, '')" for p in positions]


def _judge(db: Any, plan: Plan) -> Repeats:
    db.execute(f"""CREATE OR REPLACE TEMP TABLE contradictions AS
        SELECT *, {_is_breakdown(plan)} AS breakdown FROM ({_differing(plan)})""")
    told_apart = _told_apart(db, plan)
    if told_apart and not plan.options.sum_breakdowns:
        raise _unexpected_breakdown(db, plan, told_apart)
    warnings = {"breakdowns_summed": _sum(db, plan, told_apart)} if told_apart else {}
    db.execute("""CREATE OR REPLACE TEMP TABLE judged AS
        SELECT row_index, columns, CASE WHEN line = first THEN second ELSE first END AS other_line
        FROM compared JOIN contradictions USING (no)
            JOIN (SELECT no, list_sort(list(line))[1] AS first, list_sort(list(line))[2] AS second
                FROM compared GROUP BY no) USING (no)
        WHERE NOT breakdown""")
    [(conflicts,)] = db.execute("SELECT count(*) FROM judged").fetchall()
    db.execute(f"UPDATE typed SET kind = {REJECTED} FROM judged WHERE typed.row_index = judged.row_index")
    db.execute(f"""UPDATE typed SET kind = {DUPLICATE} FROM compared
        WHERE typed.row_index = compared.row_index AND is_copy
            AND no NOT IN (SELECT no FROM contradictions WHERE NOT breakdown)""")
    return Repeats(found=True, conflicts=conflicts > 0, warnings=warnings)


def _differing(plan: Plan) -> str:
    """SELECT the keys whose records are not all equal, and the columns in which these differ."""
    names, flags = [], []
    for position, header in enumerate(plan.layout.header):
        differs = f"count(DISTINCT c{position}) > 1"
        plain = f"c{position} = '' OR regexp_full_match(c{position}, {literal(_FIGURE)})"
        names.append(f"CASE WHEN {differs} THEN {literal(header)} END")
        flags.append(f"{differs} AS differs{position}, {differs} AND NOT bool_and({plain}) AS text{position}")
    return f"""SELECT no, list_filter([{", ".join(names)}], lambda name: name IS NOT NULL) AS columns,
            {", ".join(flags)}
        FROM compared WHERE NOT is_copy GROUP BY no HAVING count(*) > 1"""


def _is_breakdown(plan: Plan) -> str:
    """SQL: are these records parts of a whole, distinguished only by columns that no field uses?

    Fields that are no measures agree then. Where measures differ, a column tells only if it is known for that or has
    text in it.
    """
    unused = _unused(plan)
    measures = {p for column in plan.own_columns if column.numeric for p in column.cells}
    others = {p for column in plan.own_columns for p in column.cells} - measures
    agree = " AND ".join(f"NOT differs{p}" for p in sorted(others)) or "true"
    telling = " OR ".join(f"differs{p}" if _is_listed(plan, p) else f"text{p}" for p in unused) or "false"
    any_unused = " OR ".join(f"differs{p}" for p in unused) or "false"
    measured = " OR ".join(f"differs{p}" for p in sorted(measures)) or "false"
    return f"({agree}) AND (({telling}) OR ({any_unused}) AND NOT ({measured}))"


def _told_apart(db: Any, plan: Plan) -> list[str]:
    """The columns that tell parts of a whole apart; empty where there are none."""
    unused = _unused(plan)
    if not unused:
        return []
    asked = ", ".join(f"bool_or(differs{p}), bool_or(text{p})" for p in unused)
    [(count, *found)] = db.execute(f"SELECT count(*), {asked} FROM contradictions WHERE breakdown").fetchall()
    if not count:
        return []
    differing = [p for p, differs in zip(unused, found[::2], strict=True) if differs]
    with_text = {p for p, text in zip(unused, found[1::2], strict=True) if text}
    telling = [p for p in differing if p in with_text or _is_listed(plan, p)]
    return [plan.layout.header[p] for p in telling or differing]


def _unused(plan: Plan) -> list[int]:
    used = set(plan.positions)
    return [position for position in range(len(plan.layout.header)) if position not in used]


def _is_listed(plan: Plan, position: int) -> bool:
    known = {fold(header) for header in plan.profile.breakdowns} if plan.profile else set()
    return fold(plan.layout.header[position]) in known


def _unexpected_breakdown(db: Any, plan: Plan, told_apart: list[str]) -> FileRefused:
    [(lines,)] = db.execute("""SELECT list_sort(list(line))[:2] FROM compared
        WHERE NOT is_copy AND no = (SELECT min(no) FROM contradictions WHERE breakdown)""").fetchall()
    shown = " and ".join(map(str, lines))
    can_sum = any(declared.additive for declared in plan.pipeline.fields.values())
    advice = ", or load it with --sum-breakdowns to add the records up" if can_sum else ""
    return FileRefused(
        "unexpected_breakdown",
        f"Expected one record for each {_level(plan)}, got several, as on lines {shown}, distinguished by "
        f"{listed(told_apart)}. Export again without that breakdown{advice}.",
    )


def _sum(db: Any, plan: Plan, told_apart: list[str]) -> str:
    """Add up the parts of each whole; figures that cannot be added up stay empty."""
    made, empty = {}, []
    for column in plan.own_columns:
        name = facts.stored(plan, column.field.name)
        if name is None or not column.numeric:
            continue
        kind = duck_type(column.field)
        made[name] = f"TRY_CAST(sum({name}) AS {kind})" if column.field.additive else f"CAST(NULL AS {kind})"
        if not column.field.additive:
            empty.append(column.label)
    parts = "no IN (SELECT no FROM contradictions WHERE breakdown) AND NOT is_copy"
    _refuse_overflow(db, parts, [name for name, how in made.items() if "sum(" in how])
    _merge(db, "compared", parts, made)
    [(records, kept)] = db.execute(
        f"SELECT count(*), count(DISTINCT no) FROM compared WHERE {parts}"
    ).fetchall()
    left = f" Left empty, as they cannot be added up: {', '.join(empty)}." if empty else ""
    return f"{records:,} records were added up into {kept:,}; they were distinguished by {listed(told_apart)}.{left}"


def _refuse_overflow(db: Any, parts: str, names: list[str]) -> None:
    for name in names:
        [(lost,)] = db.execute(f"""SELECT count(*) FROM (
            SELECT sum({name}) AS whole, any_value({name}) AS part
            FROM grain JOIN (SELECT row_index, no FROM compared WHERE {parts}) USING (row_index) GROUP BY no)
            WHERE abs(whole) > 999999999999""").fetchall()
        if lost:
            raise FileRefused(
                "sum_too_large", f"{name}: the sum of a breakdown has more than 12 digits. Check the figures."
            )


def _merge(db: Any, table: str, which: str, made: dict[str, str]) -> None:
    """Accept the first of these records of each key with the given values; the others count as duplicates."""
    members = f"SELECT row_index, no FROM {table} WHERE {which}"
    values = "".join(f", {how} AS {name}" for name, how in made.items())
    db.execute(f"""CREATE OR REPLACE TEMP TABLE merged AS
        SELECT no, min(row_index) AS first{values} FROM grain JOIN ({members}) USING (row_index) GROUP BY no""")
    if made:
        taken = ", ".join(f"{name} = merged.{name}" for name in made)
        db.execute(f"UPDATE typed SET {taken} FROM merged WHERE typed.row_index = merged.first")
    db.execute(f"""UPDATE typed SET kind = {DUPLICATE}
        FROM (SELECT row_index, first FROM ({members}) JOIN merged USING (no)) AS others
        WHERE typed.row_index = others.row_index AND others.row_index <> first""")


def _level(plan: Plan) -> str:
    """What each record is one of: the parts of the key that the file has, in words."""
    found = {entity.name for entity in dimensions.entities(plan)}
    refs = {ref.name: ref.entity for ref in plan.pipeline.grain.refs}
    names = [name for name in plan.pipeline.grain.key if name not in refs or refs[name] in found]
    return " and ".join(name.removesuffix("_id").replace("_", " ") for name in names)
