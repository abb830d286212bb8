"""`python -m bench.pollock FOLDER`: the 2,290 polluted files of the Pollock benchmark through our reader and rules.

FOLDER is a checkout of HPI-Information-Systems/Pollock, or its folder polluted_files.

The benchmark scores readers: the simple score compares the header and the records that our reader gives with the clean
ones in ten measures, each from 0 to 1, averaged over all files and added up (10 is perfect). A refused file, and a
record that the reader gives up, are not wrong; they only cost score.

What matters more is what production would hold. Two pipelines load every file: one whose fields are all text, so that
only the structure can give a damaged row away, and one with typed fields. An accepted row that is no true row is wrong.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from weighbridge import Entity, Field, Pipeline, n
from weighbridge.formats import UnknownHeader, open_sheet, sniff
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Scope
from weighbridge.rules.headers import field_counter
from weighbridge.rules.run_checks import check

MOST_WRONG_FILES = 10
LEAST_SCORE = 9.929
COLUMNS = (
    "DATE",
    "TIME",
    "Qty",
    "PRODUCTID",
    "Price",
    "ProductType",
    "ProductDescription",
    "URL",
    "Comments",
)
_NAMES = tuple(f"c_{name.lower()}" for name in COLUMNS)
_SCOPE = Scope(UUID(int=1), UUID(int=2))

Row = tuple[str, ...]


def _pipeline(name: str, typed: bool) -> Pipeline:
    kinds: dict[str, Field] = {}
    if typed:
        kinds = {
            "DATE": Field("c_date", date, header=["DATE"], normalise=[n.date]),
            "Qty": Field("c_qty", int, header=["Qty"]),
            "Price": Field("c_price", Decimal, header=["Price"], normalise=[n.money]),
        }
    fields = [
        kinds.get(column, Field(name, header=[column])) for column, name in zip(COLUMNS, _NAMES, strict=True)
    ]
    rows = Entity(f"{name}_rows", ["c_productid"], fields)
    return Pipeline(name, [rows], min_valid=0, day_first=True, decimal=".")


@dataclass(frozen=True)
class Loaded:
    """The result for a file: its header and the accepted rows as text, or why it was refused."""

    header: Row = ()  # of a file that was only read
    rows: tuple[Row, ...] = ()
    refused: str = ""


def read(path: Path, pipeline: Pipeline, scratch: Path) -> Loaded:
    """The file as the reader gives it, without the records that it gives up."""
    try:
        sheet = _sheet(path, pipeline, scratch)
        names = [f"c{place}" for place in range(len(sheet.header))]
        records = [row for batch in sheet.batches() for row in batch.to_pylist() if row["fault"] is None]
    except _Refused as refused:
        return Loaded(refused=str(refused))
    except FileRefused as refusal:
        return Loaded(refused=refusal.code)
    rows = (tuple(row[name] or "" for name in names) for row in records)
    return Loaded(sheet.header, tuple(row for row in rows if any(row)))


def load(path: Path, pipeline: Pipeline, scratch: Path) -> Loaded:
    """The rows that production would hold."""
    try:
        sheet = _sheet(path, pipeline, scratch)
        with check(pipeline, sheet, _SCOPE, scratch=scratch) as checked:
            staged = [row for batch in checked.staged(pipeline.grain.name) for row in batch.to_pylist()]
    except _Refused as refused:
        return Loaded(refused=str(refused))
    except FileRefused as refusal:
        return Loaded(refused=refusal.code)
    return Loaded(rows=tuple(tuple(_text(row[name]) for name in _NAMES) for row in staged))


class _Refused(Exception):
    """The file has no table that can be read."""


def _sheet(path: Path, pipeline: Pipeline, scratch: Path) -> Any:
    kind = sniff(path.read_bytes(), path.name)
    if kind is None:
        raise _Refused("neither CSV nor JSON")
    try:
        return open_sheet(path, kind, count_fields=field_counter(pipeline, None), scratch=scratch)
    except UnknownHeader:
        raise _Refused("no_header") from None


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case date():
            return value.strftime("%d/%m/%Y")
        case _:
            return str(value)


def true_rows(path: Path) -> tuple[Row, list[Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [tuple(row) for row in csv.reader(file)]
    return (rows[0], rows[1:]) if rows else ((), [])


def comparable(row: Row, typed: bool) -> Row:
    """A row as both sides write it: spaces at the ends do not count, a price is a number."""
    cells = [cell.strip() for cell in row]
    if typed and len(cells) == len(COLUMNS):
        try:
            cells[4] = str(Decimal(cells[4].lstrip("$")).normalize())
            cells[2] = str(int(cells[2]))
        except (ArithmeticError, ValueError):
            pass
    return tuple(cells)


def score(truth: tuple[Row, list[Row]], ours: Loaded) -> float:
    """The ten measures of one file, added up."""
    header, rows = truth
    if not header and not rows:
        return 10.0
    if ours.refused and rows:
        return 0.0
    # The benchmark compares records as the text of all their cells: to it, a record that is shifted is no fault.
    records = _three([_joined(row) for row in rows], [_joined(row) for row in ours.rows])
    return (
        1.0
        + _three(header, ours.header)
        + records
        + _three(_cells(header, rows), _cells(ours.header, ours.rows))
    )


def _joined(row: Row) -> str:
    return "".join(cell.strip() for cell in row)


def _cells(header: Row, rows: Sequence[Row]) -> list[str]:
    return [cell.strip() for row in [header, *rows] for cell in row]


def _three(true: Sequence[object], ours: Sequence[object]) -> float:
    if not true:
        return 3.0
    common = sum((Counter(true) & Counter(ours)).values())
    if not common:
        return 0.0
    first, second = common / len(true), common / len(ours)
    return first + second + 2 * first * second / (first + second)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pollock", description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of HPI-Information-Systems/Pollock")
    parser.add_argument(
        "--verbose", action="store_true", help="name every file with a wrong row or a refusal"
    )
    args = parser.parse_args()
    folder = args.folder / "polluted_files" if (args.folder / "polluted_files").exists() else args.folder
    files = sorted((folder / "csv").glob("*.csv"))
    if not files:
        parser.error(f"{folder}: expected a folder csv with files in it, got none")
    passed = [
        _score(files, folder),
        *(_wrong_rows(typed, files, folder, args.verbose) for typed in (False, True)),
    ]
    sys.exit(0 if all(passed) else 1)


def _score(files: list[Path], folder: Path) -> bool:
    pipeline = _pipeline("pollock_reader", typed=False)
    total = sum(
        score(true_rows(folder / "clean" / path.name), ours) for path, ours in _each(read, files, pipeline)
    )
    simple = total / len(files)
    passed = simple >= LEAST_SCORE
    print(f"reader: simple score {simple:.3f} (at least {LEAST_SCORE}: {'reached' if passed else 'MISSED'})")
    return passed


def _wrong_rows(typed: bool, files: list[Path], folder: Path, verbose: bool) -> bool:
    name = "typed" if typed else "text"
    wrong: list[str] = []
    refused: Counter[str] = Counter()
    for path, loaded in _each(load, files, _pipeline(f"pollock_{name}", typed)):
        known = {comparable(row, typed) for row in true_rows(folder / "clean" / path.name)[1]}
        bad = [row for row in loaded.rows if comparable(row, typed) not in known]
        if bad:
            wrong.append(path.name)
        if loaded.refused:
            refused[loaded.refused] += 1
        if verbose and (bad or loaded.refused):
            print(f"  {path.name}: {loaded.refused or bad[0]}")
    passed = len(wrong) <= MOST_WRONG_FILES
    goal = f"at most {MOST_WRONG_FILES}: {'reached' if passed else 'MISSED'}"
    print(f"{name} fields: {len(wrong)} of {len(files):,} files with a wrong row ({goal})")
    for code, count in refused.most_common():
        print(f"  refused as {code}: {count}")
    return passed


def _each(
    way: Callable[[Path, Pipeline, Path], Loaded], files: list[Path], pipeline: Pipeline
) -> Iterator[tuple[Path, Loaded]]:
    with tempfile.TemporaryDirectory(prefix="wb-pollock-") as scratch:
        for path in files:
            yield path, way(path, pipeline, Path(scratch))


if __name__ == "__main__":
    main()
