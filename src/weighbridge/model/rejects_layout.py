"""The layout of a rejects file: the columns that Weighbridge adds to the columns of the file, and the safe form.

A program writes the cells of the default form exactly as they are in the file. A spreadsheet program runs a cell such
as `=1+1` as a formula. In the spreadsheet-safe form such a cell gets one leading apostrophe, and every row says so in
`weighbridge_spreadsheet_safe`. Reading the file removes that apostrophe again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

UPLOAD = "weighbridge_upload"  # the upload that rejected the record
ROW = "weighbridge_row"  # the number of the record in that upload, from 1
LINE = "weighbridge_line"  # the line that the record begins on
CODE = "weighbridge_code"
REASON = "weighbridge_reason"
RAW = "weighbridge_raw"  # the text of a record that does not fit the columns
SAFE = "weighbridge_spreadsheet_safe"  # "yes" where the cells of the row are in the safe form
ADDED = (UPLOAD, ROW, LINE, CODE, REASON, RAW)

YES = "yes"
ESCAPED = r"^'('*[=+\-@\t\r])"  # a cell in the safe form; the group is the cell without the added apostrophe
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9,. ]*|\.[0-9]+)%?")


def added_columns(header: Sequence[str]) -> dict[str, int]:
    """The positions of the columns that Weighbridge added; empty if the file is not a rejects file.

    One such name alone is a column of the sender. If the sender has a column with such a name as well, ours is the
    last one.
    """
    names = {cell.strip(" \t\ufeff").lower(): position for position, cell in enumerate(header)}
    found = {name: names[name] for name in (*ADDED, SAFE) if name in names}
    return found if len(found) > 1 or SAFE in found else {}


def escape(cell: str) -> str:
    """The cell in the spreadsheet-safe form. Plain numbers stay as they are."""
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def unescape(cell: str) -> str:
    """The cell as it was before `escape`."""
    return re.sub(ESCAPED, r"\1", cell, count=1)
