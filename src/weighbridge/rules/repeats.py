"""Fifth of the checks: records with the same key. All cells are compared, those that no field uses as well.

Equal in every cell: the same record told twice. The first is accepted, the others count as duplicates.

Distinguished only by columns that no field uses: the file splits its days, or its cases, further than expected. The
file is refused as `unexpected_breakdown`, or its records are added up where the sender asks for that (breakdowns.py).

Anything else: the records contradict each other, and all of them are rejected as `conflicting_repeat`.

A record that was rejected belongs to the records of its key: once it is fixed it would replace what was loaded of the
others. So these are rejected with it, and the rejects file has the whole key.

Where the grain's upsert policy combines records, none of this applies: the first is accepted with the values of all.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weighbridge.model.counts import counted
from weighbridge.model.space import SPACE
from weighbridge.model.upload import Scope
from weighbridge.rules import breakdown_totals, breakdowns, dimensions, facts
from weighbridge.rules.plan import Locale, Plan, literal
from weighbridge.rules.record_kinds import DUPLICATE, REJECTED

LATE = 200  # keys of JSON that are compared one by one although they come too late to be columns


@dataclass(frozen=True)
class Repeats:
    """What was found. `judged`: some accepted records are rejected now, see the table `judged`."""

    found: bool = False
    judged: bool = False
    summed: bool = False  # see the table `parts`
    totals: bool = False  # see the table `breakdown_totals`
    warnings: dict[str, str] = field(default_factory=dict)


def settle(db: Any, plan: Plan, locale: Locale, scope: Scope, records: Callable[[], str]) -> Repeats:
    """Give the repeats in `grain` their kind in `typed`. `records` opens the records of the file once more.

    Raises FileRefused: `unexpected_breakdown`, `incomplete_breakdown`, `sum_too_large`.
    """
    combined = plan.pipeline.grain.upsert.repeats
    some_rejected = not combined and _find_rejected(db, plan, locale, scope)
    if not _find_repeated(db, plan, some_rejected=some_rejected):
        return Repeats()
    if combined:
        return _combine(db, plan, combined)
    headers = _compare(db, plan, records())
    return _judge(db, plan, headers, some_rejected=some_rejected)


def _find_rejected(db: Any, plan: Plan, locale: Locale, scope: Scope) -> bool:
    """Make `rejected_keys` where there are rejected records."""
    if not db.execute(f"SELECT count(*) FROM typed WHERE kind = {REJECTED}").fetchall()[0][0]:
        return False
    if plan.shared_columns:
        dimensions.link_rejected(db, plan, locale, scope)
    facts.find_rejected_keys(db, plan)
    return True


def _find_repeated(db: Any, plan: Plan, *, some_rejected: bool) -> bool:
    """Make `repeated`: the records of keys that several records have, at least one of them accepted."""
    keys = facts.keys(plan)
    key = ", ".join(keys)
    members, accepted = "grain", ""
    if some_rejected:
        members = f"""(SELECT row_index, line, {key}, false AS rejected FROM grain
            UNION ALL SELECT row_index, line, {key}, true FROM rejected_keys WHERE readable)"""
        accepted = "AND NOT bool_and(rejected)"
    repeated = f"SELECT {key} FROM {members} GROUP BY {key} HAVING count(*) > 1 {accepted}"
    if not db.execute(f"SELECT count(*) FROM ({repeated})").fetchall()[0][0]:
        return False
    same = " AND ".join(f"members.{name} IS NOT DISTINCT FROM repeated.{name}" for name in keys)
    order = ", ".join(f"members.{name}" for name in keys)
    rejected = "members.rejected" if some_rejected else "false"
    db.execute(f"""CREATE OR REPLACE TEMP TABLE repeated AS
        SELECT members.row_index, members.line, {rejected} AS rejected, dense_rank() OVER (ORDER BY {order}) AS no
        FROM {members} AS members JOIN ({repeated}) AS repeated ON {same}""")
    return True


def _combine(db: Any, plan: Plan, aggregate: str) -> Repeats:
    """One record of each key, with the values of all."""
    made = {value: aggregate.replace("{x}", value) for value in facts.values(plan)}
    breakdowns.merge(db, "SELECT row_index, no FROM repeated", made)
    [(records, kept)] = db.execute("SELECT count(*), count(DISTINCT no) FROM repeated").fetchall()
    how = plan.pipeline.grain.upsert.name.replace("_", " ")
    rows = counted(kept, "row")
    sentence = f"{records:,} records share their key with another one; they became {rows} ({how})."
    return Repeats(found=True, warnings={"repeats_combined": sentence})


def _compare(db: Any, plan: Plan, source: str) -> list[str]:
    """Make `compared`: the cells of the repeated records, and whether each is the copy of an earlier one.

    `variant` is the first record with the same cells. The names of the cells c0, c1, …
    """
    cells = [f"{cell} AS c{position}" for position, cell in enumerate(_cells(plan))]
    # A record with a fault has its own text there.
    late = "NULL::VARCHAR" if plan.csv else "CASE WHEN sheet.fault IS NULL THEN sheet.surplus END"
    db.execute(f"""CREATE OR REPLACE TEMP TABLE found AS
        SELECT row_index, repeated.line, rejected, no, {", ".join(cells)}, {late} AS late
        FROM {source} AS sheet JOIN repeated USING (row_index) JOIN typed USING (row_index)""")
    headers = list(plan.layout.header)
    more = {} if plan.csv else _late_cells(db)
    late_cells = [f"coalesce({cell}, '') AS c{p}" for p, cell in enumerate(more.values(), len(headers))]
    headers += more
    names = ", ".join(f"c{position}" for position in range(len(headers)))
    equal = f"PARTITION BY no, rejected, {names}"
    db.execute(f"""CREATE OR REPLACE TEMP TABLE compared AS
        SELECT *, row_number() OVER ({equal} ORDER BY row_index) > 1 AS is_copy,
            min(row_index) OVER ({equal}) AS variant
        FROM (SELECT {", ".join(["*", *late_cells])} FROM found)""")
    return headers


def _cells(plan: Plan) -> list[str]:
    """SQL: every cell as it is compared. That of a field is compared by its value, if it has one: 1.5 is 1.50."""
    values = {
        position: f"CAST({name} AS VARCHAR), CASE WHEN rejected THEN t{position} END"
        for column in plan.own_columns
        for position in column.cells
        if (name := facts.stored(plan, column.field.name))
    }
    texts = {position: f"t{position}" for position in plan.positions} | values
    spaces = literal(SPACE)
    positions = range(len(plan.layout.header))
    return [f"coalesce({texts.get(p, f'trim(sheet.c{p}, {spaces})')}, '')" for p in positions]


def _late_cells(db: Any) -> dict[str, str]:
    """SQL of the values of keys that come too late to be columns, by key."""
    rows = db.execute(f"""SELECT key FROM (SELECT row_index, unnest(json_keys(late)) AS key FROM found)
        GROUP BY key ORDER BY min(row_index), key LIMIT {LATE + 1}""").fetchall()
    cells = {}
    for (key,) in rows[:LATE]:
        pointer = "/" + key.replace("~", "~0").replace("/", "~1")
        cells[key] = f"trim(json_extract_string(late, {literal(pointer)}), {literal(SPACE)})"
    if len(rows) > LATE:
        cells["other keys"] = "late"
    return cells


def _judge(db: Any, plan: Plan, headers: list[str], *, some_rejected: bool) -> Repeats:
    names = [
        f"CASE WHEN count(DISTINCT c{position}) > 1 THEN {literal(header or '(no name)')} END"
        for position, header in enumerate(headers)
    ]
    db.execute(f"""CREATE OR REPLACE TEMP TABLE contradictions AS
        SELECT no, list_filter([{", ".join(names)}], lambda name: name IS NOT NULL) AS columns,
            bool_or(rejected) AS incomplete, false AS breakdown, NULL::INTEGER AS unclear_line
        FROM compared WHERE NOT is_copy GROUP BY no HAVING count(*) > 1""")
    distinguishing, certain = breakdowns.find(db, plan, headers)
    by = list(distinguishing.values())
    totals: dict[str, str] = {}
    if distinguishing:
        breakdowns.refuse_unless_summable(db, plan, by, certain=certain, some_rejected=some_rejected)
        totals = breakdown_totals.settle(db, plan, distinguishing)
    db.execute("""CREATE OR REPLACE TEMP TABLE judged AS
        SELECT row_index, columns, breakdown, unclear_line IS NOT NULL AS unclear,
            CASE WHEN breakdown THEN coalesce(unclear_line, rejected_line)
            WHEN variant = variants[1] THEN lines[2] ELSE lines[1] END AS other_line
        FROM compared JOIN contradictions USING (no)
            JOIN (SELECT no, list(row_index ORDER BY row_index) AS variants, list(line ORDER BY row_index) AS lines,
                    min(line) FILTER (rejected) AS rejected_line
                FROM compared WHERE NOT is_copy GROUP BY no) USING (no)
        WHERE NOT breakdown OR unclear_line IS NOT NULL OR (incomplete AND NOT rejected)""")
    [(judged,)] = db.execute("SELECT count(*) FROM judged").fetchall()
    summed = breakdowns.add_up(db, plan, by) if distinguishing else None
    db.execute(f"UPDATE typed SET kind = {REJECTED} FROM judged WHERE typed.row_index = judged.row_index")
    db.execute(f"""UPDATE typed SET kind = {DUPLICATE} FROM compared
        WHERE typed.row_index = compared.row_index AND is_copy AND NOT rejected
            AND no NOT IN (SELECT no FROM contradictions
                WHERE NOT breakdown OR incomplete OR unclear_line IS NOT NULL)""")
    warnings = totals | ({"breakdowns_summed": summed} if summed else {})
    return Repeats(
        found=True, judged=judged > 0, summed=summed is not None, totals=bool(totals), warnings=warnings
    )
