"""Second check: the decimal mark and the order of day and month, decided once for the whole file.

Read options of the sender (`ReadOptions.decimal`, `date_order`) decide if they are given. Otherwise a cell is evidence
if it can be read in one way only: 12,34 cannot be a thousand, 1,234 impressions cannot be a fraction, 13/7/2025 begins
with the day. A cell that can be read in two ways with different values is ambiguous. Nine tenths of the evidence
decide, and the other cells are rejected. Without evidence, other columns are used to decide the decimal mark. Dates
such as 2025-07-31 decide the order of the others only if both kinds alternate and form one run of days; a warning
reports that assumption, because in a file with only the first day of each month both orders fit.

If the pipeline has a default, ambiguous cells count as evidence for it, if at least one unambiguous cell supports it: a
single typing error such as 12,34 or 13/7/2025 must not change the values of all other lines. If all evidence
contradicts the default, and it is at least a tenth of the cells, the file is read the other way. If it is less, the
cells may be errors or may be right, so the file is refused. Warnings report values that depend on the default
(assumption_warnings.py).
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.model.sheet import SPACE
from weighbridge.rules import date_sql, number_sql
from weighbridge.rules.check_plan import CheckPlan, Column, Locale, composed, filled, literal, texts
from weighbridge.rules.record_source import RecordSource

SHARE = 0.9
LETTERS = 3  # of the currency of an amount; a cell with more letters may contain personal data
_MARKS = (Locale(decimal="."), Locale(decimal=","))
_RUN, _FILLED = (
    3,
    0.75,
)  # different days of each kind, and the share of the days between the first and the last
_DOTTED = "regexp_matches(x2, '^[0-9]+[.]')"


@dataclass(frozen=True)
class TwoReadings:
    """Cells, and the two ways in which they can be read: with decimal point or comma, with month or day first."""

    cells: list[str]  # SQL
    first: str  # regular expressions for the whole cell
    second: str
    differs: str  # SQL over {x}, if both match: do they give different values?

    def fits(self, x: str) -> tuple[str, str]:
        """SQL: can the cell be read in the first way; in the second way?"""
        first, second = (f"regexp_full_match({x}, {literal(way)})" for way in (self.first, self.second))
        return first, second

    def ways(self, x: str) -> tuple[str, str, str]:
        """SQL: only in the first way, only in the second, in both."""
        return self.classes(x, *self.fits(x))

    def classes(self, x: str, first: str, second: str) -> tuple[str, str, str]:
        """The same, if columns already have the results of `fits`."""
        return (
            f"{first} AND NOT {second}",
            f"{second} AND NOT {first}",
            f"{first} AND {second} AND {self.differs.replace('{x}', x)}",
        )


@dataclass(frozen=True)
class Tally:
    """The number of cells that can be read only in the first way, only in the second, or in both."""

    first: int = 0
    second: int = 0
    either: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.first + other.first, self.second + other.second, self.either + other.either)

    @property
    def evidence(self) -> int:
        return self.first + self.second

    @property
    def decided(self) -> int | None:
        """0 for the first way, 1 for the second, None if undecided."""
        for way, count in enumerate((self.first, self.second)):
            if count and count >= SHARE * self.evidence:
                return way
        return None

    @property
    def matters(self) -> bool:
        return self != Tally()

    def with_default(self, way: int | None) -> Tally:
        """Count cells that can be read in both ways for the default of the pipeline, if it has one.

        Except if all evidence contradicts the default: then the evidence decides alone if it is at least a tenth of the
        cells, and otherwise the result is undecided.
        """
        if way is None:
            return self
        expected, other = (self.first, self.second) if way == 0 else (self.second, self.first)
        if other and not expected:
            return self if other >= (1 - SHARE) * (other + self.either) else Tally(either=other + self.either)
        expected += self.either
        return Tally(expected, other) if way == 0 else Tally(other, expected)


def decide(db: Any, plan: CheckPlan, source: RecordSource, *, whole: bool) -> Locale:
    """Decide from the first records, or from all if `whole`: then an undecided result that matters is refused.

    Raises FileRefused: `ambiguous_numbers`, `ambiguous_dates`.
    """
    read = source.records if whole else source.head
    counts, amounts, days = _counts(plan), _amounts(plan), _dates(plan)
    ambiguous_day = days.classes("x2", "a2", "b2")[2]
    more = [_by_two("x0"), _by_two("x1"), f"count(*) FILTER ({ambiguous_day} AND {_DOTTED})"]
    found = _ask(db, texts(plan.columns, read(db)), [counts, amounts, days], "count(*)", more)
    of_counts, of_amounts, of_dates = _in_threes(found[:-3])
    of_numbers = of_counts + of_amounts
    by_two, dotted = found[-3] or found[-2], found[-1]
    # A date with points begins with the day, unless the file shows otherwise.
    of_dates = replace(of_dates, either=of_dates.either - dotted)
    mark, order = _usual_mark(plan, of_numbers, whole=whole), _usual_order(plan, of_dates, whole=whole)
    open_order = whole and order is None and not plan.options.date_order
    if open_order and dotted and not of_dates.matters:
        order = 1
    if mark is None and whole and of_numbers.either:
        [of_others] = _tallies(db, read(db), [_others(plan)])
        mark = of_others.decided
    if open_order and of_dates.either and not of_dates.evidence:
        order = _order_by_run_of_days(db, texts(plan.columns, read(db)), plan)
    if mark is None and not plan.csv:
        mark = 0
    if whole and mark is None and of_numbers.matters:
        raise _ambiguous_numbers(plan, _examples(db, texts(plan.columns, read(db)), [counts, amounts]))
    if open_order and order is None and of_dates.matters:
        raise _ambiguous_dates(plan, _examples(db, texts(plan.columns, read(db)), [days]))
    return Locale(
        decimal="" if mark is None else ".,"[mark],
        day_first=None if order is None else bool(order),
        year_first=plan.options.date_order == "ymd",
        indian=mark == 0
        and (plan.indian or (bool(by_two) and _indian(db, texts(plan.columns, read(db)), [counts, amounts]))),
        zeros=mark is not None and _zeros_are_decimals(mark, of_counts, of_amounts),
        whole=whole,
        against_default=_is_against_default(plan, mark, order),
        mark_shown=mark is not None and (of_numbers.first, of_numbers.second)[mark] > 0,
        order_shown=order is not None and (of_dates.first, of_dates.second)[order] > 0,
    )


def _zeros_are_decimals(mark: int, counts: Tally, amounts: Tally) -> bool:
    """Is a whole number 2.000 two? Only if amounts show the mark, one per two such numbers, and none contradicts."""
    shown, against = (amounts.first, amounts.second) if mark == 0 else (amounts.second, amounts.first)
    against += counts.second if mark == 0 else counts.first
    return not against and shown > 0 and 2 * shown >= counts.either


def mark_is_shown(db: Any, plan: CheckPlan, source: str, mark: str) -> bool:
    """Do the numbers of the source, including unused columns, show that this is the decimal mark?"""
    of_cells = _tallies(db, texts(plan.columns, source), [_counts(plan), _amounts(plan), _others(plan)])
    return sum(of_cells, Tally()).decided == ".,".index(mark)


def ambiguous_amount(plan: CheckPlan, x: str) -> str:
    """SQL: can the number be read in two ways?"""
    return _amounts(plan).ways(x)[2]


def order_ways(plan: CheckPlan) -> TwoReadings:
    """The two ways in which the dates of the file can be read."""
    return _dates(plan)


def _usual_mark(plan: CheckPlan, tally: Tally, *, whole: bool) -> int | None:
    """The mark from the read option, the evidence, or the default of the pipeline."""
    if plan.options.decimal:
        return ".,".index(plan.options.decimal)
    # JSON numbers have a decimal point, even if the default of the pipeline is the comma.
    usual = {".": 0, ",": 1 if plan.csv else None}.get(plan.pipeline.decimal)
    found = tally.with_default(usual).decided
    return usual if found is None and whole and not tally.evidence else found


def _usual_order(plan: CheckPlan, tally: Tally, *, whole: bool) -> int | None:
    if plan.options.date_order:
        return {"mdy": 0, "dmy": 1}.get(plan.options.date_order)
    usual = None if plan.pipeline.day_first is None else int(plan.pipeline.day_first)
    found = tally.with_default(usual).decided
    return usual if found is None and whole and tally.either and not tally.evidence else found


def _is_against_default(plan: CheckPlan, mark: int | None, order: int | None) -> bool:
    """Does the decision differ from the default of the pipeline?"""
    other_mark = plan.pipeline.decimal and mark is not None and ".,"[mark] != plan.pipeline.decimal
    other_order = (
        plan.pipeline.day_first is not None and order is not None and order != plan.pipeline.day_first
    )
    return bool(other_mark and plan.csv) or other_order


def _tallies(db: Any, source: str, readings: list[TwoReadings]) -> list[Tally]:
    return _in_threes(_ask(db, source, readings, "count(*)"))


def _in_threes(counts: Sequence[int]) -> list[Tally]:
    return [Tally(*counts[i : i + 3]) for i in range(0, len(counts), 3)]


def _examples(db: Any, source: str, readings: list[TwoReadings]) -> list[str | None]:
    """A cell for each of the three ways, or None."""
    found = _ask(db, source, readings, "min({x})")
    return [next((cell for cell in found[way::3] if cell is not None), None) for way in range(3)]


def _ask(
    db: Any, source: str, readings: list[TwoReadings], what: str, more: Sequence[str] = ()
) -> tuple[Any, ...]:
    """An aggregate for each class of each reading, from one scan of the source."""
    cells, fits, aggregates = [], [], []
    for i, reading in enumerate(readings):
        cells.append(f"unnest([{', '.join(reading.cells) or 'NULL::VARCHAR'}]) AS x{i}")
        first, second = reading.fits(f"x{i}")
        fits += [f"{first} AS a{i}", f"{second} AS b{i}"]
        ways = reading.classes(f"x{i}", f"a{i}", f"b{i}")
        aggregates += [f"{what.replace('{x}', f'x{i}')} FILTER ({way})" for way in ways]
    laid = f"SELECT *, {', '.join(fits)} FROM (SELECT {', '.join(cells)} FROM {source})"
    [found] = db.execute(f"SELECT {', '.join([*aggregates, *more])} FROM ({laid})").fetchall()
    return tuple(found)


def _by_two(x: str) -> str:
    """SQL: does any number have Indian grouping (or a missing digit)?"""
    return f"bool_or(regexp_matches({x}, ',[0-9]{{2}},[0-9]{{3}}'))"


def _indian(db: Any, source: str, readings: list[TwoReadings]) -> bool:
    """Are all grouped numbers of six digits or more written as 1,23,456? With fewer digits all groupings are equal.

    A single number may have lost a digit. Two different numbers, or one with two groups of two, are evidence.
    """
    patterns = (
        number_sql.BY_TWO,
        "[1-9][0-9]?(?:,[0-9]{2}){2,},[0-9]{3}",
        "[1-9][0-9]{2},[0-9]{3}|[1-9][0-9]{0,2}(?:,[0-9]{3}){2,}",
    )
    by_two, plainly, by_three = (
        f"count(DISTINCT x) FILTER (regexp_full_match(x, {literal(number_sql.grouped(digits))}))"
        for digits in patterns
    )
    cells = ", ".join(cell for reading in readings for cell in reading.cells)
    sql = f"SELECT {by_two} >= 2 OR {plainly} > 0, {by_three} = 0 FROM (SELECT unnest([{cells}]) AS x FROM {source})"
    return all(db.execute(sql).fetchall()[0])


def _counts(plan: CheckPlan) -> TwoReadings:
    return _numbers(
        [c.text for c in _columns_that_need(plan, "{decimal}") if c.field.type is int], whole=True
    )


def _amounts(plan: CheckPlan) -> TwoReadings:
    return _numbers(
        [c.text for c in _columns_that_need(plan, "{decimal}") if c.field.type is not int], whole=False
    )


def _others(plan: CheckPlan) -> TwoReadings:
    """Unused columns: they also show how numbers are written in the file."""
    used = {position for positions in plan.layout.columns.values() for position in positions}
    others = [f"trim(c{p}, {literal(SPACE)})" for p in range(len(plan.layout.header)) if p not in used]
    return _numbers(others, whole=False, open_end=False)  # they may be texts: `Sale 5, red`


def _numbers(cells: list[str], *, whole: bool, open_end: bool = True) -> TwoReadings:
    first, second = (filled(number_sql.readable(whole=whole, open_end=open_end), "", mark) for mark in _MARKS)
    return TwoReadings(cells, first, second, "regexp_matches({x}, '[.,]')")


def _dates(plan: CheckPlan) -> TwoReadings:
    """Dates of digits; a time may follow."""
    month, day = "(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])"
    return TwoReadings(
        [column.text for column in _columns_that_need(plan, "{day_first}")],
        date_sql.in_order(month, day),
        date_sql.in_order(day, month),
        "regexp_extract({x}, '^0?([0-9]+)', 1) <> regexp_extract({x}, '[/.-]0?([0-9]+)', 1)",
    )


def _columns_that_need(plan: CheckPlan, placeholder: str) -> list[Column]:
    """The columns whose rules use this placeholder: the decimal mark, or the order of day and month."""
    return [column for column in plan.columns if column.needs(placeholder)]


def _order_by_run_of_days(db: Any, source: str, plan: CheckPlan) -> int | None:
    """If a daily export mixes 2025-07-02 and 7/3/2025: the order in which all dates form one run of days; else None.

    If all dates of one kind are below all dates of the other, two files were joined: that is no evidence.
    """
    columns = _columns_that_need(plan, "{day_first}")
    cells = ", ".join(column.text for column in columns)
    first, second = (
        ", ".join(f"CAST({composed(column.steps, column.text, order)} AS DATE)" for column in columns)
        for order in (Locale(day_first=False), Locale(day_first=True))
    )

    def fits(way: str, other: str) -> str:
        return f"""bool_and({way} BETWEEN first AND last) AND any_value(filled_{way})
            AND count(DISTINCT {way}) >= {_RUN} AND 2 * count(*) FILTER ({other} BETWEEN first AND last) < count(*)"""

    [found] = db.execute(f"""
        WITH dates AS MATERIALIZED (
            SELECT row_index, unnest([{cells}]) AS x, unnest([{first}]) AS a, unnest([{second}]) AS b FROM {source}),
        sure AS (
            SELECT min(a) - 1 AS first, max(a) + 1 AS last, count(DISTINCT a) >= {_RUN} AS enough,
                min(row_index) AS top, max(row_index) AS bottom
            FROM dates WHERE NOT regexp_matches(x, '^[0-9]{{1,2}}[/.-][0-9]{{1,2}}[/.-]')),
        runs AS (
            SELECT count(DISTINCT a) >= {_FILLED} * (max(a) - min(a) + 1) AS filled_a,
                count(DISTINCT b) >= {_FILLED} * (max(b) - min(b) + 1) AS filled_b FROM dates)
        SELECT any_value(enough) AND min(row_index) < any_value(bottom) AND max(row_index) > any_value(top),
            {fits("a", "b")}, {fits("b", "a")}
        FROM dates, sure, runs WHERE a <> b""").fetchall()
    return {(True, True, False): 0, (True, False, True): 1}.get(found)


def _ambiguous_numbers(plan: CheckPlan, examples: list[str | None]) -> FileRefused:
    got = _contradiction(
        plan,
        examples,
        names=("point", "comma"),
        shown="which needs a decimal {}",
        usual="a decimal {}",
        unclear="which can be read as thousands or as a fraction",
        missing="no number that shows the mark",
    )
    return FileRefused(
        "ambiguous_numbers",
        f"Expected one decimal mark in the whole file, got {got}. "
        "Export amounts with two decimals and without thousands separators, or state the mark: "
        "--decimal . or --decimal ,",
    )


def _ambiguous_dates(plan: CheckPlan, examples: list[str | None]) -> FileRefused:
    got = _contradiction(
        plan,
        examples,
        names=("month", "day"),
        shown="where the {} is first",
        usual="the {} first",
        unclear="where either part can be the month",
        missing="no date that shows the order",
    )
    return FileRefused(
        "ambiguous_dates",
        f"Expected one order of day and month in the whole file, got {got}. "
        "Export dates as 2025-07-31, or state the order: --date-order dmy or --date-order mdy",
    )


def _contradiction(
    plan: CheckPlan,
    examples: list[str | None],
    *,
    names: tuple[str, str],
    shown: str,
    usual: str,
    unclear: str,
    missing: str,
) -> str:
    """The cells that need different readings of the file. `examples`: of the first name, of the second, of either."""
    first, second, either = (_shown(plan, cell) for cell in examples)
    if first and second:
        return f"{first}, {shown.format(names[0])}, and {second}, {shown.format(names[1])}"
    if not (first or second):
        return f"{either}, {unclear}, and {missing}"
    needed, default = names if first else names[::-1]
    return (
        f"{either}, {unclear}, and {first or second}, {shown.format(needed)}, "
        f"although files of this pipeline usually have {usual.format(default)}"
    )


def _shown(plan: CheckPlan, cell: str | None) -> str | None:
    """The cell in quotes; `a cell` if it may contain personal data."""
    if cell and plan.pipeline.personal and sum(map(str.isalpha, cell)) > LETTERS:
        return "a cell"
    return cell and repr(cell)
