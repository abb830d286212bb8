"""Called by run_checks.py: the links of a fixed rejects file to the uploads of its records."""

# ruff: noqa: S608 (only numbers are inserted into the SQL)

from __future__ import annotations

import re
from typing import Any

from weighbridge.model.read_as import ReadAs
from weighbridge.model.sheet import Linked, Sheet
from weighbridge.rules.check_plan import CheckPlan, Locale
from weighbridge.rules.record_kinds import ACCEPTED, DUPLICATE, REJECTED


def read_as(plan: CheckPlan, locale: Locale, sheet: Sheet) -> ReadAs:
    """How the file was read: the rows of its rejects file are read in the same way."""
    zone = plan.pipeline.zone_above
    order = {True: "dmy", False: "mdy", None: ""}[locale.day_first]
    return ReadAs(
        decimal=locale.decimal,
        date_order="ymd" if locale.year_first else order,
        delimiter=sheet.delimiter or "",
        exponents=plan.exponents,
        indian=locale.indian,
        sum_breakdowns=plan.options.sum_breakdowns,
        preamble=tuple(line for line in sheet.preamble if zone and re.search(zone, line)),
    )


def keep_links(db: Any, sheet: Sheet, *, with_totals: bool) -> bool:
    """Make `fixes` from the links of the sheet, without those of blank rows and totals. False: it has no links.

    `with_totals`: those in `breakdown_totals` were rejected with the parts that they add up, and are settled with them.
    """
    if not isinstance(sheet, Linked) or not sheet.links.num_rows:
        return False
    db.register("record_links", sheet.links)
    settled = f"SELECT row_index FROM typed WHERE kind IN ({ACCEPTED}, {DUPLICATE}, {REJECTED})"
    if with_totals:
        settled += " UNION ALL SELECT row_index FROM breakdown_totals"
    db.make(
        "fixes",
        f"""SELECT record_links.* FROM record_links
        SEMI JOIN ({settled}) USING (row_index)
        ORDER BY row_index""",
    )
    db.unregister("record_links")
    return True
