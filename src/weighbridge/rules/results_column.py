"""After the checks: a warning about conversions that were read from a column of results, which may count anything."""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.model.sheet import SPACE
from weighbridge.rules.check_plan import CheckPlan, literal
from weighbridge.rules.headers import fold
from weighbridge.rules.record_source import RecordSource

SHOWN = 3
_UNKNOWN = "The file does not name the counted results."


def warnings(db: Any, plan: CheckPlan, source: RecordSource) -> dict[str, str]:
    """The warning `results_as_conversions`, with the counted results that the first records name."""
    results = plan.profile.results if plan.profile else None
    header = plan.layout.mapping.get(results.field) if results else None
    if results is None or header is None or fold(header) not in set(map(fold, results.headers)):
        return {}
    label = plan.pipeline.fields[results.field].name.replace("_", " ")
    sentence = f"The {label} were read from {header!r}, which counts what each campaign is optimised for."
    indicators = set(map(fold, results.indicators))
    position = next((i for i, cell in enumerate(plan.layout.header) if fold(cell) in indicators), None)
    if position is None:
        return {"results_as_conversions": f"{sentence} {_UNKNOWN}"}
    cell = f"trim(c{position}, {literal(SPACE)})"
    rows = db.execute(
        f"SELECT {cell}, count(*) FROM {source.head(db)} WHERE {cell} <> ''"
        f" GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {SHOWN + 1}"
    ).fetchall()
    if not rows:
        return {"results_as_conversions": f"{sentence} {_UNKNOWN}"}
    shown = ", ".join(repr(value) for value, _ in rows[:SHOWN])
    more = " and others" if len(rows) > SHOWN else ""
    return {
        "results_as_conversions": f"{sentence} The column {plan.layout.header[position]!r} has {shown}{more}."
    }
