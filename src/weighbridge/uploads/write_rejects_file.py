"""The rejected rows of an upload → the CSV that people fix and load again.

The columns of the file in their order, with unchanged cells, then the added columns (model/rejects_layout.py). A record
that does not fit the columns has empty cells and its text in `weighbridge_raw`: cut or padded, its values would
load as the values of other columns.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

from weighbridge.model.rejects_layout import ADDED, SAFE, YES, escape
from weighbridge.model.sheet import FAULTS
from weighbridge.model.upload import Upload
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import history
from weighbridge.uploads.rejections import Rejection

PAGE = 5000
_UNREADABLE = frozenset({"late_key", *FAULTS})
_BOM = "\ufeff"  # without it, Excel reads the file as Windows-1252


@dataclass(frozen=True)
class RejectsForm:
    """Which rejected rows, and how they are written."""

    every: bool = False  # also the rows that a later file has fixed
    spreadsheet_safe: bool = False  # no cell is read as a formula by a spreadsheet program


OPEN_ROWS = RejectsForm()


async def rejects_csv(db: Database, upload: Upload, form: RejectsForm = OPEN_ROWS) -> AsyncIterator[str]:
    """The CSV in pieces. Each page has its own transaction, because the reader may be slow."""
    yield header_text(upload, form)
    last: Rejection | None = None
    while True:
        async with db.tx(roles.TENANT, upload.workspace_id) as tx:
            page = await history.rejected_rows(tx, upload.id, last, PAGE, every=form.every)
        if not page:
            return
        yield rows_text(upload, page, form)
        last = page[-1]


def header_text(upload: Upload, form: RejectsForm) -> str:
    """The header, below the lines that name the time zone of its times."""
    above = "".join(f"{line}\r\n" for line in upload.read_as.preamble)
    return _BOM * form.spreadsheet_safe + above + _lines([[*upload.columns, *ADDED]], form, SAFE)


def rows_text(upload: Upload, page: Iterable[Rejection], form: RejectsForm) -> str:
    return _lines((_cells(rejection, upload) for rejection in page), form, YES)


def _cells(rejection: Rejection, upload: Upload) -> list[str]:
    own, raw = _record(rejection, upload)
    reason = " ".join([rejection.message, *(rejection.more or ())])
    origin_cells = str(upload.id), str(rejection.row_index + 1), str(rejection.line)
    return [*own, *origin_cells, rejection.code, reason, raw]


def _record(rejection: Rejection, upload: Upload) -> tuple[list[str], str]:
    """One cell for each column; or empty cells and the record's text where it does not fit the columns."""
    width, raw = len(upload.columns), rejection.raw
    if raw is None:
        return [""] * width, f"The cells are not stored. See line {rejection.line} of the file."
    # A JSON record may have more keys than the first records. No field uses them, so the columns are complete.
    more_keys = upload.file_kind == "json" and len(raw) > width
    if rejection.code in _UNREADABLE or (len(raw) != width and not more_keys):
        return [""] * width, _text(raw, upload)
    return [cell or "" for cell in raw[:width]], ""


def _text(raw: list[str | None], upload: Upload) -> str:
    """A record that does not fit, as one line in the format of its file."""
    width = len(upload.columns)
    cells, beyond = raw[:width], raw[width:]
    if all(cell is None for cell in cells):
        return " ".join(filter(None, beyond))
    if upload.file_kind == "json":
        found = {name: cell for name, cell in zip(upload.columns, cells, strict=False) if cell is not None}
        late = next(filter(None, beyond), "{}")  # the keys that the first records do not have, as an object
        return f"{json.dumps(found, ensure_ascii=False)[:-1]}, {late.removeprefix('{')}"
    delimiter = upload.read_as.delimiter or upload.reading.delimiter or ","
    line = _written([[cell or "" for cell in cells]], delimiter).removesuffix("\r\n")
    return delimiter.join([line, *filter(None, beyond)])


def _lines(rows: Iterable[list[str]], form: RejectsForm, mark: str) -> str:
    return _written(_safe(rows, mark) if form.spreadsheet_safe else rows)


def _safe(rows: Iterable[list[str]], mark: str) -> Iterator[list[str]]:
    return ([*map(escape, row), mark] for row in rows)


def _written(rows: Iterable[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
