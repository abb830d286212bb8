"""Fifth of the checks: records with the same key.

Equal ones are the same fact told twice: the first is accepted, the others count as duplicates. Where their
values differ, none can be trusted: all are rejected as `conflicting_repeat`.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.rules.typed import DUPLICATE, REJECTED


def mark(db: Any, keys: list[str], values: list[str]) -> bool:
    """Give the repeats in `grain` their kind in `typed`, and note in `judged` which line each contradicts.

    False: there are none.
    """
    key = ", ".join(keys)
    repeated = f"SELECT {key} FROM grain GROUP BY {key} HAVING count(*) > 1"
    if not db.execute(f"SELECT count(*) FROM ({repeated})").fetchall()[0][0]:
        return False
    same = " AND ".join(f"grain.{name} IS NOT DISTINCT FROM repeated.{name}" for name in keys)
    db.execute(f"""CREATE OR REPLACE TEMP TABLE judged AS
        WITH grain AS (SELECT grain.* FROM grain JOIN ({repeated}) AS repeated ON {same}),
        repeated AS (
            SELECT {key}, count(DISTINCT ({", ".join([*values, "0"])})) > 1 AS conflict,
                min(row_index) AS first, list_sort(list(line))[:2] AS lines
            FROM grain GROUP BY {key})
        SELECT grain.row_index, conflict, grain.row_index = first AS is_first,
            CASE WHEN grain.row_index = first THEN lines[2] ELSE lines[1] END AS other_line
        FROM grain JOIN repeated ON {same}""")
    db.execute(f"""UPDATE typed SET kind = CASE WHEN conflict THEN {REJECTED} ELSE {DUPLICATE} END
        FROM judged WHERE typed.row_index = judged.row_index AND (conflict OR NOT is_first)""")
    return True
