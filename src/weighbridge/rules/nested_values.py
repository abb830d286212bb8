"""Called by run_checks.py: objects and lists in a JSON file, which a text field stores as JSON text."""

from __future__ import annotations

from weighbridge.model.sheet import Sheet, WithNested
from weighbridge.rules.check_plan import CheckPlan
from weighbridge.rules.headers import listed


def warnings(plan: CheckPlan, sheet: Sheet) -> dict[str, str]:
    """The warning `nested_values`, with the columns. A field of another type rejects such a value."""
    if not isinstance(sheet, WithNested):
        return {}
    texts = {plan.layout.header[p] for c in plan.columns if c.field.type is str for p in c.cells}
    found = [header for header in sheet.nested if header in texts]
    if not found:
        return {}
    line = min(sheet.nested[header] for header in found)
    return {
        "nested_values": f"Expected text in {listed(found)}, got an object or a list (first on line {line}). "
        "It was loaded as JSON text. To load its parts, export them as columns."
    }
