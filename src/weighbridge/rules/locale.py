"""Second of the checks: the decimal mark and the order of day and month, decided once for the whole file.

The sender's word (`ReadOptions.decimal`, `date_order`) comes first. Without it, a cell is evidence when it can be read
one way only: 12,34 is no thousand, and 1,234 impressions are no fraction; 13/7/2025 starts with the day. A cell that
reads both ways, differently, is ambiguous. Nine tenths of the evidence decide; cells of the other tenth are rejected,
each for itself. Where there is no evidence, other columns are asked for the decimal mark. Dates such as 2025-07-31
decide about the order of the others only where both alternate and fill one run of days, and that is reported as an
assumption: in a file of every month's first, both orders fit.

Where the pipeline says how its files are written, cells that read both ways are evidence for that, if at least one cell
shows it: a slip of the keyboard, 12,34 or 13/7/2025, must not turn a thousand into one, or March into April, on every
other line. Where all evidence is against what is usual, a tenth of the cells decides: such a file is written the other
way. Fewer may be slips or may be right, so the file is refused. Values that rest on what is usual, and not on the file,
are reported: see `assumed`.
"""

# ruff: noqa: S608 (names and texts of the file stand in the SQL quoted, by plan.quoted and plan.literal)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.model.space import SPACE
from weighbridge.rules import dates, numbers
from weighbridge.rules.plan import Column, Locale, Plan, composed, filled, literal, texts

SHARE = 0.9
LETTERS = 3  # of an amount with its currency
_MARKS = (Locale(decimal="."), Locale(decimal=","))
_RUN, _FILLED = (
    3,
    0.75,
)  # different days of each kind, and the share of the days between the first and the last
_DOTTED = "regexp_matches(x2, '^[0-9]+[.]')"


@dataclass(frozen=True)
class Reading:
    """Cells, and the two ways in which they can be read."""

    cells: list[str]  # SQL
    first: str  # regular expressions over the whole cell
    second: str
    differs: str  # SQL over {x}, where both fit: do they read different things?

    def fits(self, x: str) -> tuple[str, str]:
        """SQL: can the cell be read the first way, and the second?"""
        first, second = (f"regexp_full_match({x}, {literal(way)})" for way in (self.first, self.second))
        return first, second

    def ways(self, x: str) -> tuple[str, str, str]:
        """SQL: only the first way, only the second, either way."""
        return self.classes(x, *self.fits(x))

    def classes(self, x: str, first: str, second: str) -> tuple[str, str, str]:
        """The same, where columns already hold what `fits` gives."""
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
    def evidence(self) -> int:
        return self.first + self.second

    @property
    def verdict(self) -> int | None:
        """0 for the first way, 1 for the second, None where it stays open."""
        for way, count in enumerate((self.first, self.second)):
            if count and count >= SHARE * self.evidence:
                return way
        return None

    @property
    def matters(self) -> bool:
        return self != Tally()

    def leaning(self, way: int | None) -> Tally:
        """With what can be read either way counted for the one that is expected, if one is.

        Not where all evidence is against it: that decides alone if it is no slip, and else nothing does. More than
        half of all days are over twelve.
        """
        if way is None:
            return self
        expected, other = (self.first, self.second) if way == 0 else (self.second, self.first)
        if other and not expected:
            return self if other >= (1 - SHARE) * (other + self.either) else Tally(either=other + self.either)
        expected += self.either
        return Tally(expected, other) if way == 0 else Tally(other, expected)


def decide(db: Any, plan: Plan, open_source: Callable[[], str], *, whole: bool) -> Locale:
    """Weigh the cells of the source. If it is the whole file, what stays open although it matters is refused:
    `ambiguous_numbers`, `ambiguous_dates`."""
    counts, amounts, days = _counts(plan), _amounts(plan), _dates(plan)
    ambiguous_day = days.classes("x2", "a2", "b2")[2]
    more = [_by_two("x0"), _by_two("x1"), f"count(*) FILTER ({ambiguous_day} AND {_DOTTED})"]
    found = _ask(db, texts(plan.columns, open_source()), [counts, amounts, days], "count(*)", more)
    of_counts, of_amounts, of_dates = _in_threes(found[:-3])
    of_numbers = of_counts + of_amounts
    by_two, dotted = found[-3] or found[-2], found[-1]
    # With points between its parts a date starts with the day, unless the file says otherwise.
    of_dates = replace(of_dates, either=of_dates.either - dotted)
    mark, order = _usual_mark(plan, of_numbers, whole=whole), _usual_order(plan, of_dates, whole=whole)
    open_order = whole and order is None and not plan.options.date_order
    if open_order and dotted and not of_dates.matters:
        order = 1
    if mark is None and whole and of_numbers.either:
        [of_others] = _tallies(db, open_source(), [_others(plan)])
        mark = of_others.verdict
    if open_order and of_dates.either and not of_dates.evidence:
        order = _order_by_run_of_days(db, texts(plan.columns, open_source()), plan)
    if mark is None and not plan.csv:
        mark = 0
    if whole and mark is None and of_numbers.matters:
        raise _ambiguous_numbers(plan, _examples(db, texts(plan.columns, open_source()), [counts, amounts]))
    if open_order and order is None and of_dates.matters:
        raise _ambiguous_dates(plan, _examples(db, texts(plan.columns, open_source()), [days]))
    return Locale(
        decimal="" if mark is None else ".,"[mark],
        day_first=None if order is None else bool(order),
        year_first=plan.options.date_order == "ymd",
        indian=mark == 0
        and (
            plan.indian
            or (bool(by_two) and _indian(db, texts(plan.columns, open_source()), [counts, amounts]))
        ),
        zeros=mark is not None and _zeros_are_decimals(mark, of_counts, of_amounts),
        whole=whole,
        unusual=_is_unusual(plan, mark, order),
        mark_shown=mark is not None and (of_numbers.first, of_numbers.second)[mark] > 0,
        order_shown=order is not None and (of_dates.first, of_dates.second)[order] > 0,
    )


def _zeros_are_decimals(mark: int, counts: Tally, amounts: Tally) -> bool:
    """Are 2.000 pieces two? Amounts must show the mark, one for every two such numbers, and none another."""
    shown, against = (amounts.first, amounts.second) if mark == 0 else (amounts.second, amounts.first)
    against += counts.second if mark == 0 else counts.first
    return not against and shown > 0 and 2 * shown >= counts.either


def mark_is_shown(db: Any, plan: Plan, source: str, mark: str) -> bool:
    """Do the numbers of the source, or of columns that no field uses, show that this is the decimal mark?"""
    of_cells = _tallies(db, texts(plan.columns, source), [_counts(plan), _amounts(plan), _others(plan)])
    return sum(of_cells, Tally()).verdict == ".,".index(mark)


def ambiguous_amount(plan: Plan, x: str) -> str:
    """SQL: can the number be read in two ways?"""
    return _amounts(plan).ways(x)[2]


def order_ways(plan: Plan) -> Reading:
    """How the dates of the file show the order of day and month."""
    return _dates(plan)


def _usual_mark(plan: Plan, tally: Tally, *, whole: bool) -> int | None:
    """By the sender's word, the evidence, or what is usual in the pipeline."""
    if plan.options.decimal:
        return ".,".index(plan.options.decimal)
    # JSON's own numbers have a point, whatever is usual.
    usual = {".": 0, ",": 1 if plan.csv else None}.get(plan.pipeline.decimal)
    found = tally.leaning(usual).verdict
    return usual if found is None and whole and not tally.evidence else found


def _usual_order(plan: Plan, tally: Tally, *, whole: bool) -> int | None:
    if plan.options.date_order:
        return {"mdy": 0, "dmy": 1}.get(plan.options.date_order)
    usual = None if plan.pipeline.day_first is None else int(plan.pipeline.day_first)
    found = tally.leaning(usual).verdict
    return usual if found is None and whole and tally.either and not tally.evidence else found


def _is_unusual(plan: Plan, mark: int | None, order: int | None) -> bool:
    """Has the file decided against what is usual in the pipeline?"""
    other_mark = plan.pipeline.decimal and mark is not None and ".,"[mark] != plan.pipeline.decimal
    other_order = (
        plan.pipeline.day_first is not None and order is not None and order != plan.pipeline.day_first
    )
    return bool(other_mark and plan.csv) or other_order


def _tallies(db: Any, source: str, readings: list[Reading]) -> list[Tally]:
    return _in_threes(_ask(db, source, readings, "count(*)"))


def _in_threes(counts: Sequence[int]) -> list[Tally]:
    return [Tally(*counts[i : i + 3]) for i in range(0, len(counts), 3)]


def _examples(db: Any, source: str, readings: list[Reading]) -> list[str | None]:
    """A cell for each of the three ways, or None."""
    found = _ask(db, source, readings, "min({x})")
    return [next((cell for cell in found[way::3] if cell is not None), None) for way in range(3)]


def _ask(
    db: Any, source: str, readings: list[Reading], what: str, more: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Of the three ways in which the cells of each reading fit, all from one scan: its columns are laid end to end."""
    cells, fits, asked = [], [], []
    for i, reading in enumerate(readings):
        cells.append(f"unnest([{', '.join(reading.cells) or 'NULL::VARCHAR'}]) AS x{i}")
        first, second = reading.fits(f"x{i}")
        fits += [f"{first} AS a{i}", f"{second} AS b{i}"]
        ways = reading.classes(f"x{i}", f"a{i}", f"b{i}")
        asked += [f"{what.replace('{x}', f'x{i}')} FILTER ({way})" for way in ways]
    laid = f"SELECT *, {', '.join(fits)} FROM (SELECT {', '.join(cells)} FROM {source})"
    [found] = db.execute(f"SELECT {', '.join([*asked, *more])} FROM ({laid})").fetchall()
    return tuple(found)


def _by_two(x: str) -> str:
    """SQL: is any number grouped as in India, or has it lost a digit?"""
    return f"bool_or(regexp_matches({x}, ',[0-9]{{2}},[0-9]{{3}}'))"


def _indian(db: Any, source: str, readings: list[Reading]) -> bool:
    """Are all grouped numbers of six digits or more written as 1,23,456? With fewer digits all groupings look the same.

    A single one may have lost a digit. Two different ones, or two groups of two in one, show how the file is written.
    """
    patterns = (
        numbers.BY_TWO,
        "[1-9][0-9]?(?:,[0-9]{2}){2,},[0-9]{3}",
        "[1-9][0-9]{2},[0-9]{3}|[1-9][0-9]{0,2}(?:,[0-9]{3}){2,}",
    )
    by_two, plainly, by_three = (
        f"count(DISTINCT x) FILTER (regexp_full_match(x, {literal(numbers.grouped(digits))}))"
        for digits in patterns
    )
    cells = ", ".join(cell for reading in readings for cell in reading.cells)
    sql = f"SELECT {by_two} >= 2 OR {plainly} > 0, {by_three} = 0 FROM (SELECT unnest([{cells}]) AS x FROM {source})"
    return all(db.execute(sql).fetchall()[0])


def _counts(plan: Plan) -> Reading:
    return _numbers([c.text for c in _asking(plan, "{decimal}") if c.field.type is int], whole=True)


def _amounts(plan: Plan) -> Reading:
    return _numbers([c.text for c in _asking(plan, "{decimal}") if c.field.type is not int], whole=False)


def _others(plan: Plan) -> Reading:
    """Columns that no field uses still show how the file writes its numbers."""
    used = {position for positions in plan.layout.columns.values() for position in positions}
    others = [f"trim(c{p}, {literal(SPACE)})" for p in range(len(plan.layout.header)) if p not in used]
    return _numbers(others, whole=False, open_end=False)  # they may be texts: `Sale 5, red`


def _numbers(cells: list[str], *, whole: bool, open_end: bool = True) -> Reading:
    first, second = (filled(numbers.readable(whole=whole, open_end=open_end), "", mark) for mark in _MARKS)
    return Reading(cells, first, second, "regexp_matches({x}, '[.,]')")


def _dates(plan: Plan) -> Reading:
    """Dates of digits; a time may stand behind."""
    month, day = "(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])"
    return Reading(
        [column.text for column in _asking(plan, "{day_first}")],
        dates.in_order(month, day),
        dates.in_order(day, month),
        "regexp_extract({x}, '^0?([0-9]+)', 1) <> regexp_extract({x}, '[/.-]0?([0-9]+)', 1)",
    )


def _asking(plan: Plan, placeholder: str) -> list[Column]:
    """The fields whose rules ask for the decimal mark, or for the order of day and month."""
    return [column for column in plan.columns if column.asks(placeholder)]


def _order_by_run_of_days(db: Any, source: str, plan: Plan) -> int | None:
    """Where a daily export alternates between 2025-07-02 and 7/3/2025: the order in which all are days of one run.

    Rows with dates of the one kind below all of the other are two files in one, which may have anything in common.
    """
    columns = _asking(plan, "{day_first}")
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


def _ambiguous_numbers(plan: Plan, examples: list[str | None]) -> FileRefused:
    point, comma, either = (_shown(plan, cell) for cell in examples)
    if point and comma:
        got = f"{point}, which needs a decimal point, and {comma}, which needs a decimal comma"
    elif point or comma:
        mark, usual = ("point", "comma") if point else ("comma", "point")
        got = (
            f"{either}, which can be read as thousands or as a fraction, and {point or comma}, which needs a "
            f"decimal {mark}, although files of this pipeline usually have a {usual}"
        )
    else:
        got = f"{either}, which can be read as thousands or as a fraction, and no number that shows the mark"
    return FileRefused(
        "ambiguous_numbers",
        f"Expected one decimal mark in the whole file, got {got}. "
        "Export amounts with two decimals and without thousands separators, or name the mark: "
        "--decimal . or --decimal ,",
    )


def _ambiguous_dates(plan: Plan, examples: list[str | None]) -> FileRefused:
    month, day, either = (_shown(plan, cell) for cell in examples)
    if month and day:
        got = f"{month}, where the month comes first, and {day}, where the day does"
    elif month or day:
        first, usual = ("month", "day") if month else ("day", "month")
        got = (
            f"{either}, where either can be the month, and {month or day}, where the {first} comes first, "
            f"although in files of this pipeline the {usual} usually does"
        )
    else:
        got = f"{either}, where either can be the month, and no date that shows the order"
    return FileRefused(
        "ambiguous_dates",
        f"Expected one order of day and month in the whole file, got {got}. "
        "Export dates as 2025-07-31, or name the order: --date-order dmy or --date-order mdy",
    )


def _shown(plan: Plan, cell: str | None) -> str | None:
    """The cell in quotes. In a personal pipeline a cell with words may be a person's."""
    if cell and plan.pipeline.personal and sum(map(str.isalpha, cell)) > LETTERS:
        return "a cell"
    return cell and repr(cell)
