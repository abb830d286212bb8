"""What the tests of `formats` share: bytes in, rows out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from weighbridge.formats import open_sheet
from weighbridge.model.sheet import Sheet


@dataclass(frozen=True)
class Row:
    row_index: int
    line: int
    cells: int
    values: list[str | None]
    surplus: str | None
    fault: str | None = None


@dataclass(frozen=True)
class Read:
    """A sheet, read to its end."""

    sheet: Sheet
    rows: list[Row]

    @property
    def values(self) -> list[list[str | None]]:
        return [row.values for row in self.rows]

    @property
    def lines(self) -> list[int]:
        return [row.line for row in self.rows]

    @property
    def adds_up(self) -> bool:
        indexes = [row.row_index for row in self.rows]
        before = len(self.sheet.preamble) + (1 if self.sheet.header_line else 0)
        return indexes == list(range(len(indexes))) and before + len(indexes) == self.sheet.records


def knows(*headers: str) -> Callable[[Sequence[str]], int]:
    """A pipeline that knows these headers."""
    return lambda cells: sum(cell.strip().lower() in headers for cell in cells)


def read_file(path: Path, kind: str, *headers: str, scratch: Path) -> Read:
    sheet = open_sheet(path, kind, count_fields=knows(*headers), scratch=scratch)
    rows = [row for batch in sheet.batches() for row in rows_of(batch, len(sheet.header))]
    return Read(sheet, sorted(rows, key=lambda row: row.row_index))


def rows_of(batch: Any, width: int) -> list[Row]:
    columns = [f"c{position}" for position in range(width)]
    assert batch.schema.names == ["row_index", "line", "cells", *columns, "surplus", "fault"]
    assert [str(field.type) for field in batch.schema] == ["int32"] * 3 + ["string"] * (width + 2)
    return [
        Row(
            r["row_index"], r["line"], r["cells"], [r[column] for column in columns], r["surplus"], r["fault"]
        )
        for r in batch.to_pylist()
    ]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    """`read(data, "keyword", …)`: these bytes as a CSV (or kind="json") file for such a pipeline."""

    def read(data: bytes | str, *headers: str, kind: str = "csv") -> Read:
        path = tmp_path / f"export.{kind}"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        found = read_file(path, kind, *(headers or ("a", "b", "c")), scratch=tmp_path / "scratch")
        assert found.adds_up
        return found

    return read
