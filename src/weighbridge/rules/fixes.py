"""Beside the checks: which records of a fixed rejects file stand for which rejected records of earlier uploads."""

# ruff: noqa: S608 (only numbers stand in the SQL)

from __future__ import annotations

from typing import Any

from weighbridge.model.sheet import Linked, Sheet
from weighbridge.rules.typed import ACCEPTED, DUPLICATE, REJECTED


def keep_links(db: Any, sheet: Sheet) -> bool:
    """Make `fixes` from the links of the sheet, without those of blank rows and totals. False: it has no links."""
    if not isinstance(sheet, Linked) or not sheet.links.num_rows:
        return False
    db.register("links", sheet.links)
    db.execute(f"""CREATE TEMP TABLE fixes AS SELECT links.* FROM links
        SEMI JOIN (SELECT row_index FROM typed WHERE kind IN ({ACCEPTED}, {DUPLICATE}, {REJECTED})) USING (row_index)
        ORDER BY row_index""")
    db.unregister("links")
    return True
