"""CSV by chance: whatever Python's csv module writes or reads, we read the same, with the right lines."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from weighbridge.formats import scan
from weighbridge.formats.dialect import Dialect, split
from weighbridge.model.errors import FileRefused

from .conftest import Read, Row, read_file

EXAMPLES = 100
DELIMITERS = [",", "\t", ";", "|"]
ENDS = ["\n", "\r\n", "\r"]
plain = st.text(st.sampled_from("ab é\" ',;|\t"), max_size=6)
loose = st.text(st.sampled_from('aé"\n\r,;|\t'), max_size=6)
chunk_sizes = st.sampled_from([1, 2, 7, 1 << 22])


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(loose, min_size=width, max_size=width), max_size=12))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    table=tables(),
    delimiter=st.sampled_from(DELIMITERS),
    end=st.sampled_from(ENDS),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]),
    chunk=chunk_sizes,
)
def test_what_the_csv_module_writes_is_what_we_read(
    table: list[list[str]], delimiter: str, end: str, quoting: int, encoding: str, chunk: int
) -> None:
    width = len(table[0]) if table else 2
    header = [f"head {position}" for position in range(width)]
    out = io.StringIO()
    lines = []
    for row in [header, *table]:
        lines.append(_physical_lines(out.getvalue()))
        out.write(_written(row, delimiter, quoting) + end)
    found = _read(out.getvalue().encode(encoding), chunk, *header)
    assert found.sheet.header == tuple(header)
    assert found.values == table
    assert found.lines == lines[1:]
    assert found.adds_up


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    body=st.text(st.sampled_from('a",\n\r'), max_size=40),
    chunk=chunk_sizes,
)
@example(body='5" pipe,"x\n"\n', chunk=3)
@example(body='"a"b"c,d",e\n', chunk=7)
@example(body='""""\n"",""\n', chunk=1)
def test_any_text_at_all_is_read_as_the_csv_module_reads_it(body: str, chunk: int) -> None:
    assume(not _a_quote_stays_open(body))
    found = _read(("h1,h2\n" + body).encode(), chunk, "h1", "h2")
    assert found.rows == _reference(body)
    assert found.adds_up


@settings(max_examples=EXAMPLES, deadline=None)
@given(body=st.text(st.sampled_from('a",\n\r'), max_size=20), chunk=chunk_sizes)
def test_a_quote_left_open_is_always_noticed(body: str, chunk: int) -> None:
    assume(_a_quote_stays_open(body))
    with pytest.raises(FileRefused, match="never closed"):
        _read(("h1,h2\n" + body).encode(), chunk, "h1", "h2")


@settings(max_examples=EXAMPLES, deadline=None)
@given(cells=st.lists(loose, min_size=1, max_size=5), delimiter=st.sampled_from(DELIMITERS))
def test_a_record_is_split_as_the_csv_module_splits_it(cells: list[str], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(cells)
    assert split(out.getvalue(), Dialect(delimiter)) == cells


@settings(max_examples=EXAMPLES, deadline=None)
@given(record=st.text(st.sampled_from('a", '), min_size=1, max_size=12))
def test_even_a_badly_quoted_record_is_split_as_the_csv_module_splits_it(record: str) -> None:
    assert split(record, Dialect(",")) == next(csv.reader([record]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(table=st.lists(st.lists(plain, min_size=2, max_size=2), max_size=8), chunk=chunk_sizes)
def test_quotes_that_were_never_meant_as_quotes_are_text(table: list[list[str]], chunk: int) -> None:
    rows = [[f".{cell.replace(',', ';')}" for cell in row] for row in table]
    text = "h1,h2\n" + "".join(f"{left},{right}\n" for left, right in rows)
    assert _read(text.encode(), chunk, "h1", "h2").values == rows


def _read(data: bytes, chunk: int, *headers: str) -> Read:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "CHUNK", chunk)
        path = Path(folder) / "export.csv"
        path.write_bytes(data)
        return read_file(path, "csv", *headers, scratch=Path(folder) / "scratch")


def _written(row: list[str], delimiter: str, quoting: int) -> str:
    out = io.StringIO()  # with CRLF, so that the module quotes every cell with a CR or LF in it
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n", quoting=quoting).writerow(row)  # type: ignore[arg-type]
    return out.getvalue().removesuffix("\r\n")


def _physical_lines(text: str) -> int:
    """The line on which the next character would stand."""
    return 1 + io.StringIO(text, newline=None).read().count("\n")


def _reference(body: str) -> list[Row]:
    """The rows by Python's csv, under a header of two cells."""
    rows = []
    reader = csv.reader(io.StringIO(body, newline=""))
    line = 2
    for index, cells in enumerate(reader):
        cells = cells or ["", ""]  # a blank line
        surplus = ",".join(cells[2:]) if any(cells[2:]) else None
        rows.append(Row(index, line, len(cells), [*cells, None, None][:2], surplus))
        line = 2 + reader.line_num
    return rows


def _a_quote_stays_open(body: str) -> bool:
    """One more line does not become one more record."""

    def count(text: str) -> int:
        return len(list(csv.reader(io.StringIO(text, newline=""))))

    return count(body + "\nx\nx") != count(body + "\nx") + 1
