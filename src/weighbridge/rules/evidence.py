"""Second of the checks: the decimal mark and the order of day and month, decided once for the whole file.

A cell is evidence when its field can be read one way only: 12,34 is no thousand, and 1,234 impressions are no
fraction; 13/7/2025 starts with the day. A cell that reads both ways, differently, is ambiguous. Nine tenths of the
evidence decide; the other tenth is left to be rejected, cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.rules import normalise
from weighbridge.rules.plan import SPACE, Locale, Plan, filled, literal, stages

SHARE = 0.9
_MARKS = (Locale(decimal="."), Locale(decimal=","))
_ORDERS = (Locale(day_first=False), Locale(day_first=True))

Cell = tuple[str, str, str]  # SQL: the text, what it is read the first way, what it is read the second way


@dataclass(frozen=True)
class Tally:
    """How many cells can be read only the first way, only the second way, or either way; an example of each."""

    first: int = 0
    second: int = 0
    either: int = 0
    examples: tuple[str | None, ...] = (None, None, None)

    def __add__(self, other: Tally) -> Tally:
        examples = tuple(mine or theirs for mine, theirs in zip(self.examples, other.examples, strict=True))
        return Tally(
            self.first + other.first, self.second + other.second, self.either + other.either, examples
        )

    @property
    def verdict(self) -> int | None:
        """0 for the first way, 1 for the second, None where it stays open."""
        evidence = self.first + self.second
        for way, count in enumerate((self.first, self.second)):
            if count and count >= SHARE * evidence:
                return way
        return None

    @property
    def matters(self) -> bool:
        return bool(self.either or self.first or self.second)


def decide(db: Any, plan: Plan, open_source: Callable[[], str], *, whole: bool) -> Locale:
    """Weigh the cells of the source. If it is the whole file, what stays open although it matters is refused:
    `ambiguous_numbers`, `ambiguous_dates`."""
    texts = stages(plan, Locale(), "{source}", levels=0)
    numbers, dates = _tallies(db, texts, open_source, [_cells(plan, "{decimal}"), _cells(plan, "{day_first}")])
    mark, order = numbers.verdict, dates.verdict
    if mark is None and whole and numbers.either:
        [others] = _tallies(db, "{source}", open_source, [_other_cells(plan)])
        mark = others.verdict
    if mark is None and not plan.csv:
        mark = 0  # JSON's own numbers have a point
    if whole and mark is None and numbers.matters:
        raise _ambiguous_numbers(numbers)
    if whole and order is None and dates.matters:
        raise _ambiguous_dates(dates)
    return Locale("" if mark is None else ".,"[mark], None if order is None else bool(order))


def _tallies(db: Any, texts: str, open_source: Callable[[], str], groups: list[list[Cell]]) -> list[Tally]:
    kinds = "{a} IS NOT NULL AND {b} IS NULL", "{a} IS NULL AND {b} IS NOT NULL", "{a} <> {b}"
    read, asked = [], []
    for i, (text, first, second) in enumerate(cell for group in groups for cell in group):
        read += [f"{text} AS x{i}", f"{first} AS a{i}", f"{second} AS b{i}"]
        conditions = [kind.format(a=f"a{i}", b=f"b{i}") for kind in kinds]
        asked += [f"count(*) FILTER ({condition})" for condition in conditions]
        asked += [f"any_value(x{i}) FILTER ({condition})" for condition in conditions]
    if not asked:
        return [Tally() for _ in groups]
    source = texts.replace("{source}", open_source())
    found = list(db.execute(f"SELECT {', '.join(asked)} FROM (SELECT {', '.join(read)} FROM {source})").fetchall()[0])
    tallies = []
    for group in groups:
        tally = Tally()
        for _ in group:
            first, second, either, *examples = found[:6]
            tally += Tally(first, second, either, tuple(examples))
            del found[:6]
        tallies.append(tally)
    return tallies


def _cells(plan: Plan, token: str) -> list[Cell]:
    """The fields whose rules ask for the decimal mark, or for the order of day and month."""
    ways = _MARKS if token == "{decimal}" else _ORDERS
    found = []
    for column in plan.columns:
        if any(token in step.expression for step in column.steps):
            read = []
            for way in ways:
                sql = column.text
                for step in column.steps:
                    sql = filled(step.expression, f"({sql})", way)
                read.append(sql)
            found.append((column.text, read[0], read[1]))
    return found


def _other_cells(plan: Plan) -> list[Cell]:
    """Columns that no field uses still show how the file writes its numbers."""
    used = {position for positions in plan.layout.columns.values() for position in positions}
    found = []
    for position in sorted(set(range(len(plan.layout.header))) - used):
        text = f"trim(c{position}, {literal(SPACE)})"
        first, second = (
            f"coalesce({filled(normalise.money.expression, text, way)}, "
            f"{filled(normalise.percent.expression, text, way)})"
            for way in _MARKS
        )
        found.append((text, first, second))
    return found


def _ambiguous_numbers(tally: Tally) -> FileRefused:
    point, comma, either = tally.examples
    if tally.first and tally.second:
        got = f"{point!r}, which has a decimal point, and {comma!r}, which has a decimal comma"
    else:
        got = f"{either!r}, which can be read as thousands or as a fraction, and nothing that tells"
    return FileRefused(
        "ambiguous_numbers",
        f"Expected one decimal mark in the whole file, got {got}. "
        "Export amounts with two decimals and without thousands separators.",
    )


def _ambiguous_dates(tally: Tally) -> FileRefused:
    month, day, either = tally.examples
    if tally.first and tally.second:
        got = f"{month!r}, where the month comes first, and {day!r}, where the day does"
    else:
        got = f"{either!r}, where either can be the month, and nothing that tells"
    return FileRefused(
        "ambiguous_dates",
        f"Expected one order of day and month in the whole file, got {got}. Export dates as 2025-07-31.",
    )
