"""CSV by chance: whatever Python's csv module writes is read, and any other text as `strict` reads it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from weighbridge.formats import scan
from weighbridge.formats.cells import Dialect, split
from weighbridge.model.errors import FileRefused

from . import strict
from .conftest import Read, read_file

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
    assert found.adds_up
    if any(
        row.fault for row in found.rows
    ):  # only where cells look like whole records, and nothing wrong comes of it
        assert any("\n" in cell or "\r" in cell for row in table for cell in row)
        if all(_physical_lines("".join(row)) < 4 for row in table):  # more lines may well be records
            assert all(row.values in table for row in found.rows if not row.fault)
    else:
        assert found.values == table
        assert found.lines == lines[1:]


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(
    body=st.text(st.sampled_from('a", \n\r'), max_size=40),
    chunk=chunk_sizes,
)
@example(body='5" pipe,"x\n"\n', chunk=3)
@example(body='"a"b"c,d",e\n', chunk=7)
@example(body='""""\n"",""\n', chunk=1)
@example(body='1,"a\n2,b\n3,c"\n', chunk=1)
@example(body='a,"b\n"\nb,c\n', chunk=2)
def test_any_text_at_all_is_read_as_a_parser_of_single_characters_reads_it(body: str, chunk: int) -> None:
    try:
        found = _read(("h1,h2\n" + body).encode(), chunk, "h1", "h2")
    except FileRefused:  # most records are wider than the header
        widths = [len(line.split(",")) for line in body.splitlines()]
        assert max(widths) > 2
        return
    layout = found.sheet.layout  # type: ignore[attr-defined]
    width = 2 + layout.extra_cells
    assert found.rows == strict.records(body, width, strict_quotes=layout.quotes_cells, line=2)
    assert found.adds_up


@settings(max_examples=EXAMPLES, deadline=None)
@given(cells=st.lists(loose, min_size=1, max_size=5), delimiter=st.sampled_from(DELIMITERS))
def test_a_record_is_split_as_the_csv_module_splits_it(cells: list[str], delimiter: str) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(cells)
    assert split(out.getvalue(), Dialect(delimiter)) == cells


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
