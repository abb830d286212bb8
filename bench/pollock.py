"""`python -m bench.pollock FOLDER`: the 2,290 polluted files of the Pollock benchmark through our reader and rules.

FOLDER is a checkout of HPI-Information-Systems/Pollock, or its folder polluted_files. For each file it compares the
accepted rows with the clean rows: a row that is no true row is a wrong row. A refused file or row is not wrong, it only
costs score. The simple score follows the definition of the benchmark: ten measures, each from 0 to 1, averaged over all
files and added up (10 is perfect).

Two pipelines read every file: one whose fields are all text, so that only the structure can give a damaged row away,
and one with typed fields.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from weighbridge import Entity, Field, Pipeline, n
from weighbridge.formats import UnknownHeader, open_sheet, sniff
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Scope
from weighbridge.rules.check import check
from weighbridge.rules.headers import wanted

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
    """What became of a file: its header and the accepted rows as text, or why it was refused."""

    header: Row = ()
    rows: tuple[Row, ...] = ()
    refused: str = ""


def load(path: Path, pipeline: Pipeline, scratch: Path) -> Loaded:
    data = path.read_bytes()
    kind = sniff(data, path.name)
    if kind is None:
        return Loaded(refused="neither CSV nor JSON")
    try:
        sheet = open_sheet(path, kind, wanted=wanted(pipeline, None), scratch=scratch)
        with check(pipeline, sheet, _SCOPE, scratch=scratch) as checked:
            staged = [row for batch in checked.staged(pipeline.grain.name) for row in batch.to_pylist()]
            found = {position: field for field, position in checked.plan.layout.columns.items()}
    except UnknownHeader:
        return Loaded(refused="no_header")
    except FileRefused as refusal:
        return Loaded(refused=refusal.code)
    header = tuple(
        column for column in COLUMNS if any(f"c_{column.lower()}" in each for each in found.values())
    )
    return Loaded(header, tuple(tuple(_text(row[name]) for name in _NAMES) for row in staged))


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


def score(truth: tuple[Row, list[Row]], loaded: Loaded, typed: bool) -> float:
    """The ten measures of one file, added up."""
    header, rows = truth
    if not header and not rows:
        return 10.0
    if loaded.refused and rows:
        return 0.0
    ours = [comparable(row, typed) for row in loaded.rows]
    theirs = [comparable(row, typed) for row in rows]
    cells = [cell for row in [*ours, loaded.header] for cell in row]
    true_cells = [cell for row in [*theirs, header] for cell in row]
    # The benchmark compares records as the text of their cells in one: to it, a record that is shifted is no fault.
    records = _three(["".join(row) for row in theirs], ["".join(row) for row in ours])
    return 1.0 + _three(header, loaded.header) + records + _three(true_cells, cells)


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
    passed = [_report(typed, files, folder, args.verbose) for typed in (False, True)]
    sys.exit(0 if all(passed) else 1)


def _report(typed: bool, files: list[Path], folder: Path, verbose: bool) -> bool:
    name = "typed" if typed else "text"
    pipeline = _pipeline(f"pollock_{name}", typed)
    wrong: list[str] = []
    refused: Counter[str] = Counter()
    total = 0.0
    for path, loaded in _loaded(files, pipeline):
        truth = true_rows(folder / "clean" / path.name)
        known = {comparable(row, typed) for row in truth[1]}
        bad = [row for row in loaded.rows if comparable(row, typed) not in known]
        if bad:
            wrong.append(path.name)
        if loaded.refused:
            refused[loaded.refused] += 1
        if verbose and (bad or loaded.refused):
            print(f"  {path.name}: {loaded.refused or bad[0]}")
        total += score(truth, loaded, typed)
    simple = total / len(files)
    print(f"{name}: {len(files):,} files, {len(wrong)} with a wrong row, simple score {simple:.3f}")
    for code, count in refused.most_common():
        print(f"  refused as {code}: {count}")
    passed = len(wrong) <= MOST_WRONG_FILES and simple >= LEAST_SCORE
    goal = f"at most {MOST_WRONG_FILES} files with a wrong row, a score of at least {LEAST_SCORE}"
    print(f"  {goal}: {'reached' if passed else 'MISSED'}")
    return passed


def _loaded(files: list[Path], pipeline: Pipeline) -> Iterator[tuple[Path, Loaded]]:
    with tempfile.TemporaryDirectory(prefix="wb-pollock-") as scratch:
        for path in files:
            yield path, load(path, pipeline, Path(scratch))


if __name__ == "__main__":
    main()
