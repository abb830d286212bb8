"""After dimensions.py: typed records → rows of the grain, with the numbers of their entities, ordered by key."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.rules import dimensions
from weighbridge.rules.check_plan import CheckPlan, quoted
from weighbridge.rules.record_kinds import ACCEPTED, REJECTED


def build(db: Any, plan: CheckPlan) -> None:
    """Create `grain` from the accepted records. The position of a row in it is its seq.

    Rows are in the order of the unique key, so that promotion writes the index from left to right.
    """
    columns = [column for name in plan.pipeline.grain.columns if (column := grain_column(plan, name))]
    order = [f"{key} NULLS LAST" for key in key_columns(plan)]
    db.make(
        "grain",
        f"""SELECT {", ".join(["row_index", "line", *columns])}
        FROM typed {dimensions.join(plan)} WHERE kind = {ACCEPTED} ORDER BY {", ".join([*order, "row_index"])}""",
    )


def find_rejected_keys(db: Any, plan: CheckPlan) -> None:
    """Create `rejected_keys`: the keys of the rejected records, and whether their key could be read (`readable`)."""
    own = [f"{plan.pipeline.grain.name}.{name}" for name in plan.pipeline.grain.key]
    readable = [f"{quoted(name)} IS NOT NULL" for name in own if name in plan.pipeline.required]
    links = ""
    if plan.dimension_columns:
        links = "LEFT JOIN rejected_links USING (combo)"
        readable.append("coalesce(readable, false)")
    db.make(
        "rejected_keys",
        f"""SELECT row_index, line, {", ".join(key_columns(plan))}, {" AND ".join(readable) or "true"} AS readable
        FROM typed {links} WHERE kind = {REJECTED}""",
    )


def key_columns(plan: CheckPlan) -> list[str]:
    """The key columns of `grain`. Raises FileRefused: `missing_column`."""
    found = [column for name in plan.pipeline.grain.key if (column := grain_column(plan, name))]
    if not found:
        expected = " or ".join(plan.pipeline.grain.key)
        got = ", ".join(repr(cell) for cell in plan.layout.header)
        raise FileRefused("missing_column", f"Expected a column for {expected}, got {got}.")
    return found


def value_columns(plan: CheckPlan) -> list[str]:
    return [column for name in plan.pipeline.grain.values if (column := grain_column(plan, name))]


def grain_column(plan: CheckPlan, name: str) -> str | None:
    """The column of `grain` for a declared column; None if it has the same value in the whole file."""
    for ref in plan.pipeline.grain.refs:
        if ref.name == name:
            entity = plan.pipeline.entity(ref.entity)
            return dimensions.number(entity) if entity in dimensions.entities(plan) else None
    full = f"{plan.pipeline.grain.name}.{name}"
    return quoted(full) if full in plan.grain_values else None
