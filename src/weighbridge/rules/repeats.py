"""Fifth check: records with the same key. All cells are compared, including unused columns.

Equal in every cell: the first record is accepted, the others count as duplicates.

Different only in unused columns: the file has several parts for each key. It is refused as `unexpected_breakdown`, or
the records are added up if the sender chose --sum-breakdowns (sum_breakdowns.py).

Anything else: the records contradict each other, and all of them are rejected as `conflicting_repeat`.

A rejected record counts as a record of its key: after it is fixed, it would replace the other records. So these are
rejected with it, and the rejects file has all records of the key.

If the upsert policy of the grain combines records, none of this applies: the first record is accepted with the combined
values.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weighbridge.model.counts import counted
from weighbridge.model.sheet import SPACE
from weighbridge.model.upload import Scope
from weighbridge.rules import accepted_rows, dimensions, sum_breakdowns, totals_in_breakdowns
from weighbridge.rules.check_plan import CheckPlan, Locale, literal
from weighbridge.rules.record_kinds import DUPLICATE, REJECTED
from weighbridge.rules.record_source import RecordSource

LATE = 200  # JSON keys that first appear too late to be columns; so many are compared one by one


@dataclass(frozen=True)
class Repeats:
    """The result. `rejected`: some accepted records are rejected now; see the table `rejected_repeats`."""

    found: bool = False
    rejected: bool = False
    summed: bool = False  # see the table `parts`
    totals: bool = False  # see the table `breakdown_totals`
    warnings: dict[str, str] = field(default_factory=dict)


def classify_repeats(db: Any, plan: CheckPlan, locale: Locale, scope: Scope, source: RecordSource) -> Repeats:
    """Set the kind of repeated records in `typed`. The file is read again only if there are any.

    Raises FileRefused: `unexpected_breakdown`, `incomplete_breakdown`, `sum_too_large`.
    """
    combined = plan.pipeline.grain.upsert.repeats
    some_rejected = not combined and _find_rejected(db, plan, locale, scope)
    if not _find_repeated(db, plan, some_rejected=some_rejected):
        return Repeats()
    if combined:
        return _combine(db, plan, combined)
    headers = _compare(db, plan, source.records(db))
    return _classify(db, plan, headers, some_rejected=some_rejected)


def _find_rejected(db: Any, plan: CheckPlan, locale: Locale, scope: Scope) -> bool:
    """Create `rejected_keys`. Returns False if there are no rejected records."""
    if not db.execute(f"SELECT count(*) FROM typed WHERE kind = {REJECTED}").fetchall()[0][0]:
        return False
    if plan.dimension_columns:
        dimensions.link_rejected(db, plan, locale, scope)
    accepted_rows.find_rejected_keys(db, plan)
    return True


def _find_repeated(db: Any, plan: CheckPlan, *, some_rejected: bool) -> bool:
    """Create `repeated`: the records of keys with several records, at least one of them accepted."""
    keys = accepted_rows.key_columns(plan)
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
    db.make(
        "repeated",
        f"""SELECT members.row_index, members.line, {rejected} AS rejected, dense_rank() OVER (ORDER BY {order}) AS no
        FROM {members} AS members JOIN ({repeated}) AS repeated ON {same}""",
    )
    return True


def _combine(db: Any, plan: CheckPlan, aggregate: str) -> Repeats:
    """Accept one record of each key, with the combined values of all."""
    made = {value: aggregate.replace("{x}", value) for value in accepted_rows.value_columns(plan)}
    sum_breakdowns.merge(db, "SELECT row_index, no FROM repeated", made)
    [(records, kept)] = db.execute("SELECT count(*), count(DISTINCT no) FROM repeated").fetchall()
    how = plan.pipeline.grain.upsert.name.replace("_", " ")
    rows = counted(kept, "row")
    sentence = f"{records:,} records share their key with another one; they became {rows} ({how})."
    return Repeats(found=True, warnings={"repeats_combined": sentence})


def _compare(db: Any, plan: CheckPlan, source: str) -> list[str]:
    """Create `compared`: the cells of the repeated records, and whether each is a copy of an earlier record.

    `variant` is the first record with the same cells. Returns the names of the cells c0, c1, …
    """
    cells = [f"{cell} AS c{position}" for position, cell in enumerate(_cells(plan))]
    # `surplus` of a record with a fault is its text, not a JSON object.
    late = "NULL::VARCHAR" if plan.csv else "CASE WHEN sheet.fault IS NULL THEN sheet.surplus END"
    db.make(
        "found",
        f"""SELECT row_index, repeated.line, rejected, no, {", ".join(cells)}, {late} AS late
        FROM {source} AS sheet JOIN repeated USING (row_index) JOIN typed USING (row_index)""",
    )
    headers = list(plan.layout.header)
    more = {} if plan.csv else _late_cells(db)
    late_cells = [f"coalesce({cell}, '') AS c{p}" for p, cell in enumerate(more.values(), len(headers))]
    headers += more
    names = ", ".join(f"c{position}" for position in range(len(headers)))
    equal = f"PARTITION BY no, rejected, {names}"
    db.make(
        "compared",
        f"""SELECT *, row_number() OVER ({equal} ORDER BY row_index) > 1 AS is_copy,
            min(row_index) OVER ({equal}) AS variant
        FROM (SELECT {", ".join(["*", *late_cells])} FROM found)""",
    )
    return headers


def _cells(plan: CheckPlan) -> list[str]:
    """SQL: every cell as it is compared. Typed values are compared if there are any: 1.5 is equal to 1.50."""
    values = {
        position: f"CAST({name} AS VARCHAR), CASE WHEN rejected THEN t{position} END"
        for column in plan.grain_columns
        for position in column.cells
        if (name := accepted_rows.grain_column(plan, column.field.name))
    }
    texts = {position: f"t{position}" for position in plan.positions} | values
    spaces = literal(SPACE)
    positions = range(len(plan.layout.header))
    return [f"coalesce({texts.get(p, f'trim(sheet.c{p}, {spaces})')}, '')" for p in positions]


def _late_cells(db: Any) -> dict[str, str]:
    """Key → SQL of its value, for keys that first appear too late to be columns."""
    rows = db.execute(f"""SELECT key FROM (SELECT row_index, unnest(json_keys(late)) AS key FROM found)
        GROUP BY key ORDER BY min(row_index), key LIMIT {LATE + 1}""").fetchall()
    cells = {}
    for (key,) in rows[:LATE]:
        pointer = "/" + key.replace("~", "~0").replace("/", "~1")
        cells[key] = f"trim(json_extract_string(late, {literal(pointer)}), {literal(SPACE)})"
    if len(rows) > LATE:
        cells["other keys"] = "late"
    return cells


def _classify(db: Any, plan: CheckPlan, headers: list[str], *, some_rejected: bool) -> Repeats:
    names = [
        f"CASE WHEN count(DISTINCT c{position}) > 1 THEN {literal(header or '(no name)')} END"
        for position, header in enumerate(headers)
    ]
    db.make(
        "contradictions",
        f"""SELECT no, list_filter([{", ".join(names)}], lambda name: name IS NOT NULL) AS columns,
            bool_or(rejected) AS incomplete, false AS breakdown, NULL::INTEGER AS unclear_line
        FROM compared WHERE NOT is_copy GROUP BY no HAVING count(*) > 1""",
    )
    distinguishing, certain = sum_breakdowns.mark_contradictions(db, plan, headers)
    by = list(distinguishing.values())
    totals: dict[str, str] = {}
    if distinguishing:
        sum_breakdowns.refuse_unless_summable(db, plan, by, certain=certain, some_rejected=some_rejected)
        totals = totals_in_breakdowns.count_totals(db, plan, distinguishing)
    db.make(
        "rejected_repeats",
        """SELECT row_index, columns, breakdown, unclear_line IS NOT NULL AS unclear,
            CASE WHEN breakdown THEN coalesce(unclear_line, rejected_line)
            WHEN variant = variants[1] THEN lines[2] ELSE lines[1] END AS other_line
        FROM compared JOIN contradictions USING (no)
            JOIN (SELECT no, list(row_index ORDER BY row_index) AS variants, list(line ORDER BY row_index) AS lines,
                    min(line) FILTER (rejected) AS rejected_line
                FROM compared WHERE NOT is_copy GROUP BY no) USING (no)
        WHERE NOT breakdown OR unclear_line IS NOT NULL OR (incomplete AND NOT rejected)""",
    )
    [(rejected,)] = db.execute("SELECT count(*) FROM rejected_repeats").fetchall()
    summed = sum_breakdowns.add_up(db, plan, by) if distinguishing else None
    db.execute(
        f"UPDATE typed SET kind = {REJECTED} FROM rejected_repeats WHERE typed.row_index = rejected_repeats.row_index"
    )
    db.execute(f"""UPDATE typed SET kind = {DUPLICATE} FROM compared
        WHERE typed.row_index = compared.row_index AND is_copy AND NOT rejected
            AND no NOT IN (SELECT no FROM contradictions
                WHERE NOT breakdown OR incomplete OR unclear_line IS NOT NULL)""")
    warnings = totals | ({"breakdowns_summed": summed} if summed else {})
    return Repeats(
        found=True, rejected=rejected > 0, summed=summed is not None, totals=bool(totals), warnings=warnings
    )
