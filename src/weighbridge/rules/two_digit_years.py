"""Called by assumption_warnings.py: refuses dates such as 25-01-05, which begin with the day or with a two-digit year.

Both orders are plausible, so one cell is no evidence. Many cells are: in one file, days change and years hardly change.
If the last part has more different values than the first, or as many with hyphens as in 2025-01-05, the year may be
first, and the file is refused.
"""

# ruff: noqa: S608 (the regular expressions are ours)

from __future__ import annotations

from typing import Any

from weighbridge.model.errors import FileRefused
from weighbridge.rules.check_plan import CheckPlan

_PARTS = "^([0-9]{1,2})([/.-])([0-9]{1,2})[/.-]([0-9]{1,4})(?:[^0-9].*)?$"
MONTHS = 12


def refuse(db: Any, plan: CheckPlan, selects: list[str]) -> None:
    """`selects` give the texts of accepted dates as `x`. Raises FileRefused: `ambiguous_dates`."""
    names = "['first', 'between', 'month', 'last']"
    year = "2000 + CAST(part.first AS INTEGER)"
    # A report has no dates after next year. Without `today`, every year is possible.
    latest = plan.today.year + 1 if plan.today else 2068
    [(firsts, lasts, hyphens, highest, fits, example)] = db.execute(f"""
        SELECT count(DISTINCT part.first), count(DISTINCT part.last), bool_and(part.between = '-'),
            max(CAST(part.first AS INTEGER)), bool_and(length(part.first) = 2 AND length(part.last) <= 2
                AND CAST(part.month AS INTEGER) BETWEEN 1 AND 12 AND CAST(part.last AS INTEGER) BETWEEN 1 AND 31
                AND {year} <= {latest}), max(x)
        FROM (SELECT x, regexp_extract(x, '{_PARTS}', {names}) AS part FROM ({" UNION ALL ".join(selects)}))
        WHERE part.first <> ''""").fetchall()
    running = lasts > firsts or (lasts == firsts and hyphens)
    # If the first part is always twelve or less, the default of the pipeline was used, and there is a warning.
    decided = plan.pipeline.day_first is not None and highest <= MONTHS
    if not (fits and running) or decided:
        return
    got = "dates" if plan.pipeline.personal else f"{example!r}"
    raise FileRefused(
        "ambiguous_dates",
        f"Expected one order of day, month and year, got {got} with a two-digit year, which may be first or last. "
        "Export dates as 2025-07-31, or state the order: --date-order ymd, --date-order dmy or --date-order mdy",
    )
