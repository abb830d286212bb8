"""Last step of reading: text columns → the Arrow batch that `model.sheet` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]


def build(
    row_index: Numbers,
    line: Numbers,
    cells: Numbers | int,
    columns: Sequence[Any],
    surplus: Any,
    fault: Any = None,
) -> Any:
    """One batch. `cells` may be one number for all rows; `surplus` and `fault` are None if no row has any."""
    rows = len(row_index)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(row_index.astype(np.int32)),
            pa.array(line.astype(np.int32)),
            pa.array(np.full(rows, cells, np.int32) if isinstance(cells, int) else cells.astype(np.int32)),
            *columns,
            pa.nulls(rows, pa.string()) if surplus is None else surplus,
            pa.nulls(rows, pa.string()) if fault is None else fault,
        ],
        names=["row_index", "line", "cells", *column_names(len(columns)), "surplus", "fault"],
    )


def column_names(width: int) -> list[str]:
    return [f"c{position}" for position in range(width)]
