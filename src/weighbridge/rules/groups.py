"""Groups of staged rows and their digests: what promotion compares with the receipts of earlier uploads."""

# ruff: noqa: S608 (names of the declaration stand in the SQL quoted, by plan.quoted)

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weighbridge.rules.checked import Checked
from weighbridge.rules.plan import quoted


def groups(checked: Checked) -> Iterator[Any]:
    """Arrow batches of upload_id, workspace_id, group_key, first_seq, last_seq, digest.

    A group is a date of the pipeline's `affected` field, where that leads the grain's key, so that the rows of a
    group stand together. The digest covers every value of every row of the group, in whatever order they came: two
    sums of 64-bit hashes. Where a newer DuckDB hashes otherwise, digests differ, and rows are compared one by one.
    """
    pipeline = checked.plan.pipeline
    grain = pipeline.grain
    if pipeline.affected is None or grain.key[0] != pipeline.affected or not checked.counts[grain.name]:
        return
    row = ", ".join(quoted(column) for column in grain.columns)
    yield from checked.select(
        f"""SELECT any_value(upload_id) AS upload_id, any_value(workspace_id) AS workspace_id,
            CAST({quoted(pipeline.affected)} AS VARCHAR) AS group_key, min(seq) AS first_seq, max(seq) AS last_seq,
            unhex(sha256(concat_ws(':', count(*), sum(hash({row}, 1)), sum(hash(2, {row}))))) AS digest
        FROM ({checked.staged_sql(grain.name)})
        GROUP BY {quoted(pipeline.affected)} ORDER BY first_seq"""
    )


def digest(checked: Checked) -> bytes:
    """Of every row of the grain, in its order, ids of parents included.

    Equal where an earlier attempt numbered the very same rows: then its watermark means the same here.
    """
    grain = checked.plan.pipeline.grain
    row = ", ".join(["seq", *(quoted(column) for column in grain.columns)])
    sums = f"SELECT sum(hash({row}, 1)), sum(hash(2, {row})) FROM ({checked.staged_sql(grain.name)})"
    found = checked.db.sql(sums).fetchall() if checked.counts[grain.name] else []
    return hashlib.sha256(repr((checked.bins, sorted(checked.counts.items()), found)).encode()).digest()


def without(batches: Iterator[Any], ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Any]]:
    """Each batch without the rows whose seq lies in one of the ranges (both ends included), and its last seq."""
    edges = np.array([edge for first, last in ranges for edge in (first, last + 1)])
    for batch in batches:
        seq = batch.column("seq").to_numpy()
        # Left of all edges or between two ranges: an even number of edges is behind.
        yield int(seq[-1]), batch.filter(pa.array(np.searchsorted(edges, seq, side="right") % 2 == 0))
