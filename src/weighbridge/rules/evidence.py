"""Second of the checks: the decimal mark and the order of day and month, decided once for the whole file.

A cell is evidence when its field can be read one way only: 12,34 is no thousand, and 1,234 impressions are
no fraction; 13/7/2025 starts with the day. A cell that reads both ways, differently, is ambiguous. Nine
tenths of the evidence decide; the other tenth is left to be rejected, cell by cell. Where there is none,
other columns are asked for the decimal mark, and dates that are sure for the weeks that the others must be
of.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.model.rule import Normaliser
from weighbridge.rules import normalise
from weighbridge.rules.plan import SPACE, Locale, Plan, composed, literal, texts

SHARE = 0.9
NEAR = 7  # days
_MARKS = (Locale(decimal="."), Locale(decimal=","))
_ORDERS = (Locale(day_first=False), Locale(day_first=True))


@dataclass(frozen=True)
class Reading:
    """Cells that go through the same rules, and the two ways in which those can read them."""

    cells: tuple[str, ...]
    steps: tuple[Normaliser, ...]
    ways: tuple[Locale, Locale]

    def sql(self, x: str, way: int) -> str:
        return composed(self.steps, x, self.ways[way])


@dataclass(frozen=True)
class Tally:
    """How many cells can be read only the first way, only the second, or either way; an example of each."""

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
    numbers, dates = _tallies(
        db,
        texts(plan.columns, plan, open_source()),
        [_fields(plan, "{decimal}"), _fields(plan, "{day_first}")],
    )
    mark, order = numbers.verdict, dates.verdict
    if mark is None and whole and numbers.either:
        [others] = _tallies(db, open_source(), [_other_columns(plan)])
        mark = others.verdict
    if order is None and whole and dates.either:
        order = _order_by_sure_dates(
            db, texts(plan.columns, plan, open_source()), _fields(plan, "{day_first}")
        )
    if mark is None and not plan.csv:
        mark = 0  # JSON's own numbers have a point
    if whole and mark is None and numbers.matters:
        raise _ambiguous_numbers(numbers)
    if whole and order is None and dates.matters:
        raise _ambiguous_dates(dates)
    return Locale("" if mark is None else ".,"[mark], None if order is None else bool(order))


def _tallies(db: Any, source: str, groups: list[list[Reading]]) -> list[Tally]:
    """A tally for each group, all from one scan: the columns that are read alike are laid end to end."""
    readings = [reading for group in groups for reading in group]
    if not readings:
        return [Tally() for _ in groups]
    cells, read, asked = [], [], []
    for i, reading in enumerate(readings):
        cells.append(f"unnest([{', '.join(reading.cells)}]) AS x{i}")
        read += [f"x{i}", f"{reading.sql(f'x{i}', 0)} AS a{i}", f"{reading.sql(f'x{i}', 1)} AS b{i}"]
        for way in (
            f"b{i} IS NULL AND a{i} IS NOT NULL",
            f"a{i} IS NULL AND b{i} IS NOT NULL",
            f"a{i} <> b{i}",
        ):
            asked += [f"count(*) FILTER ({way})", f"any_value(x{i}) FILTER ({way})"]
    laid = f"SELECT {', '.join(cells)} FROM {source}"
    [found] = db.execute(
        f"SELECT {', '.join(asked)} FROM (SELECT {', '.join(read)} FROM ({laid}))"
    ).fetchall()
    each = [
        Tally(found[i], found[i + 2], found[i + 4], examples=found[i + 1 : i + 6 : 2])
        for i in range(0, len(found), 6)
    ]
    return [sum((each.pop(0) for _ in group), Tally()) for group in groups]


def _order_by_sure_dates(db: Any, source: str, readings: list[Reading]) -> int | None:
    """Where the file has dates that read one way only, as 2025-07-31, the others are of the same weeks."""
    cells = " UNION ALL ".join(
        f"SELECT {reading.sql('x', 0)} AS a, {reading.sql('x', 1)} AS b"
        f" FROM (SELECT unnest(x{i}) AS x FROM cells)"
        for i, reading in enumerate(readings)
    )
    lists = ", ".join(f"[{', '.join(reading.cells)}] AS x{i}" for i, reading in enumerate(readings))
    fits = db.execute(f"""
        WITH cells AS MATERIALIZED (SELECT {lists} FROM {source}), dates AS MATERIALIZED ({cells}),
        sure AS (SELECT min(a) - {NEAR} AS first, max(a) + {NEAR} AS last FROM dates WHERE a = b)
        SELECT bool_and(a BETWEEN first AND last), bool_and(b BETWEEN first AND last)
        FROM dates, sure WHERE a <> b""").fetchall()[0]
    return {(True, False): 0, (False, True): 1}.get(fits)


def _fields(plan: Plan, placeholder: str) -> list[Reading]:
    """The fields whose rules ask for the decimal mark, or for the order of day and month."""
    alike: dict[tuple[Normaliser, ...], list[str]] = {}
    for column in plan.columns:
        if any(placeholder in step.expression for step in column.steps):
            alike.setdefault(column.steps, []).append(column.text)
    ways = _MARKS if placeholder == "{decimal}" else _ORDERS
    return [Reading(tuple(cells), steps, ways) for steps, cells in alike.items()]


def _other_columns(plan: Plan) -> list[Reading]:
    """Columns that no field uses still show how the file writes its numbers."""
    used = {position for positions in plan.layout.columns.values() for position in positions}
    others = [f"trim(c{p}, {literal(SPACE)})" for p in range(len(plan.layout.header)) if p not in used]
    return [
        Reading(tuple(others), (step,), _MARKS) for step in (normalise.money, normalise.percent) if others
    ]


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
