"""Typed records → rows of the grain: each with the numbers of its entities, in the order of its unique key."""

from __future__ import annotations

from typing import Any

from weighbridge.rules import dimensions
from weighbridge.rules.plan import Plan, quoted
from weighbridge.rules.typed import ACCEPTED


def build(db: Any, plan: Plan) -> None:
    """Make `facts` from the accepted records of `typed`."""
    columns = [column for column in map(lambda name: stored(plan, name), plan.pipeline.grain.columns) if column]
    db.execute(f"""CREATE OR REPLACE TEMP TABLE facts AS
        SELECT row_index, line, {", ".join(columns)}
        FROM typed {dimensions.join(plan)} WHERE kind = {ACCEPTED}""")


def sort(db: Any, plan: Plan) -> None:
    """Make `grain`: the facts in the order of the unique key, so that promotion writes its index from left to right.

    A row's place in the table is its seq.
    """
    order = ", ".join(f"{key} NULLS LAST" for key in keys(plan)) or "row_index"
    db.execute(f"CREATE TEMP TABLE grain AS SELECT * FROM facts ORDER BY {order}")
    db.execute("DROP TABLE facts")


def keys(plan: Plan) -> list[str]:
    return [column for name in plan.pipeline.grain.key if (column := stored(plan, name))]


def values(plan: Plan) -> list[str]:
    return [column for name in plan.pipeline.grain.values if (column := stored(plan, name))]


def stored(plan: Plan, name: str) -> str | None:
    """The column of `facts` that holds a column of the grain; None where it is the same for the whole file."""
    for ref in plan.pipeline.grain.refs:
        if ref.name == name:
            entity = plan.pipeline.entity(ref.entity)
            return dimensions.number(entity) if dimensions.present(entity, plan) else None
    full = f"{plan.pipeline.grain.name}.{name}"
    return quoted(full) if full in plan.layout.columns else None
