"""After classify_records.py: warnings about values that depend on an assumption.

While records are typed, texts of an ambiguous or unusual form are stored next to the values
(`CheckPlan.unusual_text`). Here the texts of accepted records are examined, each distinct text once.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weighbridge.rules import currencies, date_sql, dropped_currencies, two_digit_years
from weighbridge.rules import decimal_and_date_order as rules_locale
from weighbridge.rules.check_plan import (
    CheckPlan,
    Column,
    Locale,
    composed,
    literal,
    quoted,
    texts,
    unusual_name,
)
from weighbridge.rules.record_kinds import ACCEPTED
from weighbridge.rules.record_source import RecordSource


def warnings(
    db: Any, plan: CheckPlan, locale: Locale, source: RecordSource, *, zone: str | None
) -> dict[str, str]:
    """By code: `two_digit_years`, `zone_assumed`, `date_order_assumed`, `decimal_assumed`, `ranges_reduced`,
    `several_currencies`, `currency_not_stored`.

    `zone` is the time zone that the file names above its header. In a personal pipeline no message shows a cell.

    Raises FileRefused: `ambiguous_dates`, if two-digit years may be first.
    """
    columns = _with_unusual_texts(db, plan)
    found = [_Dates.of(db, plan, c, locale) for c in columns if c.needs("{day_first}")]
    if any(each.short_year is not None for each in found) and not plan.options.date_order:
        two_digit_years.refuse(db, plan, [_unusual_texts(c, plan) for c in columns if c.needs("{day_first}")])
    by_code = {
        "two_digit_years": _two_digit_years(found, plan),
        "zone_assumed": _zone_assumed(found) if zone is None else None,
        "date_order_assumed": _order_assumed(found, plan, locale),
        "decimal_assumed": _mark_assumed(db, plan, locale, columns, source),
        "ranges_reduced": _ranges_reduced(db, plan, locale, columns),
        **dropped_currencies.warnings(
            db, plan, [(c, _unusual_texts(c, plan, currencies.MAY_NAME_ONE)) for c in columns], source
        ),
    }
    return {code: sentence for code, sentence in by_code.items() if sentence is not None}


def by_clock(db: Any, plan: CheckPlan, *, zone: str | None) -> list[Column]:
    """The columns with times in the time zone of a region: after the time, or named above the header for all times."""
    times = [column for column in plan.columns if column.field.type is datetime]
    if not times:
        return []
    return [
        column
        for column in _with_unusual_texts(db, plan)
        if column in times and (zone is not None or _names_region(db, plan, column))
    ]


def _names_region(db: Any, plan: CheckPlan, column: Column) -> bool:
    region = f"regexp_matches(x, '{date_sql.REGION_BEHIND}')"
    return bool(
        db.execute(f"SELECT bool_or({region}) FROM ({_unusual_texts(column, plan)})").fetchall()[0][0]
    )


def _with_unusual_texts(db: Any, plan: CheckPlan) -> list[Column]:
    """The columns that have unusual texts; most files have none."""
    own = [column for column in plan.grain_columns if plan.unusual_text(column)]
    shared = [column for column in plan.dimension_columns if plan.unusual_text(column)]
    if not own:
        return shared
    counts = ", ".join(f"count({quoted(unusual_name(column))})" for column in own)
    [found] = db.execute(f"SELECT {counts} FROM typed WHERE kind = {ACCEPTED}").fetchall()
    return [*(column for column, count in zip(own, found, strict=True) if count), *shared]


@dataclass(frozen=True)
class _Dates:
    """Examples from the unusual texts of one column, each with its value, or None."""

    short_year: str | None  # in a date of digits: its position depends on the order
    short_year_by_name: str | None
    without_zone: str | None
    ambiguous: str | None
    sure: bool  # a date of the column can be read in one order only

    @classmethod
    def of(cls, db: Any, plan: CheckPlan, column: Column, locale: Locale) -> _Dates:
        order = rules_locale.order_ways(plan)
        first, second = order.fits("x")
        only_first, only_second, either = order.classes("x", "a", "b")
        short, by_name, zoned, zoneless = (
            f"regexp_full_match(x, {literal(way)})"
            for way in (
                date_sql.SHORT_YEAR_OF_DIGITS,
                date_sql.SHORT_YEAR_BY_NAME,
                date_sql.WITH_ZONE,
                date_sql.WITHOUT_ZONE,
            )
        )
        without_zone = f"{zoneless} AND NOT {zoned}" if column.field.type is datetime else "false"
        [(*examples, sure)] = db.execute(
            f"""SELECT min(x) FILTER ({short}), min(x) FILTER ({by_name}), min(x) FILTER ({without_zone}),
                min(x) FILTER ({either}), count(*) FILTER ({only_first} OR {only_second}) > 0
            FROM (SELECT x, {first} AS a, {second} AS b FROM ({_unusual_texts(column, plan)}))"""
        ).fetchall()
        short_year, short_year_by_name, unzoned, ambiguous = (
            cell and _read(db, plan, column, cell, locale) for cell in examples
        )
        return cls(short_year, short_year_by_name, unzoned, ambiguous, sure)


def _two_digit_years(found: list[_Dates], plan: CheckPlan) -> str | None:
    of_digits = next((each.short_year for each in found if each.short_year is not None), None)
    by_name = next((each.short_year_by_name for each in found if each.short_year_by_name is not None), None)
    example = by_name if of_digits is None else of_digits
    if example is None:
        return None
    open_order = of_digits is not None and not plan.options.date_order
    hint = " If the order is wrong, upload the file again with --date-order dmy, mdy or ymd."
    return (
        f"Some years have two digits{example}. 00 to 68 mean 2000 to 2068, 69 to 99 mean 1969 to 1999."
        f"{hint if open_order else ''}"
    )


def _zone_assumed(found: list[_Dates]) -> str | None:
    example = next((each.without_zone for each in found if each.without_zone is not None), None)
    if example is None:
        return None
    return (
        f"Times without a time zone were read as UTC{example}. "
        "Write the zone after the time, as in 2025-07-31T14:30:00+02:00."
    )


def _order_assumed(found: list[_Dates], plan: CheckPlan, locale: Locale) -> str | None:
    example = next((each.ambiguous for each in found if each.ambiguous is not None), None)
    shown = plan.options.date_order or locale.order_shown or any(each.sure for each in found)
    if example is None or shown:
        return None
    order, other = ("month", "dmy") if locale.day_first is False else ("day", "mdy")
    return (
        f"The {order} was assumed to be first in dates{example}. No date in the file shows the order. "
        f"If this is wrong, delete the rows of this upload and load the file again with --date-order {other}"
    )


def _mark_assumed(
    db: Any, plan: CheckPlan, locale: Locale, columns: list[Column], source: RecordSource
) -> str | None:
    amounts = [
        c for c in columns if c.needs("{decimal}") and c.field.type is not int and not locale.mark_shown
    ]
    example = next(
        (read for c in amounts if (read := _ambiguous_amount(db, plan, c, locale)) is not None), None
    )
    # The first records did not show the mark; the others may.
    if example is None or rules_locale.mark_is_shown(db, plan, source.records(db), locale.decimal):
        return None
    other = "," if locale.decimal == "." else "."
    return (
        f"The decimal mark was assumed to be {locale.decimal!r}{example}. No number in the file shows the mark. "
        f"If this is wrong, load the file again with --decimal {other}{_keeps(plan)}"
    )


def _keeps(plan: CheckPlan) -> str:
    """The hint to delete rows first, if loading again does not replace every value."""
    policy = plan.pipeline.grain.upsert
    if policy.name in ("replace", "keep_known_values"):
        return ""
    return f" after deleting its rows (the policy of the table is {policy.name})"


def _ambiguous_amount(db: Any, plan: CheckPlan, column: Column, locale: Locale) -> str | None:
    sql = f"SELECT min(x) FILTER ({rules_locale.ambiguous_amount(plan, 'x')}) FROM ({_unusual_texts(column, plan)})"
    [(cell,)] = db.execute(sql).fetchall()
    return cell and _read(db, plan, column, cell, locale)


def _ranges_reduced(db: Any, plan: CheckPlan, locale: Locale, columns: list[Column]) -> str | None:
    sentences = []
    for column in columns:
        reduces = " OR ".join(step.reduces for step in column.steps if step.reduces).replace("{x}", "x")
        if not reduces:
            continue
        [(cell, texts)] = db.execute(
            f"SELECT min(x), count(*) FROM ({_unusual_texts(column, plan)}) WHERE {reduces}"
        ).fetchall()
        if cell:
            many = f" ({texts} different texts)" if texts > 1 else ""
            sentences.append(f"{column.header!r}{many}{_read(db, plan, column, cell, locale)}")
    if not sentences:
        return None
    return (
        "Some cells contain a range or a bound. Only one number is stored: the lower end of a range, or the number of "
        f"a bound such as <10%. Columns: {'; '.join(sentences)}."
    )


def _unusual_texts(column: Column, plan: CheckPlan, where: str = "true") -> str:
    """SELECT each distinct unusual text of the column as x, if the condition `where` over {x} is true."""
    x = quoted(unusual_name(column)) if column in plan.grain_columns else f"{plan.unusual_text(column)}"
    condition = where.replace("{x}", x)
    if column in plan.grain_columns:
        return f"SELECT DISTINCT {x} AS x FROM typed WHERE kind = {ACCEPTED} AND {condition}"
    used = [column, column.currency] if column.currency else [column]
    return f"SELECT DISTINCT {x} AS x FROM {texts(used, 'combos')} WHERE {condition}"


def _read(db: Any, plan: CheckPlan, column: Column, cell: str, locale: Locale) -> str:
    """`: '01/05/24' was read as 2024-05-01`; empty in a personal pipeline."""
    if plan.pipeline.personal:
        return ""
    value = composed(column.steps, literal(cell), locale, plan.today)
    [(read,)] = db.execute(f"SELECT CAST({value} AS VARCHAR)").fetchall()
    shown = cell if len(cell) <= 40 else f"{cell[:40]}…"
    return f": {shown!r} was read as {read}"
