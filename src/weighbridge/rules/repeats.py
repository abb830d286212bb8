"""Fifth of the checks: records with the same key.

Equal ones are the same fact told twice: the first is accepted, the others count as duplicates. Where their
values differ, none can be trusted: all are rejected as `conflicting_repeat`. Unless the grain's upsert policy combines
them: then the first is accepted with the values of all.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.rules.typed import DUPLICATE, REJECTED


def mark(db: Any, keys: list[str], values: list[str], combined: str | None) -> bool:
    """Give the repeats in `grain` their kind in `typed`, and note in `judged` which line each contradicts.

    `combined` is an aggregate over `{x}` that makes one value of theirs. False: there are no repeats.
    """
    key = ", ".join(keys)
    repeated = f"SELECT {key} FROM grain GROUP BY {key} HAVING count(*) > 1"
    if not db.execute(f"SELECT count(*) FROM ({repeated})").fetchall()[0][0]:
        return False
    same = " AND ".join(f"grain.{name} IS NOT DISTINCT FROM repeated.{name}" for name in keys)
    differ = "false" if combined else f"count(DISTINCT ({', '.join([*values, '0'])})) > 1"
    db.execute(f"""CREATE OR REPLACE TEMP TABLE judged AS
        WITH grain AS (SELECT grain.* FROM grain JOIN ({repeated}) AS repeated ON {same}),
        repeated AS (
            SELECT {key}, {differ} AS conflict,
                min(row_index) AS first, list_sort(list(line))[:2] AS lines
            FROM grain GROUP BY {key})
        SELECT grain.row_index, conflict, grain.row_index = first AS is_first,
            CASE WHEN grain.row_index = first THEN lines[2] ELSE lines[1] END AS other_line
        FROM grain JOIN repeated ON {same}""")
    db.execute(f"""UPDATE typed SET kind = CASE WHEN conflict THEN {REJECTED} ELSE {DUPLICATE} END
        FROM judged WHERE typed.row_index = judged.row_index AND (conflict OR NOT is_first)""")
    if combined and values:
        made = ", ".join(f"{combined.replace('{x}', value)} AS {value}" for value in values)
        taken = ", ".join(f"{value} = combined.{value}" for value in values)
        db.execute(f"""UPDATE typed SET {taken}
            FROM (SELECT min(row_index) AS first, {made} FROM grain SEMI JOIN judged USING (row_index)
                GROUP BY {key}) AS combined
            WHERE typed.row_index = combined.first""")
    return True
