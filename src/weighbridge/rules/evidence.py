"""Second of the checks: the decimal mark and the order of day and month, decided once for the whole file.

A cell is evidence when it can be read one way only: 12,34 is no thousand, and 1,234 impressions are no
fraction; 13/7/2025 starts with the day. A cell that reads both ways, differently, is ambiguous. Nine tenths
of the evidence decide; the other tenth is left to be rejected, cell by cell. Where there is none, other
columns are asked for the decimal mark, and dates that are sure for the weeks that the others must be of.

Where the pipeline says how its files are written, cells that read both ways are evidence for that: a slip of the
keyboard, 12,34 or 13/7/2025, must not turn a thousand into one, or March into April, on every other line. A tenth of
the cells is no slip: where nothing says otherwise, such a file is written the other way.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.rules import numbers
from weighbridge.rules.plan import SPACE, Column, Locale, Plan, composed, filled, literal, texts

SHARE = 0.9
NEAR = 7  # days
_MARKS = (Locale(decimal="."), Locale(decimal=","))
_ORDERS = (Locale(day_first=False), Locale(day_first=True))


@dataclass(frozen=True)
class Reading:
    """Cells, and the two ways in which they can be read."""

    cells: list[str]  # SQL
    first: str  # regular expressions over the whole cell
    second: str
    differs: str  # SQL over {x}, where both fit: do they read different things?

    def ways(self, x: str) -> tuple[str, str, str]:
        """SQL: only the first way, only the second, either way."""
        first, second = (f"regexp_full_match({x}, {literal(way)})" for way in (self.first, self.second))
        return (
            f"{first} AND NOT {second}",
            f"{second} AND NOT {first}",
            f"{first} AND {second} AND {self.differs.replace('{x}', x)}",
        )


@dataclass(frozen=True)
class Tally:
    """How many cells can be read only the first way, only the second, or either way."""

    first: int = 0
    second: int = 0
    either: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.first + other.first, self.second + other.second, self.either + other.either)

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
        return self != Tally()

    def leaning(self, way: int | None) -> Tally:
        """With what can be read either way counted for the one that is expected, if one is.

        Not where all that tells, tells otherwise, and is no slip: more than half of all days are over twelve.
        """
        if way is None:
            return self
        expected, other = (self.first, self.second) if way == 0 else (self.second, self.first)
        if not expected and other >= (1 - SHARE) * (other + self.either):
            return self
        expected += self.either
        return Tally(expected, other) if way == 0 else Tally(other, expected)


def decide(db: Any, plan: Plan, open_source: Callable[[], str], *, whole: bool) -> Locale:
    """Weigh the cells of the source. If it is the whole file, what stays open although it matters is refused:
    `ambiguous_numbers`, `ambiguous_dates`."""
    columns = texts(plan.columns, open_source())
    counts, amounts, dates = _counts(plan), _amounts(plan), _dates(plan)
    of_counts, of_amounts, of_dates = _tallies(db, columns, [counts, amounts, dates])
    of_numbers = of_counts + of_amounts
    # JSON's own numbers have a point, whatever is usual.
    usual_mark = {".": 0, ",": 1 if plan.csv else None}.get(plan.pipeline.decimal)
    usual_order = None if plan.pipeline.day_first is None else int(plan.pipeline.day_first)
    mark, order = of_numbers.leaning(usual_mark).verdict, of_dates.leaning(usual_order).verdict
    if mark is None and whole:
        mark = usual_mark
    if order is None and whole:
        order = usual_order
    if mark is None and whole and of_numbers.either:
        [of_others] = _tallies(db, open_source(), [_others(plan)])
        mark = of_others.verdict
    if order is None and whole and of_dates.either:
        order = _order_by_sure_dates(db, texts(plan.columns, open_source()), plan)
    if mark is None and not plan.csv:
        mark = 0
    if whole and mark is None and of_numbers.matters:
        raise _ambiguous_numbers(_examples(db, texts(plan.columns, open_source()), [counts, amounts]))
    if whole and order is None and of_dates.matters:
        raise _ambiguous_dates(_examples(db, texts(plan.columns, open_source()), [dates]))
    return Locale("" if mark is None else ".,"[mark], None if order is None else bool(order))


def _tallies(db: Any, source: str, readings: list[Reading]) -> list[Tally]:
    """All from one scan: the columns of a reading are laid end to end."""
    found = _ask(db, source, readings, "count(*)")
    return [Tally(*found[i : i + 3]) for i in range(0, len(found), 3)]


def _examples(db: Any, source: str, readings: list[Reading]) -> list[str | None]:
    """A cell for each of the three ways, or None."""
    found = _ask(db, source, readings, "min({x})")
    return [next((cell for cell in found[way::3] if cell is not None), None) for way in range(3)]


def _ask(db: Any, source: str, readings: list[Reading], what: str) -> tuple[Any, ...]:
    cells, asked = [], []
    for i, reading in enumerate(readings):
        cells.append(f"unnest([{', '.join(reading.cells) or 'NULL::VARCHAR'}]) AS x{i}")
        asked += [f"{what.replace('{x}', f'x{i}')} FILTER ({way})" for way in reading.ways(f"x{i}")]
    sql = f"SELECT {', '.join(asked)} FROM (SELECT {', '.join(cells)} FROM {source})"
    [found] = db.execute(sql).fetchall()
    return tuple(found)


def _counts(plan: Plan) -> Reading:
    return _numbers([c.text for c in _asking(plan, "{decimal}") if c.field.type is int], whole=True)


def _amounts(plan: Plan) -> Reading:
    return _numbers([c.text for c in _asking(plan, "{decimal}") if c.field.type is not int], whole=False)


def _others(plan: Plan) -> Reading:
    """Columns that no field uses still show how the file writes its numbers."""
    used = {position for positions in plan.layout.columns.values() for position in positions}
    others = [f"trim(c{p}, {literal(SPACE)})" for p in range(len(plan.layout.header)) if p not in used]
    return _numbers(others, whole=False)


def _numbers(cells: list[str], *, whole: bool) -> Reading:
    first, second = (filled(numbers.readable(whole=whole), "", mark) for mark in _MARKS)
    return Reading(cells, first, second, "regexp_matches({x}, '[.,]')")


def _dates(plan: Plan) -> Reading:
    month, day = "(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])"
    return Reading(
        [column.text for column in _asking(plan, "{day_first}")],
        f"{month}[/-]{day}[/-][0-9]{{4}}",
        f"{day}[/-]{month}[/-][0-9]{{4}}",
        "regexp_extract({x}, '^0?([0-9]+)', 1) <> regexp_extract({x}, '[/-]0?([0-9]+)', 1)",
    )


def _asking(plan: Plan, placeholder: str) -> list[Column]:
    """The fields whose rules ask for the decimal mark, or for the order of day and month."""
    return [c for c in plan.columns if any(placeholder in step.expression for step in c.steps)]


def _order_by_sure_dates(db: Any, source: str, plan: Plan) -> int | None:
    """Where the file has dates such as 2025-07-31, the others are of the same weeks.

    7/7/2025 is no such date: a file of every month's seventh has it too.
    """
    columns = _asking(plan, "{day_first}")
    cells = ", ".join(column.text for column in columns)
    first, second = (
        ", ".join(composed(column.steps, column.text, order) for column in columns) for order in _ORDERS
    )
    fits = db.execute(f"""
        WITH dates AS MATERIALIZED (
            SELECT unnest([{cells}]) AS x, unnest([{first}]) AS a, unnest([{second}]) AS b FROM {source}),
        sure AS (
            SELECT min(a) - {NEAR} AS first, max(a) + {NEAR} AS last
            FROM dates WHERE NOT regexp_matches(x, '^[0-9]{{1,2}}[/-]'))
        SELECT bool_and(a BETWEEN first AND last), bool_and(b BETWEEN first AND last)
        FROM dates, sure WHERE a <> b""").fetchall()[0]
    return {(True, False): 0, (False, True): 1}.get(fits)


def _ambiguous_numbers(examples: list[str | None]) -> FileRefused:
    point, comma, either = examples
    if point and comma:
        got = f"{point!r}, which has a decimal point, and {comma!r}, which has a decimal comma"
    else:
        got = f"{either!r}, which can be read as thousands or as a fraction, and nothing that tells"
    return FileRefused(
        "ambiguous_numbers",
        f"Expected one decimal mark in the whole file, got {got}. "
        "Export amounts with two decimals and without thousands separators.",
    )


def _ambiguous_dates(examples: list[str | None]) -> FileRefused:
    month, day, either = examples
    if month and day:
        got = f"{month!r}, where the month comes first, and {day!r}, where the day does"
    else:
        got = f"{either!r}, where either can be the month, and nothing that tells"
    return FileRefused(
        "ambiguous_dates",
        f"Expected one order of day and month in the whole file, got {got}. Export dates as 2025-07-31.",
    )
