"""After typing: local times that a clock change skips or repeats. When clocks are set forward, 02:30 does not exist.
When they are set back, it exists twice, and the file does not show which is meant. DuckDB accepts both without an
error, so such records are rejected here. Files without a time zone, which are most files, are not checked.
"""

# ruff: noqa: S608 (names and texts of the file are quoted in the SQL, by check_plan.quoted and check_plan.literal)

from __future__ import annotations

from typing import Any

from weighbridge.rules import date_sql
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
from weighbridge.rules.field_errors import FieldError
from weighbridge.rules.record_kinds import ACCEPTED, REJECTED

_SESSION = "current_setting('TimeZone')"  # the zone that the file names above its header, or UTC


def reject(db: Any, plan: CheckPlan, locale: Locale, column: Column) -> bool:
    """Reject the accepted records whose time is such a one. Were there any?"""
    own = column in plan.grain_columns
    name = quoted(unusual_name(column))
    source = "typed" if own else texts([column], "combos")
    x, key = (name, name) if own else (plan.unusual_text(column), "combo")
    value = composed(column.steps, "x", locale, plan.today)
    wrong = " OR ".join(f"({fault})" for fault in (_skipped("x", "v"), _twice("x", "v")))
    changed = db.execute(f"""UPDATE typed SET kind = {REJECTED} WHERE kind = {ACCEPTED} AND {key} IN (
        SELECT key FROM (SELECT key, x, {value} AS v FROM (SELECT DISTINCT {key} AS key, {x} AS x FROM {source}))
        WHERE {wrong})""")
    return bool(changed.fetchall()[0][0])


def faults(column: Column) -> list[FieldError]:
    """Of rejected records."""
    x, v = column.text, column.value
    return [
        FieldError(
            column,
            _skipped(x, v),
            "no_such_time",
            "a time that exists in its zone",
            "Clocks go forward over it on that day: correct it, or write its offset, as in 2025-03-30T02:30:00+01:00.",
        ),
        FieldError(
            column,
            _twice(x, v),
            "ambiguous_time",
            "a time that exists once in its zone",
            "Clocks go back over it on that day: write its offset, as in 2025-10-26T02:30:00+02:00.",
        ),
    ]


def _skipped(x: str, v: str) -> str:
    """SQL: the hour and minute on the clock are not those that the cell has."""
    on_clock = f"date_part('hour', {v} AT TIME ZONE {_zone(x)}) * 60 + date_part('minute', {v} AT TIME ZONE {_zone(x)})"
    # 20250330T0230 has no colon.
    written = rf"regexp_replace({x}, '^([0-9]{{8}}T[0-9]{{2}})([0-9]{{2}})', '\1:\2')"
    hour, minute = (
        f"TRY_CAST(regexp_extract({written}, '([0-9]{{1,2}}):([0-9]{{2}})', {part}) AS INTEGER)"
        for part in (1, 2)
    )
    # By twelve hours: the cell may have AM or PM.
    return f"{_by_clock(x)} AND ({on_clock}) % 720 <> ({hour} * 60 + {minute}) % 720"


def _twice(x: str, v: str) -> str:
    """SQL: an hour ago clocks showed less than an hour less. DuckDB takes the second of two times."""
    an_hour_ago = f"({v} - INTERVAL 1 HOUR) AT TIME ZONE {_zone(x)}"
    return f"{_by_clock(x)} AND {an_hour_ago} > ({v} AT TIME ZONE {_zone(x)}) - INTERVAL 1 HOUR"


def _by_clock(x: str) -> str:
    """SQL: the time has no offset, but the zone of a region."""
    with_zone = f"regexp_full_match({x}, {literal(date_sql.WITH_ZONE)})"
    return f"(regexp_matches({x}, '{date_sql.REGION_BEHIND}') OR {_SESSION} <> 'UTC' AND NOT {with_zone})"


def _zone(x: str) -> str:
    return f"coalesce(nullif(regexp_extract({x}, '{date_sql.REGION_BEHIND}'), ''), {_SESSION})"
