"""Called by dialect.py and delimited.py: checks cells under empty names at the end of a header, as in `Key,Amount,`.

These cells must be empty. A record with one cell too many has as many cells as such a header, and its values would be
read under the wrong names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weighbridge.model.errors import FileRefused
from weighbridge.model.sheet import SPACE

ENOUGH = 3  # records that are needed to decide that a name is missing in the header
FAULT = "unnamed_cell"


def unnamed_from(header: Sequence[str]) -> int:
    """The position after the last name."""
    return max((place + 1 for place, cell in enumerate(header) if cell.strip()), default=len(header))


def refuse_unnamed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Refuse the file if most records have text under an empty name at the end of the header.

    Raises FileRefused: `header_too_short`.
    """
    first = unnamed_from(header)
    if first == len(header):
        return
    rows = [row for row in rows if any(map(str.strip, row))]
    filled = sum(any(map(str.strip, row[first : len(header)])) for row in rows)
    if len(rows) >= ENOUGH and 2 * filled > len(rows):
        raise FileRefused(
            "header_too_short",
            f"The header ends with an empty name after {header[first - 1]!r}, and most records have text under it. "
            "Either a name is missing in the header: add it. Or the records have one cell too many: check their quotes "
            "and separators.",
        )


def reject_unnamed(batch: Any, header: Sequence[str]) -> Any:
    """The batch, with a fault for each record that has text under an empty name at the end of the header."""
    filled = None
    for place in range(unnamed_from(header), len(header)):
        cell = pc.utf8_trim(batch.column(f"c{place}"), SPACE)
        here = pc.fill_null(pc.greater(pc.binary_length(cell), 0), fill_value=False)
        filled = here if filled is None else pc.or_(filled, here)
    if filled is None or not pc.any(filled).as_py():
        return batch
    place = batch.schema.get_field_index("fault")
    fault = pc.coalesce(batch.column(place), pc.if_else(filled, FAULT, pa.scalar(None, pa.string())))
    return batch.set_column(place, "fault", fault)
