"""Last step of reading CSV: the lines that cannot be read → a batch of records without cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from weighbridge.formats import arrow_batch
from weighbridge.formats.scan import Block


def unreadable(block: Block, first: int, width: int) -> Any:
    """The broken records of a block. `first` is the row index of the first record of the block."""
    places = np.array([each.place for each in block.broken], np.int64)
    return arrow_batch.build(
        first + places,
        block.lines[places],
        0,
        [pa.nulls(len(places), pa.string())] * width,
        pa.array([each.text for each in block.broken], pa.string()),
        pa.array([each.code for each in block.broken], pa.string()),
    )
