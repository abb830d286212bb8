"""Beside the flow: the refused rows of an upload → the CSV that people mend and send again.

The file's own columns in their order, then line, code and reason. A spreadsheet must not run what a stranger
wrote: a cell that could be a formula gets a leading apostrophe; a plain number never is one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator

from weighbridge.db import history
from weighbridge.db.pool import Database
from weighbridge.db.rejections import Rejection
from weighbridge.model.upload import Upload

PAGE = 5000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(?:\d[\d,. ]*|\.\d+)%?")


async def rejects_csv(db: Database, upload: Upload) -> AsyncIterator[str]:
    """The CSV in pieces. Each page is a transaction of its own, as the reader may be slow."""
    width = len(upload.columns)
    yield _lines([[*map(neutral, upload.columns), "line", "code", "reason"]])
    last: Rejection | None = None
    while True:
        async with db.tx("weighbridge_tenant", upload.workspace_id) as tx:
            page = await history.refused_rows(tx, upload.id, last, PAGE)
        if not page:
            return
        yield _lines([_cells(rejection, width) for rejection in page])
        last = page[-1]


def neutral(cell: str) -> str:
    """The cell, harmless in a spreadsheet."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell


def _cells(rejection: Rejection, width: int) -> list[str]:
    raw = [cell or "" for cell in rejection.raw or ()]  # what is no record at all has NULL in every cell
    row = (raw + [""] * width)[:width]
    sentences = [rejection.message, *(rejection.more or ())]
    if any(raw[width:]):  # a record with more cells than the header: they must not shift our columns
        sentences.append(f"Cells beyond the last column: {', '.join(raw[width:])}")
    return [*map(neutral, row), str(rejection.line), rejection.code, neutral(" ".join(sentences))]


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
