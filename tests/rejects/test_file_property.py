"""Any rejected rows, downloaded in either form and read again without a change, have the same cells."""

from __future__ import annotations

import csv
import io
import string
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from weighbridge.formats import open_sheet, without_added_columns
from weighbridge.formats.unnamed_columns import unnamed_from
from weighbridge.model.read_as import UNDECIDED, ReadAs
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.rejects_layout import ADDED, RAW, SAFE, escape, unescape
from weighbridge.model.sheet import SPACE
from weighbridge.uploads.rejections import Rejection
from weighbridge.uploads.write_rejects_file import RejectsForm, header_text, rows_text

ID = UUID("7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b")
# Characters that show nothing are removed before a row is rejected.
UNSEEN = "\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
ANY = st.characters(exclude_categories=["Cs"], exclude_characters=f"\0\x1a{UNSEEN}")
CELLS = st.one_of(
    st.text(alphabet="=+-@'\t\r\n\",;| a1", max_size=6),
    st.text(alphabet=ANY, max_size=12),
    st.from_regex(r"[+-]?[0-9][0-9,. ]{0,4}%?", fullmatch=True, alphabet=string.printable),
)
NAMES = st.one_of(CELLS, st.sampled_from(["line", "Code", "Reason", *ADDED]))


@dataclass(frozen=True)
class FakeUpload:
    """What writing a rejects file asks of an upload."""

    columns: tuple[str, ...]
    file_kind: str = "csv"
    id: UUID = ID
    reading: ReadOptions = DETECT_ALL
    read_as: ReadAs = UNDECIDED


def read(text: str) -> tuple[tuple[str, ...], list[dict[str, Any]], list[dict[str, Any]]]:
    """The header, the records and the links of a file of a pipeline that knows the column `key`."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(text.encode())
        sheet = without_added_columns(
            open_sheet(path, "csv", count_fields=lambda cells: int("key" in cells[:1]), scratch=Path(folder))
        )
        rows = [row for batch in sheet.batches() for row in batch.to_pylist()]
        assert sheet.records == len(rows) + 1
        return sheet.header, sorted(rows, key=lambda row: row["row_index"]), sheet.links.to_pylist()  # type: ignore[attr-defined]


def raw_text(upload: Any, rejection: Rejection) -> str:
    """What the default form has in `weighbridge_raw`."""
    (row,) = csv.reader(io.StringIO(rows_text(upload, [rejection], RejectsForm()), newline=""))
    return row[len(upload.columns) + ADDED.index(RAW)]


@st.composite
def rejected(draw: st.DrawFn) -> tuple[tuple[str, ...], list[tuple[str, list[str | None]]]]:
    header = ("key", *draw(st.lists(NAMES, max_size=3)))
    width = len(header)
    fitting = st.tuples(st.just("bad_amount"), st.lists(CELLS, min_size=width, max_size=width))
    short = st.tuples(st.just("wrong_cell_count"), st.lists(CELLS, max_size=width - 1, min_size=1))
    long = st.tuples(st.just("wrong_cell_count"), st.lists(CELLS, min_size=width + 1, max_size=width + 1))
    nothing = st.tuples(st.just("open_quote"), CELLS.map(lambda text: [None] * width + [text]))
    rows = draw(
        st.lists(st.one_of(fitting, short, long, nothing) if width > 1 else fitting, min_size=1, max_size=5)
    )
    return header, rows  # type: ignore[return-value]


@given(rejected(), st.booleans())
def test_a_rejects_file_that_is_read_again_has_the_same_cells(
    found: tuple[tuple[str, ...], list[tuple[str, list[str | None]]]], safe: bool
) -> None:
    header, rows = found
    upload: Any = FakeUpload(header)
    form = RejectsForm(spreadsheet_safe=safe)
    page = [
        Rejection(7 + at, 9 + at, "parse", None, code, "Why: it is =wrong.", raw)
        for at, (code, raw) in enumerate(rows)
    ]
    text = header_text(upload, form) + rows_text(upload, page, form)
    own, read_rows, links = read(text)
    assert own == header
    assert len(read_rows) == len(rows)
    for row, (code, raw) in zip(read_rows, rows, strict=True):
        cells = [row[f"c{at}"] for at in range(len(header))]
        if code == "bad_amount":
            unnamed = any(cell.strip(SPACE) for cell in raw[unnamed_from(header) :] if cell)
            assert (cells, row["surplus"], row["fault"]) == (raw, None, "unnamed_cell" if unnamed else None)
            assert row["cells"] == len(header)
        elif row["fault"] is None:  # nothing is lost: the record had no text
            assert not "".join(cell or "" for cell in raw).strip(" \t\r\n,\u00a0\u2007\u202f\u200b\ufeff")
        else:
            assert (set(cells), row["fault"], row["cells"]) == ({None}, "not_fixed", 0)
            again = Rejection(
                row["row_index"] + 7, 2, "parse", None, "not_fixed", "", [*cells, row["surplus"]]
            )
            rejection = page[row["row_index"]]
            assert raw_text(upload, again) == raw_text(upload, rejection) == row["surplus"]
    kept = {link["row_index"]: (link["original_upload"], link["original_row"]) for link in links}
    for at, row in enumerate(read_rows):
        if row["fault"] or any(
            (row[f"c{n}"] or "").strip(" \t\r\n\u00a0\u2007\u202f\u200b\ufeff") for n in range(len(header))
        ):
            assert kept.pop(at) == (str(ID), 7 + at)
    assert not kept


@given(CELLS)
def test_the_safe_form_of_a_cell_is_no_formula_and_can_be_undone(cell: str) -> None:
    safe = escape(cell)
    assert unescape(safe) == cell
    if safe[:1] in ("=", "+", "-", "@", "\t", "\r"):
        assert safe == cell
        assert any(map(str.isdigit, cell))


@given(CELLS, CELLS)
def test_two_cells_never_have_the_same_safe_form(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


def test_the_added_columns_are_known_by_their_names() -> None:
    from weighbridge.model.rejects_layout import added_columns

    assert added_columns(["a", *ADDED]) == {name: at + 1 for at, name in enumerate(ADDED)}
    assert added_columns(["a", "weighbridge_line"]) == {}  # a column of the sender's own
    assert added_columns(["weighbridge_line", "a", *ADDED])["weighbridge_line"] == 4
    assert added_columns(["a", f" {SAFE.upper()}"]) == {SAFE: 1}
